"""A function around a kink as a drawing: both one-sided derivatives, and what each system chose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape

import numpy as np

from .._wording import join
from ..findings import SlopeCurve
from ._numbers import size

Scale = Callable[[float], float]

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 420, 240, 52, 34, 10
_PLOT = (_WIDTH - _LEFT - 8, _HEIGHT - _BELOW - _ABOVE)

# How far to both sides a system's line goes, of the plot's half width.
_REACH = 0.55

# From this derivative on, of the plot's own, a line is upright.
_UPRIGHT = 1e6

# The style sheet has this many colours for choices.
_COLOURS = 5


def curve_html(curve: SlopeCurve) -> str:
    """Draw a curve as inline SVG, with its numbers as a list below.

    Systems with the same derivative share a line. One that is infinite is upright; one that is NaN
    is only listed.
    """
    groups = _groups(curve)
    items = [
        ("curve", "the function"),
        ("left-derivative", f"derivative from the left: {size(curve.left)}"),
        ("right-derivative", f"derivative from the right: {size(curve.right)}"),
    ]
    for number, (derivative, names) in enumerate(groups):
        items.append((f"choice c{number % _COLOURS}", f"{join(names)}: {_told(curve, derivative)}"))
    legend = "".join(
        f'<li><svg class="key" viewBox="0 0 28 10" aria-hidden="true">'
        f'<line class="{look}" x1="1" x2="27" y1="5" y2="5" /></svg> {escape(text)}</li>'
        for look, text in items
    )
    label = "; ".join(text for _, text in items)
    return (
        f'<figure class="kink">{_svg(curve, groups, label)}'
        f'<figcaption><code>{escape(where(curve))}</code><ul class="keys">{legend}</ul>'
        "</figcaption></figure>"
    )


def where(curve: SlopeCurve) -> str:
    """Write the element that moves: `args[0][1, 2]`."""
    index = f"[{', '.join(map(str, curve.element))}]" if curve.element else ""
    return f"{curve.argument}{index}"


def _groups(curve: SlopeCurve) -> list[tuple[float, list[str]]]:
    """Put systems together whose derivatives look the same."""
    found: dict[str, tuple[float, list[str]]] = {}
    for name, derivative in curve.choices.items():
        found.setdefault(f"{derivative:.6g}", (derivative, []))[1].append(name)
    return list(found.values())


def _told(curve: SlopeCurve, derivative: float) -> str:
    """Say what a choice is, and whether it lies between the one-sided derivatives."""
    if math.isnan(derivative):
        return "NaN, which cannot be drawn"
    low, high = sorted((curve.left, curve.right))
    slack = 1e-6 * (1 + max(map(abs, filter(math.isfinite, (low, high))), default=0.0))
    if math.isnan(low) or math.isnan(high) or low - slack <= derivative <= high + slack:
        return size(derivative)
    return f"{size(derivative)}, not between the two"


def _svg(curve: SlopeCurve, groups: list[tuple[float, list[str]]], label: str) -> str:
    steps, values = np.asarray(curve.steps, float), np.asarray(curve.values, float)
    middle = float(values[np.argmin(np.abs(steps))])
    low, high = _range(values)
    first, last = float(steps[0]), float(steps[-1])
    width, height = _PLOT

    def x(step: float) -> float:
        return (step - first) / ((last - first) or 1.0) * width

    def y(value: float) -> float:
        return (high - value) / (high - low) * height

    def straight(look: str, derivative: float, begin: float, end: float) -> str:
        if math.isnan(derivative) or not math.isfinite(middle):
            return ""
        if abs(derivative) * (last - first) > _UPRIGHT * (high - low):
            top, bottom = (0, height) if begin < 0 < end else (0, y(middle))
            if (begin >= 0 and derivative < 0) or (end <= 0 and derivative > 0):
                top, bottom = y(middle), height
            ends = x(0), top, x(0), bottom
        else:
            ends = x(begin), y(middle + derivative * begin), x(end), y(middle + derivative * end)
        x1, y1, x2, y2 = (f"{end:.1f}" for end in ends)
        return f'<line class="{look}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" />'

    lines = [_path(x, y, steps, values)]
    lines.append(straight("left-derivative", curve.left, first, 0.0))
    lines.append(straight("right-derivative", curve.right, 0.0, last))
    for number, (derivative, _) in enumerate(groups):
        look = f"choice c{number % _COLOURS}"
        lines.append(straight(look, derivative, first * _REACH, last * _REACH))
    if math.isfinite(middle):
        lines.append(f'<circle class="point" cx="{x(0):.1f}" cy="{y(middle):.1f}" r="3.5" />')
    # The inner picture cuts off what leaves it.
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">'
        f'<rect class="frame" x="{_LEFT}" y="{_ABOVE}" width="{width}" height="{height}" />'
        f'<line class="axis" x1="{_LEFT + x(0):.1f}" x2="{_LEFT + x(0):.1f}" y1="{_ABOVE}" '
        f'y2="{_ABOVE + height}" />'
        f'<svg x="{_LEFT}" y="{_ABOVE}" width="{width}" height="{height}">{"".join(lines)}</svg>'
        f"{_ticks(first, last, x(0), low, high)}</svg>"
    )


def _range(values: np.ndarray) -> tuple[float, float]:
    """Choose the lowest and the highest value shown."""
    known = np.clip(values[np.isfinite(values)], -1e300, 1e300)
    if not known.size:
        return -1.0, 1.0
    low, high = float(known.min()), float(known.max())
    room = 0.12 * (high - low) or 0.5 * abs(high) or 1.0
    return low - room, high + room


def _path(x: Scale, y: Scale, steps: Iterable[float], values: Iterable[float]) -> str:
    """Draw the function; where it is not finite the line is interrupted."""
    parts, pen = [], "M"
    for step, value in zip(steps, values, strict=True):
        if math.isfinite(value):
            parts.append(f"{pen}{x(step):.1f} {y(value):.1f}")
        pen = "L" if math.isfinite(value) else "M"
    return f'<path class="curve" d="{" ".join(parts)}" />'


def _ticks(first: float, last: float, zero: float, low: float, high: float) -> str:
    """Write the ends of both axes and the point between."""
    width, height = _PLOT
    below = _ABOVE + height + 16
    marks = [
        (_LEFT, below, "start", f"{first:+.2g}"),
        (_LEFT + zero, below, "middle", "0"),
        (_LEFT + width, below, "end", f"{last:+.2g}"),
        (_LEFT - 6, _ABOVE + 10, "end", f"{high:.3g}"),
        (_LEFT - 6, _ABOVE + height, "end", f"{low:.3g}"),
    ]
    return "".join(
        f'<text x="{left:.1f}" y="{top}" text-anchor="{anchor}">{text}</text>'
        for left, top, anchor, text in marks
    )
