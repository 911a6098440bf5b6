"""Results that a precision loses, seen by running the program in extended precision."""

from ._rounding import LostResult as LostResult
from ._rounding import Results as Results
from ._rounding import double_results as double_results
from ._rounding import find_lost_results as find_lost_results
from ._rounding import judge_rounding as judge_rounding
from ._rounding import own_results as own_results
