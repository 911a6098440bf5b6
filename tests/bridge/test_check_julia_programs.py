"""Programs in Julia: no false error on those that are right, and every fault is found."""

import pytest
from bridge_helpers import without_mooncake_by_day
from julia_programs import KNOWN, right, wrong
from quick import by_day

import pybridge as pb
from pybridge.consistency import check

RIGHT = {name: (source, args) for name, source, *args in right()}
WRONG = {name: rest for name, *rest in wrong()}
EVERY = 6


@pytest.mark.parametrize("name", by_day(RIGHT, [*RIGHT][::EVERY]))
def test_a_right_program_has_no_error(name):
    source, args = RIGHT[name]
    report = check(pb.from_julia(source), *args, backends=without_mooncake_by_day())
    known, _ = KNOWN.get(name, ("", ""))
    errors = [f for f in report.findings if f.severity == "error" and f.systems != (known,)]
    assert [f.title for f in errors] == []


@pytest.mark.parametrize("name", by_day(WRONG, [*WRONG][::EVERY]))
def test_a_fault_is_found(name):
    kinds, said, source, *args = WRONG[name]
    report = check(pb.from_julia(source), *args, backends=without_mooncake_by_day())
    findings = report.of_kind(*kinds)
    assert findings
    if isinstance(said, int):
        assert said in [f.location.line for f in findings if f.location is not None]
    elif said is not None:
        assert any(said in f.advice for f in findings)


def test_the_tables_are_complete():
    names, faults = [name for name, *_ in right()], [name for name, *_ in wrong()]
    assert len(set(names)) == len(names) >= 20
    assert len(set(faults)) == len(faults) >= 25
    assert set(KNOWN) <= set(names)
