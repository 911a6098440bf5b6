"""The numbers that finite differences are tuned by, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Tolerances:
    """Steps, stopping rules and the limits between kinds of points.

    Lengths are in units of the length over which the curve may be expected to change, values in
    units of what it changes by over the first step.

    Attributes:
        first_step: the longest step. A power of two, which adds and divides without rounding. The
            error term that is left after `columns` columns of a central tableau is h**14, below
            machine epsilon from the second step on: longer steps need more columns, shorter ones
            have fewer digits (the rounding error is eps / h).
        levels: so many steps, each half of the one before, are one pass. Sixteen samples (both
            sides) are one compiled call that costs little more than a call for one.
        most_halvings: the end of all passes: 2**-112 of a first step of any size below 1e24 is
            less than `smallest_step`.
        fruitless_halvings: three passes on, rounding errors at the next step that are ten times
            as large as the largest error estimate end the search: no entry of the tableau can
            become better.
        smallest_step: the shortest step. There rounding errs by eps / h = 2e-7, and what a shorter
            step gives is not exact to `one_sided`.
        columns: of the tableau. Each takes one power of h from the error, see `first_step`; more
            would magnify rounding and find nothing.
        central: a two-sided derivative has converged when its error estimate is below this part of
            1 + its size: a hundredth of what the checker lets derivatives differ by (1e-8).
        one_sided: the same for one-sided derivatives, which tell what kind of point it is: a tenth
            of `kink`.
        kink: one-sided derivatives that are farther apart than this part of 1 + the two-sided one,
            and than `estimates` times their errors, are those of a kink. Differences of first
            order do not tell more apart: about sqrt(eps) with a factor for noise.
        estimates: how far an error estimate is trusted: it is the distance of two entries of the
            tableau (Ridders), which meets the order of magnitude.
        near: a length below this part of the first is looked at with steps of its own; the first
            pass goes down to 2**-levels itself.
        nearest: the length that is looked at where something is doubtful. An eighth of it, the
            first step, is an eighth of a period of sin(2 pi 1e6 t), the fastest wave that the
            checker's tests ask for.
        contradiction: estimates from long and from short steps whose distance is so many times
            their error estimates are not of one derivative: past a pole at 1e-8, or 3e6 waves
            away, long steps agree on a wrong number with a small estimate. The cube of
            `estimates`, since both sides and the choice of the best entry may each be lucky.
        diverging_halvings: a derivative has no bound when it moves the same way, by steps that do
            not shrink, over so many halvings: three decades of h.
        diverging_ratio: and that is what does not shrink. Differences of |x|**p move by
            2**(1 - p) times the move before; 0.97 is p = 1.04, and x log x has the ratio 1.
        diverging_rounding: and what moves by more than so many times rounding.
        jump: what remains of a difference at the smallest steps, of what there was at the first. A
            root x**p leaves (8e-9)**p: 0.02 for p = 0.21, so that fourth roots are none.
        jump_error: an error estimate above this knows no digit of a derivative whose first quotient
            is at most 8 in these units: what is divided by h does not shrink.
        ulps: a difference of fewer units in the last place, or of so many times the noise, is
            none: sums of 4096 terms in another order differ by so many.
        ulps_alone: the value at the point itself may be apart from both sides by so many, because
            it comes from a program of its own, whose loops may stop an iteration earlier.
        noise_lengths: the distances of samples that measure noise, and not binary fractions: those
            of a round number would be exact. The longest is short against the first step, the
            shortest is above the last digit of a one.
        noise_orders: of the differences that noise is measured by (Moré and Wild take up to 6).
        noise_floor: what is no larger than so many units in the last place of the value is
            rounding, and covered by eps.
        noise_margin: noise counts as so many standard deviations: 16 samples of normal noise stay
            within 8 for all practical purposes.
        noise_grain: so many units in the last place of a one, or of the value, can be the noise of
            what it is computed from, though it stands still over shorter distances: 1 - tanh(x).
        factors: of the first step, for second opinions. No two have a ratio near a power of two,
            so that the samples, and with them the truncation and rounding errors, are others.
        agreement: derivatives that are no farther apart than this part of their size agree: a
            hundred times `central`, and never less than `rounding` allows.
        agreement_second: the same for derivatives of gradients, ten times as much: a gradient
            takes up to five times the operations of its function (Griewank and Walther), and
            rounds as often.
        rounding: so many times eps**(2/3), the error of a central difference of second order with
            the best step, for numbers less exact than float64: trusted as `estimates` are.
        spread: estimates by `factors` that lie so many times their range around the median may
            all be wrong: the range of three normal numbers is 1.7 standard deviations, and five
            of them are the eight of `noise_margin`.
        steady: so many quotients in a row, each of twice the step, that are the same are no chance:
            those of rounding are halved from one to the next.
        steady_spread: they are the same up to this part: noise and curvature, which is what the
            closest steps that see anything leave, of a value with a hundred units of noise.
        lost: so many units in the last place of a value, or of a gradient, can be all that a
            derivative of it is made of, after cancellation: three digits. The 1 - y**2 of a tanh
            that is 1 is one last digit.
        steady_rate: by so many powers of two the rate of a smooth curve may change from a step to
            one of twice the length: half of what that of a jump changes by.
        resolution: what is so many roundings of the caller's arguments away is at the point for the
            caller: what these are compared with is rounded too, 0.1 in `abs(x - 0.1)`, after a few
            operations more.
        choice: what a system chooses at a kink may leave the interval between the one-sided
            derivatives by this part of them: ten times `kink`, by which these are known.
        disagreement: where the function has no derivative, answers of systems that are farther
            apart than this part of the largest are told: those of exact rules agree to eps, and
            `one_sided` is as much as anything is known there.
    """

    first_step: float = 2.0**-3
    levels: int = 8
    most_halvings: int = 112
    fruitless_halvings: int = 24
    smallest_step: float = 1e-9
    columns: int = 7
    central: float = 1e-10
    one_sided: float = 1e-6
    kink: float = 1e-5
    estimates: float = 10.0
    near: float = 2.0**-8
    nearest: float = 2.0**-20
    contradiction: float = 1e3
    diverging_halvings: int = 10
    diverging_ratio: float = 0.97
    diverging_rounding: float = 2.0
    jump: float = 0.02
    jump_error: float = 1e3
    ulps: float = 64.0
    steady: int = 3
    steady_spread: float = 0.02
    ulps_alone: float = 2.0**16
    noise_lengths: tuple[float, ...] = tuple(2.0**-k / np.pi for k in (12, 16, 20, 28))
    noise_orders: tuple[int, ...] = (4, 5, 6)
    noise_floor: float = 4.0
    noise_margin: float = 8.0
    noise_grain: float = 2.0**10
    factors: tuple[float, ...] = (1.0, 0.77, 0.59)
    agreement: float = 1e-8
    agreement_second: float = 1e-7
    rounding: float = 10.0
    spread: float = 5.0
    lost: float = 1e3
    steady_rate: float = 0.5
    resolution: float = 16.0
    choice: float = 1e-4
    disagreement: float = 1e-6

    @property
    def staircase(self) -> float:
        """The least number of last digits in a first step.

        What moves is rounded itself: with fewer, the shortest step of a pass would be less than
        `ulps` of them, and the samples a staircase.
        """
        return self.ulps * 2.0**self.levels

    def relative(self, eps: float, agreement: float) -> float:
        """By which part of their size derivatives of numbers with this rounding error may differ.

        Args:
            eps: the relative rounding error.
            agreement: `agreement` or `agreement_second`.
        """
        return max(agreement, self.rounding * eps ** (2 / 3))


TOLERANCES = Tolerances()
