"""The scenario table: what is asked of every AD system, and what the answer should be."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from ..._backends import NAMES
from ..._errors import ArgumentValueError, explain
from ._selection import select_by_name

KINDS = ("fails", "convention", "unsupported")
MODES = ("forward", "reverse")

_REQUIRED = {"name", "title", "group", "shows", "python", "julia", "args", "value"}
_OPTIONAL = {
    "thread",
    "plain_value",
    "derivative",
    "subdifferential",
    "tolerance",
    "known",
}


@dataclass(frozen=True)
class Known:
    """An answer that is not the expected one, as documented in the table.

    Attributes:
        system: the AD system.
        kind: `"fails"`, `"convention"` or `"unsupported"`.
        mode: the mode that gives this answer; None where every mode does.
        value: the value under differentiation that it gives; None where it is right.
        plain_value: the same for a plain call.
        derivative: the same for the derivative.
        error: the type of the exception; None where there is none.
        reason: why, in one sentence.
    """

    system: str
    kind: str
    reason: str
    mode: str | None = None
    value: np.ndarray | None = None
    plain_value: np.ndarray | None = None
    derivative: np.ndarray | None = None
    error: str | None = None


@dataclass(frozen=True)
class Scenario:
    """One hard case.

    Attributes:
        name: its short name, for the command line.
        title: a few words.
        group: the heading that it stands under.
        shows: the point of it, in one or two sentences.
        python: source that defines `f`; jax, jnp, np and pb are in scope.
        julia: source whose last value is the function.
        args: Python numbers and float64 arrays.
        value: the value while the function is differentiated.
        plain_value: the value of a plain call.
        derivative: of the value with respect to the first argument, in its shape; None at
            a kink.
        subdifferential: at a kink the least and the largest derivative, else None.
        thread: where users met it; may be empty.
        tolerance: relative, where the default is too strict.
        known: the documented answers that differ.
    """

    name: str
    title: str
    group: str
    shows: str
    python: str
    julia: str
    args: tuple[Any, ...]
    value: np.ndarray
    plain_value: np.ndarray
    derivative: np.ndarray | None = None
    subdifferential: tuple[np.ndarray, np.ndarray] | None = None
    thread: str = ""
    tolerance: float | None = None
    known: tuple[Known, ...] = ()

    def known_answer(self, system: str, mode: str) -> Known | None:
        """Find what is documented about a system in a mode."""
        for known in self.known:
            if known.system == system and known.mode in (None, mode):
                return known
        return None


def load_scenarios(table: str = "scenarios") -> tuple[Scenario, ...]:
    """Read a scenario table that comes with pybridge.

    Args:
        table: `"scenarios"`, hard cases, or `"conventions"`, what mathematics leaves open.

    Raises:
        ArgumentValueError: the table has an entry that means nothing.
    """
    return _table(table)


@functools.cache
def _table(name: str) -> tuple[Scenario, ...]:
    file = resources.files("pybridge.consistency.suites").joinpath(f"{name}.toml")
    return parse_scenarios(file.read_text("utf-8"))


def parse_scenarios(text: str) -> tuple[Scenario, ...]:
    """Read a scenario table, checking that every entry can mean something.

    Args:
        text: TOML; `scenarios.toml` describes the fields.

    Returns:
        The scenarios in the order of the table.

    Raises:
        ArgumentValueError: an entry lacks a field, has an unknown one, or contradicts
            itself.
    """
    scenarios = tuple(_scenario(entry) for entry in tomllib.loads(text)["scenario"])
    names = [scenario.name for scenario in scenarios]
    for name in names:
        _require(names.count(name) == 1, name, "unique names", "the same name twice")
    return scenarios


def select_scenarios(names: list[str] | None, table: str = "scenarios") -> tuple[Scenario, ...]:
    """Pick scenarios by name, in the order of the table.

    Args:
        names: names, or the beginnings of names (`cond` is all that start with it); None
            for all scenarios.
        table: as for `load_scenarios`.

    Raises:
        ArgumentValueError: a name fits none; the message lists all.
    """
    return select_by_name(load_scenarios(table), names, "scenario", "scenario")


def _scenario(entry: Mapping[str, Any]) -> Scenario:
    name = entry.get("name", "a scenario without a name")
    missing, unknown = _REQUIRED - entry.keys(), entry.keys() - _REQUIRED - _OPTIONAL
    _require(not missing, name, "all required fields", f"none for {sorted(missing)}")
    _require(not unknown, name, "known fields", f"also {sorted(unknown)}")
    args = tuple(_number(arg) for arg in entry["args"])
    shape = np.shape(args[0])
    derivative, interval = entry.get("derivative"), entry.get("subdifferential")
    _require(
        (derivative is None) != (interval is None),
        name,
        "either a derivative or a subdifferential",
        "both or neither",
    )
    if derivative is not None:
        derivative = _shaped(name, derivative, shape)
    if interval is not None:
        _require(len(interval) == 2, name, "two ends of a subdifferential", f"{interval}")
        low, high = (_shaped(name, end, shape) for end in interval)
        _require(bool(np.all(low <= high)), name, "the least derivative first", f"{interval}")
        interval = low, high
    value = np.asarray(entry["value"], float)
    return Scenario(
        name=name,
        title=entry["title"],
        group=entry["group"],
        shows=entry["shows"].strip(),
        python=entry["python"].strip(),
        julia=entry["julia"].strip(),
        args=args,
        value=value,
        plain_value=np.asarray(entry.get("plain_value", value), float),
        derivative=derivative,
        subdifferential=interval,
        thread=entry.get("thread", ""),
        tolerance=entry.get("tolerance"),
        known=tuple(
            _known(name, known, system, shape)
            for known in entry.get("known", ())
            for system in _systems(known)
        ),
    )


def _known(name: str, entry: Mapping[str, Any], system: str, shape: Any) -> Known:
    answer = entry.get("answer", {})
    checks = {
        "a known AD system": system in NAMES,
        f"a kind in {KINDS}": entry.get("kind") in KINDS,
        f"a mode in {MODES}": entry.get("mode", "forward") in MODES,
        "a reason": bool(entry.get("reason")),
        "an answer": bool(answer)
        and answer.keys() <= {"value", "plain_value", "derivative", "error"},
    }
    for expected, holds in checks.items():
        _require(holds, name, f"{expected} in each known answer", repr(dict(entry)))
    derivative = answer.get("derivative")
    return Known(
        system=system,
        kind=entry["kind"],
        reason=entry["reason"].strip(),
        mode=entry.get("mode"),
        value=_array(answer.get("value")),
        plain_value=_array(answer.get("plain_value")),
        derivative=None if derivative is None else _shaped(name, derivative, shape),
        error=answer.get("error"),
    )


def _array(numbers: Any) -> np.ndarray | None:
    return None if numbers is None else np.asarray(numbers, float)


def _systems(entry: Mapping[str, Any]) -> list[str]:
    system = entry.get("system", "")
    return system if isinstance(system, list) else [system]


def _number(arg: Any) -> Any:
    return np.asarray(arg, float) if isinstance(arg, list) else float(arg)


def _shaped(name: str, numbers: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(numbers, float)
    _require(array.shape == shape, name, f"a derivative of shape {shape}", f"{array.shape}")
    return array


def _require(holds: bool, name: str, expected: str, got: str) -> None:
    if not holds:
        raise ArgumentValueError(
            explain(
                f"scenario {name!r}",
                expected=expected,
                got=got,
                fix="scenarios.toml describes the fields.",
            )
        )
