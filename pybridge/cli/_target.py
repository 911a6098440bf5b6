"""What the command line names: a function, and the arguments that it is called with."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .._errors import ArgumentTypeError, ArgumentValueError, explain

_WHERE = "pybridge check"


def load_target(text: str) -> Callable[..., Any]:
    """Import the function that `module:name` or `folder/file.py:name` names.

    Modules are looked for in the current folder first, as with `python -m`; a file finds its
    neighbours, as with `python file.py`. The module's code is run.

    Args:
        text: what stands on the command line; the name may have dots, as in `Model.loss`.

    Raises:
        ArgumentValueError: there is no such module, file or name, or the module fails.
        ArgumentTypeError: the name is not that of a function.
    """
    source, colon, name = text.rpartition(":")
    if not (source and colon and name):
        raise ArgumentValueError(
            explain(
                _WHERE,
                expected="a function as module:name or file.py:name",
                got=repr(text),
                fix="For example: pybridge check mymodule:loss --args 1.0",
            )
        )
    found: Any = _load_file(source) if source.endswith(".py") else _load_module(source)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentValueError(
                explain(
                    _WHERE,
                    expected=f"a name in {source}",
                    got=repr(name),
                    fix=f"Functions there: {', '.join(_functions(found)) or 'none'}.",
                )
            )
        found = getattr(found, part)
    if not callable(found):
        raise ArgumentTypeError(
            explain(
                _WHERE,
                expected="a function",
                got=f"{name}, which is of type {type(found).__name__}",
                fix="Name a function of arrays, or one from pb.from_julia.",
            )
        )
    return found


def read_arguments(f: Callable[..., Any], texts: Sequence[str]) -> tuple[Any, ...]:
    """Evaluate what follows `--args`, and see that the function takes as many.

    Each is a Python expression in which `np`, `jnp`, `jax`, `pb`, `pi`, `inf` and `nan` are
    known, but no builtin function. That keeps accidents small; it is no sandbox: never pass on
    what a stranger wrote. Lists of numbers become arrays, tuples and dicts stay pytrees.

    Args:
        f: the function.
        texts: one expression for each argument.

    Returns:
        The arguments. What `jnp` makes is in float64.

    Raises:
        ArgumentValueError: an expression cannot be evaluated, or the function takes more or
            fewer arguments.
    """
    import jax

    from ..finite import double_precision

    with double_precision():
        arguments = tuple(_evaluate(text) for text in texts)
    arguments = jax.tree.map(_of_any_precision, arguments)
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # not every callable has one
        return arguments
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(f, "__name__", "the function")
        raise ArgumentValueError(
            explain(
                f"{_WHERE} --args",
                expected=f"the arguments of {name}{signature}",
                got=f"{len(arguments)} ({error})",
                fix="Give one expression each: --args 1.0 '[1.0, 2.0]'",
            )
        ) from None
    return arguments


def _load_module(name: str) -> Any:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return _guarded(lambda: importlib.import_module(name), f"a module {name} to import")


def _load_file(text: str) -> Any:
    path = Path(text).resolve()
    if not path.is_file():
        raise ArgumentValueError(
            explain(
                _WHERE,
                expected="a Python file",
                got=f"{text!r}, which is not there",
                fix="The path is relative to the current folder.",
            )
        )
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # A file may have the name of a module that is loaded already.
    name = path.stem if path.stem not in sys.modules else f"_checked_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their own module up
    try:
        loader = spec.loader
        return _guarded(lambda: loader.exec_module(module) or module, f"{text} to run")
    except ArgumentValueError:
        del sys.modules[name]
        raise


def _guarded(load: Callable[[], Any], expected: str) -> Any:
    """Run a module's code; what it throws becomes one line with the place."""
    try:
        return load()
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = ""
        if trace is not None and "importlib" not in trace.tb_frame.f_code.co_filename:
            place = f" in {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        fix = "Import it in Python to see the whole traceback."
        if isinstance(error, ModuleNotFoundError):
            fix = "Modules are looked for in the current folder and where Python looks."
        raise ArgumentValueError(
            explain(
                _WHERE,
                expected=expected,
                got=f"{type(error).__name__}: {error}{place}",
                fix=fix,
            )
        ) from error


def _functions(owner: Any) -> list[str]:
    """List the public functions of a module or class that are its own."""
    home = owner.__name__ if inspect.ismodule(owner) else getattr(owner, "__module__", None)
    return sorted(
        name
        for name, value in getattr(owner, "__dict__", {}).items()
        if inspect.isfunction(value) and value.__module__ == home and not name.startswith("_")
    )


def _evaluate(text: str) -> Any:
    import jax
    import jax.numpy as jnp
    import numpy as np

    known = {"np": np, "jnp": jnp, "jax": jax, "pb": sys.modules["pybridge"]}
    known |= {"pi": np.pi, "inf": np.inf, "nan": np.nan}
    try:
        return _arrays(eval(text.strip(), {"__builtins__": {}, **known}))
    except Exception as error:
        raise ArgumentValueError(
            explain(
                f"{_WHERE} --args",
                expected="Python expressions with np, jnp, jax, pb, pi, inf and nan",
                got=f"{text!r}, which raises {type(error).__name__}: {error}",
                fix="""Quote each for the shell: --args 1.0 "[1.0, 2.0]" "jnp.ones((3,))".""",
            )
        ) from error


def _of_any_precision(leaf: Any) -> Any:
    """Return JAX's arrays as NumPy's, and integers as JAX's of the width that it has now.

    The function is called in single precision, too, where JAX warns of arrays of 64 bits.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    if not isinstance(leaf, jax.Array) or jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf
    array = np.asarray(leaf)
    return array if jnp.issubdtype(leaf.dtype, jnp.inexact) else jnp.asarray(array)


def _arrays(value: Any) -> Any:
    """Turn lists of numbers into arrays, inside of tuples and dicts as well."""
    import numpy as np

    if isinstance(value, dict):
        return {key: _arrays(part) for key, part in value.items()}
    if type(value) is tuple:
        return tuple(map(_arrays, value))
    if not isinstance(value, list):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return [_arrays(part) for part in value]
    return array if array.dtype.kind in "biufc" else [_arrays(part) for part in value]
