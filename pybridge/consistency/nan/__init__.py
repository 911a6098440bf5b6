"""`pb.explain_nan`: where a NaN in a derivative comes from, and what to do."""

from ._explain import explain_nan as explain_nan
from ._explain import find_non_finite as find_non_finite
from ._explanation import NaNExplanation as NaNExplanation
