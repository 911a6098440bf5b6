"""The scenario table: what is asked of every AD system, and what the answer should be."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from ._selection import select_by_name

# The fields of the table that are arrays.
_ARRAYS = ("value", "plain_value", "derivative")


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
        errors: the types of exception of which it is one, as Julia's versions differ; none where
            there is no exception.
        reason: why, in one sentence.
    """

    system: str
    kind: str
    reason: str
    mode: str | None = None
    value: np.ndarray | None = None
    plain_value: np.ndarray | None = None
    derivative: np.ndarray | None = None
    errors: tuple[str, ...] = ()


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
    """
    return _loaded(table)


@functools.cache
def _loaded(table: str) -> tuple[Scenario, ...]:
    file = resources.files("pybridge.consistency.suites").joinpath(f"{table}.toml")
    return parse_scenarios(file.read_text("utf-8"))


def parse_scenarios(text: str) -> tuple[Scenario, ...]:
    """Read scenarios.

    Args:
        text: TOML; `scenarios.toml` describes the fields.

    Returns:
        The scenarios in the order of the table.
    """
    return tuple(_scenario(**entry) for entry in tomllib.loads(text)["scenario"])


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


def _scenario(
    *,
    args: list[Any],
    known: Iterable[Any] = (),
    subdifferential: list[Any] | None = None,
    **fields: Any,
) -> Scenario:
    kink = None
    if subdifferential is not None:
        least, largest = map(_array, subdifferential)
        kink = least, largest
    return Scenario(
        args=tuple(_array(arg) if isinstance(arg, list) else float(arg) for arg in args),
        subdifferential=kink,
        known=tuple(each for entry in known for each in _known(**entry)),
        **_read({"plain_value": fields["value"], **fields}),
    )


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _known(*, system: str | list[str], answer: dict[str, Any], **fields: Any) -> Iterator[Known]:
    numbers = dict(answer)
    errors = tuple(_listed(numbers.pop("error", [])))
    for name in _listed(system):
        yield Known(system=name, errors=errors, **_read({**fields, **numbers}))


def _read(fields: dict[str, Any]) -> dict[str, Any]:
    """Make arrays of numbers, and take the line breaks off the ends of texts."""
    arrays = {name: _array(fields[name]) for name in _ARRAYS if name in fields}
    texts = {name: text.strip() for name, text in fields.items() if isinstance(text, str)}
    return fields | texts | arrays


def _array(numbers: Any) -> np.ndarray:
    return np.asarray(numbers, float)
