"""The only folder that knows juliacall; nothing here imports it outside a function."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._later import imported_later as _imported_later

if _TYPE_CHECKING:
    from ._callbacks import Reply as Reply
    from ._callbacks import expose as expose
    from ._callbacks import read_leaves as read_leaves
    from ._ffi import TARGET as TARGET
    from ._ffi import as_julia_error as as_julia_error
    from ._ffi import xla_calls_julia as xla_calls_julia
    from ._functions import JuliaHandle as JuliaHandle
    from ._functions import PullbackHandle as PullbackHandle
    from ._functions import Result as Result
    from ._functions import lowered_handle as lowered_handle
    from ._functions import public as public
    from ._library import Library as Library
    from ._locate import choose_julia as choose_julia
    from ._models import ModelHandle as ModelHandle
    from ._pending import when_computed as when_computed
    from ._session import Session as Session
    from ._session import session as session
    from ._systems import backends as backends
    from ._systems import load as load
    from ._systems import prepare as prepare
    from ._systems import require as require
    from ._wire import DTYPES as DTYPES
    from ._wire import Structure as Structure
    from ._wire import are_arrays as are_arrays
    from ._wire import as_leaf as as_leaf
    from ._wire import code as code
    from ._wire import jax_array as jax_array
    from ._wire import spec as spec
    from ._wire import unholdable as unholdable

# `import pybridge` needs a part of this alone.
__getattr__, __dir__ = _imported_later(
    __name__,
    {
        "._callbacks": ("Reply", "expose", "read_leaves"),
        "._ffi": ("TARGET", "as_julia_error", "xla_calls_julia"),
        "._functions": ("JuliaHandle", "PullbackHandle", "Result", "lowered_handle", "public"),
        "._library": ("Library",),
        "._locate": ("choose_julia",),
        "._models": ("ModelHandle",),
        "._pending": ("when_computed",),
        "._session": ("Session", "session"),
        "._systems": ("backends", "load", "prepare", "require"),
        "._wire": (
            "DTYPES",
            "Structure",
            "are_arrays",
            "as_leaf",
            "code",
            "jax_array",
            "spec",
            "unholdable",
        ),
    },
)
