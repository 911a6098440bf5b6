"""Derivatives by finite differences, with error estimates: the independent reference."""

from ._derivatives import as_given as as_given
from ._derivatives import finite_gradient as finite_gradient
from ._derivatives import finite_hessian as finite_hessian
from ._derivatives import finite_jacobian as finite_jacobian
from ._derivatives import finite_jvp as finite_jvp
from ._derivatives import finite_slopes as finite_slopes
from ._directional import LEVELS as LEVELS
from ._directional import Along as Along
from ._directional import Sample as Sample
from ._directional import along as along
from ._directional import noise_of as noise_of
from ._directional import two_sided as two_sided
from ._sampling import as_jax as as_jax
from ._sampling import double_precision as double_precision
from ._sampling import widen as widen
