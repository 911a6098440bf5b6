"""The points and the directions in which a function is checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..._errors import ArgumentValueError, explain
from ..findings import Probe
from ._subject import Arrays, Subject, moved, named

PROBES = ("given", "large", "small", "zeros", "ties", "random")
_FACTORS = {"large": 1e3, "small": 1e-3}
_RANDOM_POINTS = 2

# Up to this many numbers each is moved on its own; beyond, random directions move all.
ELEMENTWISE = 40
_DIRECTIONS = 2

# Steps of differences begin at an eighth and end near this part of it: a function of numbers that
# are all smaller than this is not seen to change along a direction of length one.
_TINY = 2.0**-20


@dataclass(frozen=True, eq=False)
class Line:
    """A direction in which the arguments move; equal to itself alone.

    Attributes:
        vs: one array for each differentiated leaf.
        leaf: the number of the leaf that moves alone; None where several elements move.
        element: its element.
        scale: by how much that element moves.
    """

    vs: tuple[np.ndarray, ...]
    leaf: int | None = None
    element: tuple[int, ...] = ()
    scale: float = 1.0

    def at(self, xs: Arrays, t: float) -> tuple[np.ndarray, ...]:
        """Give the point at a distance along the line."""
        return moved(xs, self.vs, t)

    def smallest(self, xs: Arrays) -> float:
        """Find the smallest length that may matter, in units of the line.

        A number's own size may, the distance to a pole, and so may one, whatever its size. For a
        line in which many move this costs more than it tells, unless there is a doubt: `shortest`.
        """
        return 1.0 if self.leaf is None else self.shortest(xs)

    def shortest(self, xs: Arrays, unit: float = 1.0) -> float:
        """Find the smallest length that matters to any of the numbers that move.

        Args:
            xs: the point.
            unit: a length that matters whatever their sizes; inf for none.
        """
        # A zero among small numbers may matter over as little as these.
        scales = [np.where(x == 0, np.max(np.abs(x), initial=0.0), x) for x in xs]
        sizes, speeds = self._moving(scales)
        lengths = (np.minimum(sizes, unit) / speeds)[sizes > 0]
        return max(float(np.min(lengths, initial=1.0)), 1e-30)

    def blur(self, xs: Arrays) -> float:
        """Say by how many eps, in units of the line, rounding shifts a number that moves."""
        sizes, speeds = self._moving(xs)
        return float(np.max(sizes / speeds, initial=0.0))

    def _moving(self, xs: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """Give the sizes of the finite numbers that move, and how fast they do."""
        sizes, speeds = (np.concatenate([np.abs(np.ravel(p)) for p in ps]) for ps in (xs, self.vs))
        used = (speeds > 0) & np.isfinite(sizes)
        return sizes[used], speeds[used]


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Refuse probes that there are not; put the given point first."""
    if isinstance(names, str):
        names = (names,)
    for name in names:
        if name not in PROBES:
            raise ArgumentValueError(
                explain(
                    "pb.check",
                    expected=f"probes among {', '.join(map(repr, PROBES))}",
                    got=repr(name),
                    fix='probes=("given",) is the default.',
                )
            )
    return ("given", *(name for name in dict.fromkeys(names) if name != "given"))


def points(
    subject: Subject, names: Sequence[str], weights: dict[str, np.ndarray], seed: int
) -> Iterator[tuple[Probe, tuple[np.ndarray, ...]]]:
    """Yield the probes that were asked for, each with the leaves that it moves."""
    for name in names:
        for number in range(1, 1 + (_RANDOM_POINTS if name == "random" else 1)):
            rng = np.random.default_rng([seed, PROBES.index(name), number])
            xs = subject.at([_put(name, x, rng) for x in subject.point])
            direction = named(subject.paths, random_line(xs, rng).vs)
            title = f"random {number}" if name == "random" else name
            yield Probe(title, subject.args_at(xs), weights, direction), xs


def _put(name: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Put one leaf where a probe wants it."""
    if name == "zeros":
        return np.zeros_like(x)
    if name == "ties":
        return np.full_like(x, x.flat[0]) if x.size else x
    if name in _FACTORS:
        return x * _FACTORS[name]
    if name == "random":
        return np.asarray(_normal(x, rng), x.dtype)
    return x


def weights_for(subject: Subject, seed: int) -> dict[str, np.ndarray]:
    """Choose how much each output counts: 1 for a single number, else at random."""
    if subject.shapes == ((),) and subject.dtypes[0].kind != "c":
        return {subject.outputs[0]: np.ones(())}
    rng = np.random.default_rng([seed, len(PROBES)])
    sizes = []
    for shape, dtype in zip(subject.shapes, subject.dtypes, strict=True):
        size = rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
        turn = np.exp(2j * np.pi * rng.uniform(size=shape)) if dtype.kind == "c" else 1.0
        sizes.append(size * turn)
    return named(subject.outputs, sizes)


def count(xs: Arrays) -> int:
    """Count the real numbers in the leaves."""
    return sum(np.size(x) * (2 if np.iscomplexobj(x) else 1) for x in xs)


def random_line(xs: Arrays, rng: np.random.Generator) -> Line:
    """Choose a direction at random, of length about one where the arguments are about one.

    A leaf all of whose numbers are tiny moves by as little.
    """
    root = np.sqrt(max(count(xs), 1))
    vs = []
    for x in xs:
        largest = float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))
        size = largest if 0.0 < largest < _TINY else _size(x)
        vs.append(np.asarray(_normal(x, rng) * size / root, x.dtype))
    return Line(tuple(vs))


def _size(x: np.ndarray) -> np.ndarray:
    """Say by how much numbers move: by their own size, where that is a number above one."""
    size = np.abs(x)
    return np.where(np.isfinite(size), np.maximum(1.0, size), 1.0)


def _normal(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw numbers that are not close to 0, so that every element takes part."""
    z = np.asarray(rng.standard_normal(x.shape))
    z = z + 0.1 * np.sign(z)
    return z + 1j * rng.standard_normal(x.shape) if np.iscomplexobj(x) else z


def unit_line(xs: Arrays, leaf: int, element: tuple[int, ...], factor: complex = 1.0) -> Line:
    """Move one element, by its own size where that is above one."""
    vs = [np.zeros_like(x) for x in xs]
    scale = float(_size(xs[leaf][element]))
    vs[leaf][element] = scale * (factor if np.iscomplexobj(xs[leaf]) else 1.0)
    return Line(tuple(vs), leaf, element, scale)


def first_lines(xs: Arrays, rng: np.random.Generator) -> list[Line]:
    """Choose the directions for a point: each element, or some in which all move."""
    if count(xs) > ELEMENTWISE:
        return [random_line(xs, rng) for _ in range(_DIRECTIONS)]
    lines = []
    for leaf, x in enumerate(xs):
        for element in np.ndindex(np.shape(x)):
            lines.append(unit_line(xs, leaf, element))
            if np.iscomplexobj(x):
                lines.append(unit_line(xs, leaf, element, 1j))
    return lines


def halves(line: Line) -> tuple[Line, Line] | None:
    """Split a direction into two, each of which moves half of the elements."""
    places = [(leaf, k) for leaf, v in enumerate(line.vs) for k in np.flatnonzero(v)]
    if len(places) < 2:
        return None
    middle, parts = len(places) // 2, []
    for chosen in (places[:middle], places[middle:]):
        vs = [np.zeros_like(v) for v in line.vs]
        for leaf, k in chosen:
            vs[leaf].flat[k] = line.vs[leaf].flat[k]
        parts.append(Line(tuple(vs)))
    return parts[0], parts[1]
