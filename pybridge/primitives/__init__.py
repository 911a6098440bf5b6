"""Detection and control flow in JAX; never touches Julia."""

from ._cond import cond as cond
from ._cond import switch as switch
from ._detection import is_differentiating as is_differentiating
from ._detection import within_gradient as within_gradient
from ._masking import same_mesh_axes as same_mesh_axes
