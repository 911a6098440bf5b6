"""What the tests of Julia functions inside JAX share."""

from __future__ import annotations

import functools
import itertools
import os

import jax
import numpy as np
from quick import LONG

import pybridge as pb
from pybridge._backends import TABLE
from pybridge.julia._session import session

# Julia's AD systems, by what the table says of them; those that are not run yet if asked for.
_EXPERIMENTAL = (False, True) if os.environ.get("PYBRIDGE_TEST_EXPERIMENTAL") else (False,)
ROWS = [s for s in TABLE if s.language == "julia" and s.experimental in _EXPERIMENTAL]
SYSTEMS = tuple(s.name for s in ROWS)
REVERSE = tuple(s.name for s in ROWS if "reverse" in s.modes)
REVERSE_ONLY = tuple(s.name for s in ROWS if s.modes == ("reverse",))
NO_FORWARD = tuple(s.name for s in ROWS if "forward" not in s.modes)
BY_VALUE = tuple(s.name for s in ROWS if s.detection == "value")


def without_mooncake_by_day():
    """List the systems for `pb.check`; in the long run None, which is all.

    To derive a function's second derivatives takes Mooncake ten seconds and more, and the others
    less than one. By day one function is checked under all systems, in test_check_julia.py.
    """
    if LONG in os.environ:
        return None
    return ["jax", *(name for name in SYSTEMS if name != "mooncake")]


@functools.cache
def julia(source, ad="zygote", **options):
    """Make a bridged function once: Julia compiles for every new one."""
    return pb.from_julia(source, ad=ad, **options)


def same(got, want, rtol=1e-9, atol=1e-11):
    """Compare two trees: structure, shapes, dtypes and values."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


_numbers = itertools.count()


def counted(source, system=None):
    """Return source of the same function that counts its calls, and a function to read that.

    The counter lives in Julia's `Main`, since every source has a module of its own. Reading
    sets it back to zero. Mooncake does not read ChainRules and cannot see through an atomic
    operation: for `system="mooncake"` it is told that counting has no derivative.
    """
    number = next(_numbers)
    counter, count = f"COUNTER_{number}", f"count_{number}"
    read = pb.from_julia(
        f"begin Core.eval(Main, :(const {counter} = Threads.Atomic{{Int}}(0); "
        f"{count}() = (Threads.atomic_add!({counter}, 1); nothing))); "
        f"x -> Threads.atomic_xchg!(Main.{counter}, 0) end"
    )
    read(1.0)
    if system == "mooncake":
        session().require("Mooncake")
        julia(f"""begin
            mooncake = only(m for (id, m) in Base.loaded_modules if id.name == "Mooncake")
            Core.eval(mooncake, :(@zero_adjoint MinimalCtx Tuple{{typeof(Main.{count})}}))
            x -> x
        end""")(1.0)
    ignored = f"ChainRulesCore.ignore_derivatives(() -> Main.{count}())"
    called = f"Main.{count}()" if system == "mooncake" else ignored
    return f"let inner = {source}; (xs...) -> ({called}; inner(xs...)) end", lambda: int(read(1.0))
