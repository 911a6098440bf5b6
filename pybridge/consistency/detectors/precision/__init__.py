"""Results that a precision loses, seen by running the program in extended precision."""

from ._extended_run import NotFollowedError as NotFollowedError
from ._extended_run import run_by_steps as run_by_steps
from ._rounding import LostResult as LostResult
from ._rounding import Results as Results
from ._rounding import detect_lost_digits as detect_lost_digits
from ._rounding import find_lost_results as find_lost_results
from ._rounding import harmless_error as harmless_error
from ._rounding_errors import rounding_errors as rounding_errors
