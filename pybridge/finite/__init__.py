"""Derivatives by finite differences, with error estimates: the independent reference.

Nothing here looks at how a function is written, it is only called. The checker needs to know of
each point whether there is a derivative at all, so that both one-sided derivatives, the noise of
the values and the kind of the point are results of their own, and a number that rounding spoils is
told from one that is known.

Others' differences do not tell: `scipy.differentiate.derivative` (SciPy 1.17) gives 0 with the
error 0 and success for `abs` at 0, `nan` for `sqrt` there, `5e3` with the error `2e3` for a value
that jumps, and 8e2 for the derivative of `sin(1e6 x)` at 1, which is 9e5; its error is the distance
of the last two estimates, without a floor for rounding, and its function has to be elementwise.
numdifftools extrapolates as is done here, one number and one side at a time, and finds no kinks,
edges or noise either. Both choose the side of the differences before they see the function.
"""

from ._closest import is_closer as is_closer
from ._closest import is_shown as is_shown
from ._closest import steady_length as steady_length
from ._closest import steady_quotients as steady_quotients
from ._derivatives import FiniteDerivative as FiniteDerivative
from ._derivatives import finite_gradient as finite_gradient
from ._derivatives import finite_hessian as finite_hessian
from ._derivatives import finite_jacobian as finite_jacobian
from ._derivatives import finite_jvp as finite_jvp
from ._differences import Curve as Curve
from ._differences import Sample as Sample
from ._differences import two_sided_derivative as two_sided_derivative
from ._noise import noise_level as noise_level
from ._points import DirectionalDerivative as DirectionalDerivative
from ._points import differentiate_curve as differentiate_curve
from ._points import directional_derivative as directional_derivative
from ._precision import double_precision as double_precision
from ._program import as_given as as_given
from ._program import as_jax as as_jax
from ._program import is_inexact as is_inexact
from ._program import widen as widen
from ._tolerances import TOLERANCES as TOLERANCES
from ._tolerances import Tolerances as Tolerances
