"""The suites: conventions, and every function of other libraries."""

import jax
import numpy as np
import pytest

from pybridge.consistency import load_scenarios, prepare, run_scenarios, to_html
from pybridge.consistency.report import notes
from pybridge.consistency.suites import (
    SUITES,
    LibraryCase,
    libraries,
    library_cases,
    run_cases,
    select_cases,
)
from pybridge.finite import double_precision

SYSTEMS = [prepare("jax"), prepare("finite")]


@pytest.mark.nightly
def test_conventions_of_jax_are_as_documented():
    run = run_scenarios(load_scenarios("conventions"), SYSTEMS)
    assert run.ok, [note for note in notes(run) if note.status in ("wrong", "error")]
    assert not any(answer.surprises for answer in run.answers.values())


def test_finite_differences_see_both_sides_of_every_kink():
    kinks = [s for s in load_scenarios("conventions") if s.subdifferential is not None]
    assert len(kinks) > 20
    run = run_scenarios(kinks, SYSTEMS[1:])
    assert run.counts() == {"convention": len(kinks)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of functions that will go away
@pytest.mark.parametrize(
    "library",
    [
        pytest.param("jax.nn"),
        pytest.param("jax.scipy.special", marks=pytest.mark.nightly),
        pytest.param("optax.losses", marks=[pytest.mark.nightly, pytest.mark.peers("optax")]),
    ],
)
def test_every_function_of_a_library_gets_arguments_that_suit_it(library):
    asked = 0
    with double_precision():
        for case in library_cases(library):
            if case.reason:
                continue
            asked += 1
            value = jax.tree.leaves(case.function(*case.args))
            assert all(np.isfinite(np.asarray(leaf)).all() for leaf in value), case.name
    assert asked > 20


def test_every_library_has_its_test():
    (mark,) = test_every_function_of_a_library_gets_arguments_that_suit_it.pytestmark[:1]
    assert {param.values[0] for param in mark.args[1]} == set(libraries())


def test_what_is_not_asked_is_listed():
    cases = [LibraryCase("lib.odd", reason="its argument is an integer")]
    result = run_cases(cases, SYSTEMS, lambda text: None, julia=False)
    assert result.refused == {"lib.odd": "its argument is an integer"}
    assert "Not asked: lib.odd: its argument is an integer." in result.to_markdown()


def test_a_function_that_raises_is_listed():
    def broken(x):
        raise ValueError("no")

    result = run_cases(
        [LibraryCase("lib.f", broken, (np.ones(2),))], SYSTEMS, lambda text: None, julia=False
    )
    assert "it failed" in result.refused["lib.f"]


def test_a_wrong_rule_in_a_library_is_an_error():
    @jax.custom_jvp
    def wrong(x):
        return x**2

    wrong.defjvp(lambda xs, ts: (wrong(*xs), xs[0] * ts[0]))
    cases = [LibraryCase("lib.f", wrong, (np.array([1.0, 2.0]),))]
    result = run_cases(cases, SYSTEMS, lambda text: None, julia=False)
    assert not result.ok
    assert "lib.f" in result.to_markdown() and "lib.f" in to_html(result)
    assert '"ok": false' in result.to_json()


def test_kinks_of_a_library_are_notes(capsys):
    cases = select_cases("jax.nn", ["relu6", "softplus"])
    assert [case.name for case in cases] == ["jax.nn.relu6", "jax.nn.softplus"]
    result = run_cases(cases, SYSTEMS, lambda text: None, julia=False)
    assert result.ok
    kinds = {finding.kind for finding in result.reports["jax.nn.relu6"].findings}
    assert kinds == {"kink"}
    assert not result.reports["jax.nn.softplus"].findings


def test_an_unknown_function_is_an_error_that_lists_the_others():
    with pytest.raises(ValueError, match=r"jax\.nn\.relu6"):
        select_cases("jax.nn", ["nothing"])


def test_the_suites_have_different_cases():
    assert {"scenarios", "conventions", "jax.nn", "nnlib"} <= SUITES.keys()
    names = [case.name for case in SUITES["conventions"].select(None)]
    assert len(set(names)) == len(names) > 60
