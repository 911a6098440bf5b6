"""`pb.explain_nan`: where a NaN in a derivative comes from, and what to do."""

from ._explain import explain_nan as explain_nan
from ._explain import find_cause as find_cause
from ._explanation import NaNExplanation as NaNExplanation
