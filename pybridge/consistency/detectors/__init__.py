"""What can be found: one file for each family of fault, run from the list in `_registry`."""

from ._context import Cause as Cause
from ._context import Context as Context
from ._context import Detector as Detector
from ._merge import merge_findings as merge_findings
from ._randomness import detect_randomness as detect_randomness
from ._registry import detect_at_point as detect_at_point
from ._registry import detect_once as detect_once
from ._truncation import detect_truncation as detect_truncation
from ._within_gradient import differentiate_inside as differentiate_inside
from ._within_gradient import find_inside as find_inside
from .precision import rounding_errors as rounding_errors
