"""The detectors, in the order in which they run: a later one sees what those before it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..findings import Finding, SlopeCurve
from ._context import Context, Detector
from ._failures import detect_failures
from ._julia_functions import explain_in_julia
from ._non_finite import detect_non_finite
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
    detect_other_values,
    detect_non_finite,
    detect_zero_gradients,
    detect_wrong_derivatives,
    detect_wrong_second_order,
)
AFTER_EACH_POINT: tuple[Detector, ...] = (detect_zero_representations, detect_out_of_bounds)
AT_THE_GIVEN_POINT: tuple[Detector, ...] = (detect_lost_digits, detect_own_precision)


def detect_at_point(context: Context) -> tuple[list[Finding], list[SlopeCurve]]:
    """Run the detectors that look at one point.

    Returns:
        The findings, and curves to draw.
    """
    asked = run_detectors((detect_mode_dependence,), context)[0]
    findings, curves = run_detectors(AT_EACH_POINT, context)
    if context.point.subject.is_julia:
        findings = explain_in_julia(findings, context.point)
    rest, _ = run_detectors(AFTER_EACH_POINT, replace(context, findings=tuple(findings)))
    return [*asked, *findings, *rest], curves


def detect_once(context: Context) -> list[Finding]:
    """Run the detectors that look at the given point when all points have been looked at."""
    findings, _ = run_detectors(AT_THE_GIVEN_POINT, context)
    return findings


def run_detectors(
    detectors: Sequence[Detector], context: Context
) -> tuple[list[Finding], list[SlopeCurve]]:
    """Run detectors one after the other; each sees the findings of the context and of those before.

    Returns:
        The findings of these detectors, and curves to draw.
    """
    findings: list[Finding] = []
    curves: list[SlopeCurve] = []
    for detect in detectors:
        seen = replace(context, findings=(*context.findings, *findings))
        for found in detect(seen):
            if isinstance(found, Finding):
                findings.append(found)
            else:
                curves.append(found)
    return findings, curves
