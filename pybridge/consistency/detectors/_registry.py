"""The detectors, in the order in which they run: a later one sees what those before it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..findings import Finding, SlopeCurve, SystemAnswer
from ._context import Context, Detector
from ._failures import detect_failures
from ._julia_functions import explain_in_julia
from ._non_finite import detect_non_finite
from ._nonlinear_rules import detect_nonlinear_rules
from ._out_of_bounds import detect_out_of_bounds
from ._own_precision import detect_own_precision
from ._primal_values import detect_other_values
from ._second_order import detect_wrong_second_order
from ._within_gradient import detect_mode_dependence
from ._wrong_derivatives import detect_wrong_derivatives
from ._zero_gradients import detect_zero_gradients
from ._zero_representations import detect_zero_representations
from .precision import detect_lost_digits

AT_EACH_POINT: tuple[Detector, ...] = (
    detect_failures,
    detect_nonlinear_rules,
    detect_other_values,
    detect_non_finite,
    detect_zero_gradients,
    detect_wrong_derivatives,
    detect_wrong_second_order,
)
AFTER_EACH_POINT: tuple[Detector, ...] = (detect_zero_representations, detect_out_of_bounds)
AT_THE_GIVEN_POINT: tuple[Detector, ...] = (detect_lost_digits, detect_own_precision)


class Found(NamedTuple):
    """What detectors yield, by type."""

    findings: list[Finding]
    curves: list[SlopeCurve]
    answers: list[SystemAnswer]


def detect_at_point(context: Context) -> Found:
    """Run the detectors that look at one point."""
    asked = run_detectors((detect_mode_dependence,), context).findings
    found = run_detectors(AT_EACH_POINT, replace(context, findings=(*context.findings, *asked)))
    findings = found.findings
    if context.point.subject.is_julia:
        findings = explain_in_julia(findings, context.point)
    rest = run_detectors(AFTER_EACH_POINT, replace(context, findings=tuple(findings))).findings
    return found._replace(findings=[*asked, *findings, *rest])


def detect_once(context: Context) -> list[Finding]:
    """Run the detectors that look at the given point when all points have been looked at."""
    return run_detectors(AT_THE_GIVEN_POINT, context).findings


def run_detectors(detectors: Sequence[Detector], context: Context) -> Found:
    """Run detectors one after the other; each sees the findings of the context and of those before.

    Returns:
        What these detectors yield.
    """
    found = Found([], [], [])
    lists: dict[type, list[Any]] = {
        Finding: found.findings,
        SlopeCurve: found.curves,
        SystemAnswer: found.answers,
    }
    for detect in detectors:
        seen = replace(context, findings=(*context.findings, *found.findings))
        for part in detect(seen):
            lists[type(part)].append(part)
    return found
