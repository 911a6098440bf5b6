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
    from ._wire import as_leaf as as_leaf
    from ._wire import code as code
    from ._wire import jax_array as jax_array
    from ._wire import spec as spec
    from ._wire import unholdable as unholdable

# `import pybridge` needs a part of this alone.
__getattr__, __dir__ = _imported_later(
    __name__,
    {
        "DTYPES": "_wire",
        "JuliaHandle": "_functions",
        "Library": "_library",
        "ModelHandle": "_models",
        "PullbackHandle": "_functions",
        "Reply": "_callbacks",
        "Result": "_functions",
        "Session": "_session",
        "Structure": "_wire",
        "TARGET": "_ffi",
        "as_julia_error": "_ffi",
        "as_leaf": "_wire",
        "backends": "_systems",
        "choose_julia": "_locate",
        "code": "_wire",
        "expose": "_callbacks",
        "jax_array": "_wire",
        "load": "_systems",
        "prepare": "_systems",
        "lowered_handle": "_functions",
        "public": "_functions",
        "read_leaves": "_callbacks",
        "require": "_systems",
        "session": "_session",
        "spec": "_wire",
        "unholdable": "_wire",
        "when_computed": "_pending",
        "xla_calls_julia": "_ffi",
    },
)
