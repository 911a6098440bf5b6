"""Detection, control flow, indexing and parts without gradient in JAX; never touches Julia."""

from . import _jet as _jet
from . import _switch_derivatives as _switch_derivatives
from . import _switch_lanes as _switch_lanes
from ._at import at as at
from ._cond import cond as cond
from ._cond import switch as switch
from ._detection import is_differentiating as is_differentiating
from ._detection import within_gradient as within_gradient
from ._filling import same_mesh_axes as same_mesh_axes
from ._nondifferentiable import NonDifferentiable as NonDifferentiable
from ._order import differentiation_order as differentiation_order
from ._take import take as take
