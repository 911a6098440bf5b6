"""`pb.check` on Julia functions: every system is asked, and the one that is wrong is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import without_mooncake_by_day
from quick import by_day

import pybridge as pb
from pybridge.consistency import check, load_scenarios

SCENARIOS = {scenario.name: scenario for scenario in load_scenarios()}


def run(name, **options):
    scenario = SCENARIOS[name]
    return check(pb.from_julia(scenario.julia), *scenario.args, **options)


SMOOTH = {
    "x -> sum(tanh.(x))": (np.array([0.5, -1.0]),),
    "(x, w) -> sum(tanh.(w * x))": (np.array([0.5, -1.0]), np.eye(2)),
}


@pytest.mark.parametrize("source", by_day(SMOOTH, ["x -> sum(tanh.(x))"]))
def test_a_smooth_julia_function_has_no_findings(source):
    report = check(pb.from_julia(source), *SMOOTH[source])
    assert report.findings == ()
    asked = {(answer.system, answer.mode) for answer in report.answers}
    assert {("zygote", "reverse"), ("zygote", "second"), ("forwarddiff", "forward")} <= asked
    assert {("tracker", "reverse"), ("yota", "reverse"), ("jax", "forward")} <= asked
    assert report.sources == {"Julia": source}


def test_several_outputs_are_weighed():
    report = check(
        pb.from_julia("x -> (a=2 .* x, b=sum(x .^ 2))"),
        np.array([1.0, 2.0]),
        backends=("zygote", "forwarddiff"),
    )
    assert report.findings == ()
    assert set(report.probes[0].weights) == {"value.a", "value.b"}


def test_a_product_that_stops_at_zero_names_the_systems_that_are_wrong():
    report = run("early-exit-prod", backends=("zygote", "forwarddiff", "tracker"))
    (finding,) = [f for f in report.findings if f.severity == "error"]
    assert finding.kind == "special-case"
    assert finding.systems == ("zygote", "tracker")
    np.testing.assert_allclose([finding.numbers[s] for s in ("zygote", "forwarddiff")], [1.0, 6.0])


def test_a_rule_with_another_value_is_found():
    report = run("rule-other-value", backends=("zygote", "forwarddiff"))
    finding = report.of_kind("value")[0]
    assert finding.systems == ("zygote",)
    assert finding.title == "value under differentiation 1.5707963, plain value 0"


def test_an_exact_guard_is_passed_by_forwarddiff():
    report = run("exact-guard", backends=("zygote", "forwarddiff"))
    assert ("forwarddiff",) in [f.systems for f in report.of_kind("value", "non-finite")]


def test_within_gradient_is_told_from_a_fault():
    report = run("detect-plain-if", backends=("zygote", "forwarddiff", "yota"))
    assert [f.severity for f in report.of_kind("mode-dependent")] == ["note"]
    (finding,) = [f for f in report.findings if f.severity == "error"]
    assert (finding.kind, finding.systems) == ("minority", ("yota",))


@pytest.mark.parametrize("name", ["kink-abs", "kink-max"])
def test_kinks_are_notes_with_every_choice(name):
    report = run(name, backends=("zygote", "forwarddiff", "tracker"))
    assert report.ok
    assert all({"left", "right", "zygote", "tracker"} <= set(f.numbers) for f in report.findings)


def test_an_exception_in_one_system_is_a_finding():
    source = """
    broken(x) = x^2
    PyBridge.ChainRulesCore.rrule(::typeof(broken), x) = error("a bug in the rule")
    x -> broken(x)"""
    report = check(pb.from_julia(source), 2.0, backends=("zygote", "forwarddiff"))
    (finding,) = report.of_kind("exception")
    assert finding.systems == ("zygote",)
    assert "a bug in the rule" in finding.title
    assert any(a.system == "forwarddiff" and a.error is None for a in report.answers)


def test_a_rule_that_meets_a_thunk_is_named_with_what_to_write():
    source = """
    tripled(x) = 3 .* x
    function PyBridge.ChainRulesCore.rrule(::typeof(tripled), x)
        pullback(ȳ) = (PyBridge.ChainRulesCore.NoTangent(), map(v -> 3v, ȳ))
        return tripled(x), pullback
    end
    x -> sum(tripled(x) * transpose(x))"""
    args = (np.array([1.0, 2.0, -1.0]),)
    report = pb.check(pb.from_julia(source), *args, backends=["zygote", "forwarddiff"])
    (finding,) = report.of_kind("exception")
    assert "the rrule of tripled meets a Thunk (julia source:4)" in finding.title
    assert "unthunk(ȳ)" in finding.advice
    mended = source.replace("3v, ȳ", "3v, PyBridge.ChainRulesCore.unthunk(ȳ)")
    assert pb.check(pb.from_julia(mended), *args, backends=["zygote", "forwarddiff"]).ok


def test_zeros_that_are_no_arrays_are_noted():
    f = pb.from_julia("(x, y) -> sum(abs2, x)")
    report = pb.check(f, np.array([1.0, 2.0]), np.array([3.0]), backends=["zygote", "forwarddiff"])
    zeros = report.of_kind("zero")
    assert [(z.systems, z.argument, z.severity) for z in zeros] == [
        (("zygote",), "args[1]", "note")
    ]
    assert "nothing" in zeros[0].title
    assert report.ok


def test_a_python_function_is_checked_on_the_systems_that_are_named():
    def f(x, w):
        h = jnp.tanh(x @ w)
        return jnp.where(h > 0, h, 0.1 * h).sum()

    systems = ["jax", "zygote", "forwarddiff", "tracker", "yota"]
    report = pb.check(f, np.array([1.0, -2.0]), np.ones((2, 2)), backends=systems)
    assert report.findings == ()
    answered = {(a.system, a.mode) for a in report.answers if a.derivative is not None}
    assert {("zygote", "reverse"), ("forwarddiff", "forward"), ("yota", "reverse")} <= answered


def test_what_cannot_be_lowered_is_a_note():
    def f(x):
        return jax.pure_callback(np.sin, x, x).sum()

    report = pb.check(f, np.ones(2), backends=["zygote"])
    assert [(f.kind, f.severity) for f in report.findings] == [("unsupported", "note")]
    assert "pure_callback" in report.findings[0].title


def test_a_structure_whose_tangent_yota_cannot_make_is_a_refusal():
    """Flux.BatchNorm is one; Yota's tangents of mutable structures want all of their fields."""
    source = "mutable struct Affine\n    a::Float64\n    b::Float64\nend\n"
    source += "(l::Affine)(x) = l.a * x + l.a^2\nlayer = Affine(2.0, 1.0)\nx -> layer(x)"
    f = pb.from_julia(source)
    (finding,) = check(f, 0.7, backends=without_mooncake_by_day()).findings
    assert (finding.kind, finding.severity) == ("unsupported", "note")
    assert finding.systems == ("yota",)
