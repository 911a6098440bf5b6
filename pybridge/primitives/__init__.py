"""Detection, control flow, indexing and parts without gradient in JAX; never touches Julia."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._later import imported_later as _imported_later
from . import _switch_derivatives as _switch_derivatives
from . import _switch_lanes as _switch_lanes
from . import _switch_partial_eval as _switch_partial_eval
from ._at import at as at
from ._bounds import outside_text as outside_text
from ._bounds import place as place
from ._cond import cond as cond
from ._cond import switch as switch
from ._detection import is_differentiating as is_differentiating
from ._detection import listen as listen
from ._detection import within_gradient as within_gradient
from ._detection import within_gradient_p as within_gradient_p
from ._filling import least_place as least_place
from ._filling import read_at as read_at
from ._filling import same_mesh_axes as same_mesh_axes
from ._gathering import fill as fill
from ._gathering import gather as gather
from ._jet import call_under_jet as call_under_jet
from ._nondifferentiable import NonDifferentiable as NonDifferentiable
from ._nondifferentiable import holds_nondifferentiable as holds_nondifferentiable
from ._nondifferentiable import plain as plain
from ._order import differentiation_order as differentiation_order
from ._random import keep_mask as keep_mask
from ._select import on_same_devices as on_same_devices
from ._select import select as select
from ._take import take as take

if _TYPE_CHECKING:
    from ._strong_zero import strong_zero as strong_zero

# It loads a part of JAX that nothing else needs.
__getattr__, __dir__ = _imported_later(__name__, {"._strong_zero": ("strong_zero",)})
