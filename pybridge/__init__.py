"""Ask "am I inside a gradient?", and act on the answer, in JAX and in Julia's AD systems."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._backends import Backend as Backend
from ._errors import ArgumentTypeError as ArgumentTypeError
from ._errors import ArgumentValueError as ArgumentValueError
from ._errors import BackendNotLoadedError as BackendNotLoadedError
from ._errors import BranchMismatchError as BranchMismatchError
from ._errors import BridgeError as BridgeError
from ._errors import ConfigError as ConfigError
from ._errors import DetectionError as DetectionError
from ._errors import IndexOutOfBoundsError as IndexOutOfBoundsError
from ._errors import JuliaError as JuliaError
from ._errors import JuliaForkError as JuliaForkError
from ._errors import JuliaUnavailableError as JuliaUnavailableError
from ._errors import LoweringError as LoweringError
from ._errors import UnknownBackendError as UnknownBackendError
from ._errors import UnsupportedModeError as UnsupportedModeError
from ._later import imported_later as _imported_later

if _TYPE_CHECKING:
    from . import nn as nn
    from .consistency import Finding as Finding
    from .consistency import NaNExplanation as NaNExplanation
    from .consistency import Report as Report
    from .consistency import assert_consistent as assert_consistent
    from .consistency import check as check
    from .consistency import explain_nan as explain_nan
    from .flux_models import FluxModel as FluxModel
    from .flux_models import flux as flux
    from .interop import JuliaFunction as JuliaFunction
    from .interop import from_julia as from_julia
    from .interop import to_julia as to_julia
    from .julia import backends as backends
    from .lowering import Lowered as Lowered
    from .lowering import lower as lower
    from .primitives import NonDifferentiable as NonDifferentiable
    from .primitives import at as at
    from .primitives import cond as cond
    from .primitives import differentiation_order as differentiation_order
    from .primitives import is_differentiating as is_differentiating
    from .primitives import strong_zero as strong_zero
    from .primitives import switch as switch
    from .primitives import take as take
    from .primitives import within_gradient as within_gradient
    from .transforms import grad as grad
    from .transforms import hessian as hessian
    from .transforms import jacobian as jacobian
    from .transforms import jvp as jvp
    from .transforms import value_and_grad as value_and_grad
    from .transforms import vjp as vjp

# Those who only ask, say, `within_gradient` need not wait for the layers.
__getattr__, __dir__ = _imported_later(
    __name__,
    {
        ".": ("nn",),
        ".consistency": (
            "Finding",
            "NaNExplanation",
            "Report",
            "assert_consistent",
            "check",
            "explain_nan",
        ),
        ".flux_models": ("FluxModel", "flux"),
        ".interop": ("JuliaFunction", "from_julia", "to_julia"),
        ".julia": ("backends",),
        ".lowering": ("Lowered", "lower"),
        ".primitives": (
            "NonDifferentiable",
            "at",
            "cond",
            "differentiation_order",
            "is_differentiating",
            "strong_zero",
            "switch",
            "take",
            "within_gradient",
        ),
        ".transforms": ("grad", "hessian", "jacobian", "jvp", "value_and_grad", "vjp"),
    },
)
