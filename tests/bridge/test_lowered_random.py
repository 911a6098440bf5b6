"""Random programs in Julia against JAX: values, and gradients by each of Julia's AD systems.

40 programs in the ordinary tests, always the same; 10,000 with `-m nightly`, others each time:
PYBRIDGE_SEED is the seed that a failing test prints. Several programs make one Julia function, so
that they share calls and compilation; hypothesis reduces a failing list to one short program. By
night Julia compiles them, which takes hours; with `--interpret` besides, it interprets as by day.
"""

from __future__ import annotations

import os
import random

import hypothesis.strategies as st
import jax
import pytest
from bridge_helpers import SYSTEMS
from hypothesis import HealthCheck, given, seed, settings
from lowering_checks import (
    Judge,
    check_slope,
    gradients,
    jax_results,
    julia_gradients,
    together,
    values,
)
from lowering_programs import UNLIKE, WILD, programs
from quick import LONG, examples

from pybridge.lowering import lower

BATCH = 10
LISTS = examples(16)
GRADIENT_BATCH = 3
GRADIENT_LISTS = 2 if LONG in os.environ else 1

# Of the nightly run, which draws other programs each time.
SEED = int(os.environ.get("PYBRIDGE_SEED") or random.SystemRandom().randrange(2**32))
PARTS = 20


def lists(n, **options):
    return st.lists(programs(**options), min_size=n, max_size=n, unique_by=lambda p: p.source)


def check_values(batch, judge):
    f, args = together(batch, lambda program: program.function())
    wants = jax_results(batch, values)
    for program, got, want in zip(batch, lower(f, *args)(*args), wants, strict=True):
        judge.compare(program, got, want, values, "the value")


def check_gradients(batch, system, judge):
    wants = jax_results(batch, gradients)
    for program, got, want in zip(batch, julia_gradients(batch, system), wants, strict=True):
        judge.compare(program, got, want, gradients, f"{system}'s gradient")
        check_slope(program, got[1], system, judge)


def run(strategy, check, count, record_property, part=None):
    """Try lists of programs: always the same ones, or a part of tonight's."""
    judge = Judge()

    @settings(
        max_examples=count,
        derandomize=part is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def tried(batch):
        check(batch, judge)

    if part is not None:
        print(f"PYBRIDGE_SEED={SEED} draws these programs again")
        tried = seed(SEED + part)(tried)
    tried()
    jax.clear_caches()
    record_property("note", f"random programs: {dict(judge.counts)}")
    # A judge that lets all go would be none.
    decided = judge.counts["exact"] + judge.counts["rounded"]
    assert judge.counts["undecided"] <= 0.03 * decided + 1, judge.counts
    return judge.counts


@pytest.mark.both
def test_the_values_of_random_programs_are_jaxs(record_property):
    run(lists(BATCH), check_values, LISTS, record_property)


@pytest.mark.both
def test_the_gradients_of_random_programs_are_jaxs(compiling_system, record_property):
    def check(batch, judge):
        check_gradients(batch, compiling_system, judge)

    short = lists(GRADIENT_BATCH, longest=12, avoid=(WILD, UNLIKE))
    counts = run(short, check, GRADIENT_LISTS, record_property)
    assert counts["smooth"] > 0


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_values_of_many_random_programs_are_jaxs(part, record_property):
    count = 10_000 // BATCH // PARTS
    run(lists(BATCH, longest=30), check_values, count, record_property, part)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_gradients_of_many_random_programs_are_jaxs(system, part, record_property):
    def check(batch, judge):
        check_gradients(batch, system, judge)

    strategy = lists(GRADIENT_BATCH, shapes=None, longest=30, avoid=(WILD, UNLIKE))
    run(strategy, check, 60 // GRADIENT_BATCH, record_property, part)
