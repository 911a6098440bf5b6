"""What makes the quick run quick: fewer cases and examples, and a compiler in a hurry."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

# Half of the time that XLA takes for a small program goes into its newer emitters, where it has
# older ones, too.
_HASTE = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
JULIA_OPTIMIZE = "PYTHON_JULIACALL_OPTIMIZE"  # juliacall's name for Julia's -O
LONG = "PYBRIDGE_LONG_TESTS"  # an environment variable, which processes of a run share


def examples(count: int) -> int:
    """Return how many examples or rounds a test takes: all of `count` in the long run.

    A test that is no property, and so takes fewer by day, has the marker `both`.
    """
    return count if LONG in os.environ else max(count // 4, 4)


def seconds(count: int) -> int:
    """Return for how long threads go on that had their rounds: `count` in the long run."""
    return count if LONG in os.environ else 1


def combined(*choices: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combine all choices in the long run; in the quick one, as few as have each of them."""
    lists = [list(choice) for choice in choices]
    if LONG in os.environ:
        return list(itertools.product(*lists))
    turns = range(max(map(len, lists)))
    return [tuple(choice[i % len(choice)] for choice in lists) for i in turns]


def by_day(cases: Iterable[Any], day: Iterable[Any]) -> list[Any]:
    """Mark those of a test's cases that are not among `day` for the long run.

    A case is a value, or a tuple of the values of several parameters.
    """
    day = list(day)
    night = pytest.mark.nightly
    return [
        case
        if case in day
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=night)
        for case in cases
    ]


def compile_in_haste() -> None:
    """Have XLA and Julia compile without optimising: most of a run is compiling small programs.

    Must be called before JAX starts its backends, and Julia. The long run compiles as users do.
    """
    os.environ.setdefault(JULIA_OPTIMIZE, "0")
    os.environ.setdefault("PYBRIDGE_SYSIMAGE", "off")  # it was compiled as users compile
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    if "jax" in sys.modules:  # as where a folder's conftest.py was loaded before
        sys.modules["jax"].config.update("jax_disable_most_optimizations", True)
    more = [flag for flag in map(_flag, hasty_options().items()) if flag not in _flags()]
    os.environ["XLA_FLAGS"] = " ".join([*_flags(), *more])


@contextlib.contextmanager
def one_mlir_context() -> Iterator[None]:
    """Have JAX lower programs in one MLIR context, and not make one for each.

    Making one is a large part of what it takes to lower a small program. They are made for several
    threads. Does nothing in the long run, and where JAX has no such function, which is no part of
    its interface.
    """
    from jax._src.interpreters import mlir

    make = getattr(mlir, "make_ir_context", None)
    if make is None or LONG in os.environ:
        yield
        return
    shared = functools.cache(make)
    # What is lowered within another program's lowering must not end up in that program.
    mlir.make_ir_context = lambda: make() if _is_lowering() else shared()
    try:
        yield
    finally:
        mlir.make_ir_context = make


def _is_lowering() -> bool:
    from jaxlib.mlir import ir

    try:
        return ir.Context.current is not None
    except ValueError:  # older ones raise where there is none
        return False


@functools.cache
def hasty_options() -> dict[str, Any]:
    """Return the options with which XLA compiles small programs sooner, as far as it has them."""
    return dict(filter(_xla_takes, _HASTE.items()))


def _flag(option: tuple[str, Any]) -> str:
    name, value = option
    return f"--{name}={str(value).lower()}"


def _xla_takes(option: tuple[str, Any]) -> bool:
    """Ask XLA in a process of its own, for it ends one that has a flag it does not know."""
    flag = _flag(option)
    if flag in _flags():  # the workers of a run have it from the process that started it
        return True
    parse = "from jaxlib import xla_client; xla_client.CompileOptions()"
    env = {**os.environ, "XLA_FLAGS": flag}
    done = subprocess.run([sys.executable, "-c", parse], env=env, capture_output=True)
    return done.returncode == 0


def _flags() -> list[str]:
    return os.environ.get("XLA_FLAGS", "").split()


def left_for_the_night(items: Iterable[Any]) -> list[Any]:
    """Choose the cases that only the long run takes: those that combine what others have.

    A test with several parameters has a case for each combination of their values. The quick run
    takes, for each test, cases that have every value of every parameter (each-choice coverage:
    Ammann and Offutt, Introduction to Software Testing, 6.2), as few as a greedy cover finds. So a
    test with one parameter, or a list of cases that is written out, loses none.

    Args:
        items: collected tests, without those of the long run.

    Returns:
        The cases to leave out of the quick run.
    """
    tests: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            tests[item.path, item.cls, item.originalname].append(item)
    return [case for cases in tests.values() for case in _beyond_cover(cases)]


def _beyond_cover(cases: list[Any]) -> list[Any]:
    values = [_values(case) for case in cases]
    missing, left = set().union(*values), list(range(len(cases)))
    while missing:
        # The last of equals: `maybe_jit` has jit last, which compiles one program and not many.
        best = max(reversed(left), key=lambda i: len(values[i] & missing))
        missing -= values[best]
        left.remove(best)
    return [cases[i] for i in left]


def _values(case: Any) -> set[tuple[Any, ...]]:
    """List a case's values: one for each fixture, and one for each list of cases it comes from."""
    params = case.callspec.params
    marked = [mark.args[0] for mark in case.iter_markers("parametrize")]
    together = [re.split(r"[, ]+", m) if isinstance(m, str) else list(m) for m in marked]
    alone = [[name] for name in params if not any(name in names for names in together)]
    # Those of one list are the same objects.
    return {(tuple(names), *(id(params[name]) for name in names)) for names in together + alone}
