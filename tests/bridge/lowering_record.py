"""Notes of what the tests of lowered programs saw, for the table in the documentation.

With `--lowering-table PATH` each test that asks for the fixture `saw` appends a line of JSON to a
file: which programs it ran, their primitives, under which system, and how it ended. The file is
written as the tests run, so nothing is lost if one of them ends the process.
`docs/lowering_table.py` makes the table.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun

from pybridge.jaxprs import inner_jaxprs
from pybridge.lowering._moving import inner_flags, moving_variables

OPTION = "lowering_table"
PROPERTY = "lowering"


def differentiated(closed, arguments) -> set[str]:
    """Name the primitives of a program that a derivative passes or is stopped by."""
    found = set()
    carriers = moving_variables(closed, tuple(arguments))
    for eqn in closed.jaxpr.eqns:
        flags = tuple(not isinstance(a, Literal) and a in carriers for a in eqn.invars)
        if not any(flags):
            continue
        if any(jnp.issubdtype(v.aval.dtype, np.inexact) for v in eqn.outvars):
            found.add(eqn.primitive.name)
        given = inner_flags(eqn, flags)
        for inner in inner_jaxprs(eqn):
            inexact = [jnp.issubdtype(aval.dtype, np.inexact) for aval in inner.in_avals]
            fits = len(given) == len(inexact)
            found |= differentiated(inner, given if fits else inexact)
    return found


def described(lowered) -> dict:
    """Say which primitives a lowered program has, and which of them a derivative passes."""
    inexact = [jnp.issubdtype(aval.dtype, np.inexact) for aval in lowered.jaxpr.in_avals]
    return {
        "primitives": list(lowered.primitives),
        "differentiated": sorted(differentiated(lowered.jaxpr, inexact)),
        "derivable": derivable(lowered.jaxpr),
    }


def derivable(closed) -> bool:
    """Tell whether JAX itself can differentiate a program in reverse mode."""
    f = jaxpr_as_fun(closed)
    numbers = [n for n, a in enumerate(closed.in_avals) if jnp.issubdtype(a.dtype, np.inexact)]

    def pulled(*args):
        def of_numbers(*xs):
            given = dict(zip(numbers, xs, strict=True))
            return f(*(given.get(n, x) for n, x in enumerate(args)))

        out, pull = jax.vjp(of_numbers, *(args[n] for n in numbers))
        return pull([_cotangent(y) for y in out])

    try:
        jax.eval_shape(pulled, *closed.in_avals)
    except (NotImplementedError, ValueError):
        return False
    return True


def _cotangent(y):
    inexact = jnp.issubdtype(y.dtype, np.inexact)
    return jnp.ones_like(y) if inexact else np.zeros(y.shape, jax.dtypes.float0)


class Recorder:
    """A pytest plugin that writes the notes.

    Args:
        path: the file, which is begun anew.
    """

    def __init__(self, path: str):
        """Empty the file."""
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("", encoding="utf-8")

    def pytest_runtest_logreport(self, report):
        """Append a line for each note of a test that has run."""
        if report.when != "call" or report.skipped:
            return
        reason = "" if report.passed else _reason(report.longreprtext)
        with self._path.open("a", encoding="utf-8") as file:
            for name, note in report.user_properties:
                if name == PROPERTY:
                    file.write(json.dumps({**note, "passed": report.passed, "why": reason}) + "\n")


def _reason(text: str) -> str:
    """Take the first line of the error out of a failure's text."""
    errors = [line[2:].strip() for line in text.split("\n") if line.startswith("E  ")]
    return " ".join((errors or ["no message"])[0].split())[:160]
