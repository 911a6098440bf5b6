"""Ask "am I inside a gradient?", and act on the answer, in JAX and in Julia's AD systems."""

import importlib as _importlib
import typing as _typing

from ._backends import Backend as Backend
from ._backends import backends as backends
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
from .interop import JuliaFunction as JuliaFunction
from .interop import from_julia as from_julia
from .interop import to_julia as to_julia
from .primitives import NonDifferentiable as NonDifferentiable
from .primitives import at as at
from .primitives import cond as cond
from .primitives import differentiation_order as differentiation_order
from .primitives import is_differentiating as is_differentiating
from .primitives import switch as switch
from .primitives import take as take
from .primitives import within_gradient as within_gradient
from .transforms import grad as grad
from .transforms import hessian as hessian
from .transforms import jacobian as jacobian
from .transforms import jvp as jvp
from .transforms import value_and_grad as value_and_grad
from .transforms import vjp as vjp

if _typing.TYPE_CHECKING:
    from . import nn as nn
    from .consistency import check as check
    from .consistency.findings import Finding as Finding
    from .consistency.findings import Report as Report
    from .consistency.nan import NaNExplanation as NaNExplanation
    from .consistency.nan import explain_nan as explain_nan
    from .consistency.testing import assert_consistent as assert_consistent
    from .interop._flux_model import FluxModel as FluxModel
    from .interop._flux_model import flux as flux
    from .lowering import Lowered as Lowered
    from .lowering import lower as lower
    from .primitives._strong_zero import strong_zero as strong_zero

# Imported on first use: those who bring no layers need not wait for them.
_LATER = {
    "nn": "nn",
    "Finding": "consistency",
    "FluxModel": "interop._flux_model",
    "Lowered": "lowering",
    "NaNExplanation": "consistency",
    "Report": "consistency",
    "assert_consistent": "consistency",
    "check": "consistency",
    "explain_nan": "consistency",
    "flux": "interop._flux_model",
    "lower": "lowering",
    "strong_zero": "primitives._strong_zero",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _importlib.import_module(f".{_LATER[name]}", __name__)
    return globals().setdefault(name, module if name == "nn" else getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
