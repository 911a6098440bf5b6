"""Programs from elsewhere: no false error on forty that are right, sixty faults are found.

Every eighth runs in the quick suite, all of them run nightly.
"""

import jax
import pytest
from programs_right import programs as right
from programs_wrong import NOT_FOUND
from programs_wrong import programs as wrong

from pybridge.consistency import check

EVERY = 8
# As programs run elsewhere, not as this project's own tests do.
pytestmark = pytest.mark.filterwarnings("ignore")
PEERS = ("equinox", "flax", "optax")


def cases(found):
    """Mark what takes long as a whole."""
    return list(_marked(found))


def _marked(found):
    for number, (name, *rest) in enumerate(found):
        marks = [] if number % EVERY == 0 else [pytest.mark.nightly]
        marks += [pytest.mark.peers] if rest[0] in PEERS else []
        yield pytest.param(*rest, id=name, marks=marks)


@pytest.mark.parametrize(("package", "make"), cases(right()))
def test_a_right_program_has_no_error(package, make):
    if package is not None:
        pytest.importorskip(package)
    with jax.numpy_dtype_promotion("standard"):
        f, args = make()
        report = check(f, *args, backends=["jax"])
    assert [f.title for f in report.findings if f.severity == "error"] == []


@pytest.mark.parametrize(("kinds", "f", "args"), cases(wrong()))
def test_a_fault_is_found(kinds, f, args):
    with jax.numpy_dtype_promotion("standard"):
        report = check(f, *args, backends=["jax"])
    assert {finding.kind for finding in report.findings} & set(kinds), report.findings


def test_the_tables_are_complete():
    names = [name for name, *_ in right()]
    faults = [name for name, *_ in wrong()]
    assert len(set(names)) == len(names) >= 40
    assert len(set(faults)) == len(faults) >= 60
    assert set(NOT_FOUND) <= set(faults)
    assert all(NOT_FOUND.values())
