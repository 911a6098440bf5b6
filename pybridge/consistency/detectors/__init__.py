"""What can be found: one file for each family of fault."""

from ._julia_functions import explain_in_julia as explain_in_julia
from ._merge import merge_findings as merge_findings
from ._non_finite import VALUE_NOT_FINITE as VALUE_NOT_FINITE
from ._non_finite import judge_non_finite as judge_non_finite
from ._non_finite import judge_value_not_finite as judge_value_not_finite
from ._out_of_bounds import find_out_of_bounds as find_out_of_bounds
from ._primal_values import Own as Own
from ._primal_values import ask_own as ask_own
from ._primal_values import judge_own as judge_own
from ._primal_values import judge_values as judge_values
from ._randomness import judge_repetition as judge_repetition
from ._second_order import judge_second as judge_second
from ._within_gradient import compare_with_inside as compare_with_inside
from ._within_gradient import find_inside as find_inside
from ._wrong_derivatives import judge as judge
from ._zero_gradients import find_flat as find_flat
from ._zero_representations import find_zeros as find_zeros
