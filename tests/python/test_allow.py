"""Known gaps of `assert_consistent`: what they let pass, and when they are gone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pybridge as pb
from pybridge._backends import NAMES, row
from pybridge.consistency import Allow, ConsistencyError, assert_consistent
from pybridge.consistency.findings import KINDS, SEVERITIES, Finding, Report
from pybridge.consistency.testing import _assert, describe_failure, read_gaps
from pybridge.jaxprs import Location


def report_of(*findings, asked=NAMES, absent=()):
    rows = tuple(replace(row(name), available=name not in absent) for name in asked)
    return Report("loss", rows, (), (), findings)


def verdict(*findings, allow=(), strict=False, partial=False, **options):
    return describe_failure(
        report_of(*findings, **options), read_gaps(allow), strict=strict, partial=partial
    )


def finding(kind="minority", severity="error", systems=(), **rest):
    return Finding(kind, severity, "the title", systems=systems, **rest)


findings = st.builds(
    finding,
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(SEVERITIES),
    st.lists(st.sampled_from(NAMES), max_size=3, unique=True).map(tuple),
    argument=st.sampled_from(["", "args[0]", "args[1]['w']"]),
)


@given(found=st.lists(findings, max_size=6), strict=st.booleans())
def test_what_is_allowed_exactly_passes_and_nothing_less_does(found, strict):
    gaps = [Allow(f.kind, f.systems, "known", f.argument) for f in found]
    assert verdict(*found, allow=gaps, strict=strict) == ""
    # One system each comes to the same.
    each = [Allow(g.kind, (s,), "known", g.argument) for g in gaps for s in g.systems]
    each += [g for g in gaps if not g.systems]
    assert verdict(*found, allow=each, strict=strict) == ""
    counts = [f for f in found if strict or f.severity == "error"]
    assert bool(verdict(*found, strict=strict)) == bool(counts)


@given(found=st.lists(findings, max_size=4), gap=findings)
def test_a_gap_that_no_longer_occurs_fails(found, gap):
    entry = Allow(gap.kind, gap.systems, "their issue 7", gap.argument)
    said = verdict(*(f for f in found if f.kind != gap.kind), allow=[entry])
    assert "no longer occurs: remove it from allow" in said
    assert "their issue 7" in said


def test_a_gap_is_judged_for_each_system_that_was_asked():
    gap = Allow("kink", ("zygote", "tracker", "yota"), "relu")
    kink = finding("kink", "note", ("zygote",))
    said = verdict(kink, allow=[gap])
    assert "[kink:tracker]" in said and "[kink:yota]" in said and "[kink:zygote]" not in said
    assert verdict(kink, allow=[gap], asked=("jax", "zygote")) == ""
    assert verdict(kink, allow=[gap], absent=("tracker", "yota")) == ""


def test_a_gap_of_any_system_is_judged_when_all_were_asked():
    gap = ("kink", "relu")
    assert "[kink] is allowed" in verdict(allow=[gap])
    assert verdict(allow=[gap], absent=("yota",)) == ""
    assert verdict(allow=[gap], partial=True) == ""


def test_a_gap_of_one_system_does_not_let_another_pass():
    said = verdict(finding(systems=("zygote", "yota")), allow=[("minority:zygote", "known")])
    assert "1 finding, 0 allowed" in said
    assert "It is allowed on zygote alone." in said
    # Nor a finding that is about no system.
    assert verdict(finding("random"), allow=[("random:jax", "known")])


def test_an_argument_narrows_a_gap():
    gap = Allow("minority", reason="known", argument="args[0]")
    here, there = finding(argument="args[0]"), finding(argument="args[1]")
    assert verdict(here, allow=[gap]) == ""
    assert verdict(here, there, allow=[gap]).count("error [") == 1


def test_the_text_has_everything_a_reader_needs():
    said = verdict(
        finding(
            systems=("zygote",),
            mode="reverse",
            argument="args[1]['w']",
            element=(2, 0),
            probe="zeros",
            location=Location("/home/me/model.py", 12, "loss", "y = f(x)"),
            primitive="mul",
            numbers={"zygote": np.float32(1 / 3), "finite": np.arange(30.0), "nan": float("nan")},
            advice="Look at the rule.",
        )
    )
    assert said.splitlines()[2:] == [
        "error [minority:zygote] args[1]['w'][2][0]: the title",
        "  reverse mode, point: zeros, operation: mul",
        "  model.py:12 (loss): y = f(x)",
        "  zygote: 0.3333333433",
        "  finite: [ 0. 1. 2. ... 27. 28. 29.]",
        "  nan: nan",
        "  Look at the rule.",
    ]


def test_many_numbers_are_cut():
    said = verdict(finding(numbers={str(i): i for i in range(100)}))
    assert "and 92 more numbers in the report" in said
    assert len(said.splitlines()) < 20


@pytest.mark.parametrize(
    "entry", ["kink", "kink:zygote", ("kink",), ("kink", "r", "s"), 3, (1, "r")]
)
def test_an_entry_without_a_reason_is_refused(entry):
    with pytest.raises(pb.ArgumentTypeError, match="A gap needs a reason"):
        read_gaps([entry])


@pytest.mark.parametrize("allow", ["kink", Allow("kink", reason="known")])
def test_one_entry_is_no_list(allow):
    with pytest.raises(pb.ArgumentTypeError, match="a list of Allow entries"):
        read_gaps(allow)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (("knik", "known"), "minority, finite"),
        (("kink:abacus", "known"), "jax, finite, zygote"),
        (("kink:", "known"), "jax, finite, zygote"),
        (("kink", " "), "a reason"),
        (("kink", None), "a reason"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(entry, said):
    with pytest.raises(pb.ArgumentValueError, match=said):
        read_gaps([entry])


def test_allow_takes_one_name_for_systems():
    assert Allow("kink", "zygote", "known").systems == ("zygote",)  # pyright: ignore


def test_a_pair_takes_several_systems():
    (gap,) = read_gaps([("kink:zygote,yota", "known")])
    assert gap == Allow("kink", ("zygote", "yota"), "known")


def test_entries_are_read_before_anything_is_checked(monkeypatch):
    monkeypatch.setattr(_assert, "_check", lambda *args, **options: pytest.fail("was called"))
    with pytest.raises(pb.ArgumentTypeError):
        assert_consistent(abs, 1.0, allow=["kink"])


def test_the_error_is_an_assertion_and_has_the_report(monkeypatch):
    report = report_of(finding())
    asked = {}
    monkeypatch.setattr(
        _assert, "_check", lambda f, args, **options: asked.update(options) or report
    )
    with pytest.raises(AssertionError) as caught:
        assert_consistent(abs, 1.0, backends=["jax"], probes=("zeros",), seed=3, rtol=0.1)
    assert isinstance(caught.value, ConsistencyError)
    assert isinstance(caught.value, pb.BridgeError)
    assert caught.value.report is report
    wanted = {"backends": ["jax"], "probes": ("zeros",), "seed": 3, "rtol": 0.1, "atol": 0.0}
    assert asked == wanted


def test_nothing_to_compare_is_no_pass(monkeypatch):
    report = report_of(asked=("finite", "zygote"), absent=("zygote",))
    monkeypatch.setattr(_assert, "_check", lambda f, args, **options: report)
    with pytest.raises(pb.BackendNotLoadedError, match="zygote is absent"):
        assert_consistent(abs, 1.0)
