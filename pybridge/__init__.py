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
from ._errors import JuliaError as JuliaError
from ._errors import JuliaForkError as JuliaForkError
from ._errors import JuliaUnavailableError as JuliaUnavailableError
from ._errors import UnknownBackendError as UnknownBackendError
from ._errors import UnsupportedModeError as UnsupportedModeError
from .interop import JuliaFunction as JuliaFunction
from .interop import from_julia as from_julia
from .interop import to_julia as to_julia
from .primitives import cond as cond
from .primitives import is_differentiating as is_differentiating
from .primitives import switch as switch
from .primitives import within_gradient as within_gradient
from .transforms import grad as grad
from .transforms import hessian as hessian
from .transforms import jacobian as jacobian
from .transforms import jvp as jvp
from .transforms import value_and_grad as value_and_grad
from .transforms import vjp as vjp

if _typing.TYPE_CHECKING:
    from . import nn as nn
    from .interop._flux_model import FluxModel as FluxModel
    from .interop._flux_model import flux as flux

# Imported on first use: those who bring no layers need not wait for them.
_LATER = {"nn": "nn", "FluxModel": "interop._flux_model", "flux": "interop._flux_model"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _importlib.import_module(f".{_LATER[name]}", __name__)
    return globals().setdefault(name, module if name == "nn" else getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
