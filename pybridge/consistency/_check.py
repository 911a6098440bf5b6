"""`pb.check`: run a function under every AD system, and say where they disagree."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import jax

from .._backends import NAMES, Backend, row
from .._config import setting
from .._errors import ArgumentValueError, explain
from ..interop import JuliaFunction
from ..julia import prepare
from ._check_run import CheckRun
from .findings import Report
from .subject import Allowed, Subject, check_names, has_julia


def check(
    f: Callable[..., Any],
    *args: Any,
    backends: Sequence[str] | None = None,
    probes: Sequence[str] = ("given",),
    seed: int = 0,
    rtol: float = 0.0,
    atol: float = 0.0,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Run a function under every AD system and by differences, and report what differs.

    The function is run in float64 whatever the caller's setting, and its value in the caller's
    own precision too. Only floating-point leaves of the arguments are differentiated. A value
    that is not a single number is summed up with random weights, so that every output takes
    part. Up to 40 numbers are moved one by one; of more, random directions are compared, and the
    element is searched for where something differs.

    Args:
        f: a Python function that JAX can differentiate, or one from `pb.from_julia`.
        *args: its arguments: the point at which it is checked.
        backends: the AD systems to ask. None: all of them for a function from `pb.from_julia`; for
            a Python function JAX and, through `pb.lower`, those of Julia if there is a Julia on
            this machine (`PYBRIDGE_CHECK_BACKENDS` says otherwise). Julia's compiler then takes
            some seconds for each; `backends=["jax"]` answers at once. Julia's systems are asked
            for second order if they are named. Finite differences are always the reference.
        probes: the points: `"given"` always, and `"large"` and `"small"` (1000 times and a
            thousandth of the arguments), `"zeros"`, `"ties"` (all elements of a leaf equal) and
            `"random"` on request.
        seed: of the random directions, weights and points.
        rtol: derivatives may differ by this part of their size, whatever their accuracy is by
            differences: for functions that are known to be no more exact.
        atol: and by this much.
        progress: gets a line of text before each step.

    Returns:
        A `Report`. Its `findings` are sorted, the gravest first; `ok` says whether none is an
        error. At a kink, or where the function asks `within_gradient`, there are notes.

    Raises:
        ArgumentTypeError: `f` is not callable, or nothing in its arguments or its value is
            floating-point.
        ArgumentValueError: `f` raises at the given point, `probes` names none, `backends` is
            empty, or `rtol`, `atol` or `seed` is negative.
        UnknownBackendError: `backends` names no AD system.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> pb.check(lambda x: jnp.sin(x) ** 2, 0.5).ok
        True
        >>> report = pb.check(jnp.abs, 0.0)
        >>> [(finding.kind, finding.severity) for finding in report.findings]
        [('kink', 'note')]

    Differences are extrapolated after Richardson and Ridders (Advances in Engineering Software
    4, 1982). There is no twin in Julia: Julia functions are checked from here.
    """
    say = progress or (lambda text: None)
    chosen = check_names(probes)
    if not isinstance(seed, Integral) or seed < 0:
        raise ArgumentValueError(
            explain(
                "pb.check",
                expected="an integer of at least 0 as `seed`",
                got=repr(seed),
                fix="Leave it out for 0.",
            )
        )
    allowed = Allowed(rtol, atol)
    rows = backends_for(f, backends)
    say("calling the function")
    # With these settings JAX raises at the first number that is not finite.
    with warnings.catch_warnings(), jax.debug_nans(False), jax.debug_infs(False):
        # As `.at[...].set(...)` does in double precision; in the caller's own it need not.
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        run = CheckRun(Subject(f, args), rows, seed, say, backends is not None, allowed)
        return run.report(chosen)


def backends_for(f: Any, names: Sequence[str] | None) -> tuple[Backend, ...]:
    """Find the systems that can differentiate the function, absent ones with the reason."""
    if isinstance(names, str):
        names = (names,)
    asked = names is not None
    if names is None:
        names = NAMES if isinstance(f, JuliaFunction) else _present()
    elif not names:
        raise ArgumentValueError(
            explain(
                "pb.check",
                expected="at least one AD system",
                got="backends without any",
                fix="Name some, or leave backends out for all of them. Finite differences are "
                "always the reference.",
            )
        )
    return tuple(prepare(name, asked=asked) for name in dict.fromkeys((*names, "finite")))


def _present() -> Sequence[str]:
    """Name the systems that a Python function is checked with where none are named."""
    setting_name = "PYBRIDGE_CHECK_BACKENDS"
    chosen = setting(setting_name).value
    if isinstance(chosen, str):
        names = [name.strip() for name in chosen.split(",")]
        return [row(name, argument=setting_name).name for name in names]
    # Nothing is downloaded for a check.
    found = has_julia()
    return [name for name in NAMES if found or row(name).language == "python"]
