"""What a Julia function is seen to do: questions, writes, casts, rules, with their lines."""

import numpy as np
import pytest
from bridge_helpers import without_mooncake_by_day

import pybridge as pb
from pybridge.consistency import check
from pybridge.consistency.detectors._julia_functions import _unused_name
from pybridge.interop._observation import observe

X = np.array([0.3, 1.0])


def seen(source, *args, backend="forwarddiff"):
    found = observe(pb.from_julia(source), args or (X,), backend)
    return [(s.kind, s.name, s.location.line if s.location else None) for s in found]


@pytest.mark.parametrize(
    "source",
    [
        "h(x) = within_gradient(x)\nx -> h(x)",
        "h(x) = NNlib.within_gradient(x)\nx -> h(x)",
        "h(x) = is_differentiating(1, x)\nx -> h(x)",
        "h(x) = within_gradient((x, 2))\nx -> h(x)",
        "h(x) = fetch(Threads.@spawn(within_gradient(x)))\nx -> h(x)",
    ],
)
def test_the_question_is_heard_from_the_primitive(source):
    assert ("asks", "within_gradient", 1) in seen(source)


def test_a_comment_does_not_ask():
    assert seen("x -> sum(x)  # within_gradient, Dropout") == []


def test_a_signature_of_plain_numbers_is_heard_under_zygote():
    f = pb.from_julia("g(x::Vector{Float64}) = within_gradient(x) ? 3x : x\nx -> sum(g(x))")
    assert "stopped" in [s.kind for s in observe(f, (X,), "forwarddiff")]
    assert [s.kind for s in observe(f, (X,), "zygote")] == ["asks"]
    report = check(f, X, backends=["zygote"])
    assert report.ok  # second derivatives are ForwardDiff's, which is noted
    assert len(report.of_kind("mode-dependent")) == 1


def test_others_are_not_heard():
    """A derivative of somebody else's is no run of the checker."""
    f = pb.from_julia("x -> within_gradient(x) ? 2sum(x) : sum(x)")
    assert pb.jvp(f, (X,), (X,), backend="forwarddiff")[0] == 2 * X.sum()
    assert seen("x -> sum(x)") == []


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("y = similar(x); y[1] = x[1]", "setindex!"),
        ("y = copy(x); y .= 2 .* x", "materialize!"),
        ("y = zeros(2); y .= 2 .* x", "materialize!"),
        ("y = copy(x); sort!(y)", "sort!"),
        ("y = eltype(x)[]; push!(y, x[1])", "push!"),
    ],
)
def test_a_write_is_seen(body, name):
    assert seen(f"function (x)\n{body}\nsum(y)\nend") == [("writes", name, 2)]


def test_arrays_that_are_made_at_once_are_no_writes():
    body = "y = map(v -> v + 1, x); z = cumsum(sort(y)); w = [a * b for a in x, b in z]"
    assert "writes" not in [kind for kind, *_ in seen(f"function (x)\n{body}\nsum(w)\nend")]


@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc", "sign"])
def test_a_step_is_seen(name):
    assert seen(f"x -> sum({name}.(x))") == [("flat", name, 1)]
    if name != "sign":
        assert ("flat", name, 1) in seen(f"x -> {name}(Int, x)", 1.3)


@pytest.mark.parametrize("dtype", ["Float16", "Float32"])
def test_a_cast_is_seen(dtype):
    assert seen(f"x -> sum({dtype}.(x))") == [("narrow", dtype, 1)]


def test_a_double_cast_is_none():
    assert seen("x -> sum(Float64.(x))") == []


def test_rules_are_compared_with_their_functions():
    source = """f(x) = x^2
    ChainRulesCore.rrule(::typeof(f), x) = f(x), d -> (ChainRulesCore.NoTangent(), {} * x * d)
    x -> 1 + f(x)"""
    assert seen(source.format(2), 0.7, backend="zygote") == [("rule", "f", 2)]
    wrong = seen(source.format(3), 0.7, backend="zygote")
    assert wrong == [("rule", "f", 2), ("wrong_rule", "f", 2)]


def test_a_wrong_rule_is_named_and_jax_is_no_witness():
    source = """f(x) = x^2
    ChainRulesCore.rrule(::typeof(f), x) = f(x), d -> (ChainRulesCore.NoTangent(), 3x * d)
    x -> 1 + f(x)"""
    report = check(pb.from_julia(source), 0.5, backends=["jax", "zygote", "forwarddiff"])
    (finding,) = [f for f in report.findings if f.severity == "error"]
    assert finding.title == "zygote gives 1.5, where differences give 1, as forwarddiff does"
    assert finding.systems == ("jax", "zygote")
    assert str(finding.location) == "julia source:2 (f)"
    assert "give the function a rule" not in finding.advice
    assert finding.advice.startswith("The rrule of f is wrong")


def test_writing_into_an_array_is_one_finding():
    source = "function f(x)\n    y = similar(x)\n    y[1] = x[1]^2\n    y[1] + x[2]\nend"
    report = check(pb.from_julia(source), X, backends=["zygote", "forwarddiff", "yota"])
    (finding,) = [f for f in report.findings if f.severity == "error"]
    assert finding.title.startswith("the function mutates an array: zygote raises an exception")
    assert "yota gives 0 for 0.6 without a word" in finding.title
    assert finding.location.source == "y[1] = x[1]^2"
    assert "map" in finding.advice


def test_what_a_system_has_no_method_for_is_a_note():
    report = check(pb.from_julia("x -> x * floor(x)"), 1.5, backends=["zygote", "tracker"])
    assert report.ok
    assert [(f.kind, f.systems) for f in report.findings] == [("unsupported", ("tracker",))]
    assert "cannot run the function" in report.findings[0].title


def test_advice_for_a_root_uses_no_name_of_the_callers_and_is_right():
    assert _unused_name("v -> v") == "s"
    guarded = "x -> (s = sum(abs2, x); PyBridge.cond(PyBridge.primal(s) > 0, sqrt, zero, s))"
    assert check(pb.from_julia(guarded), np.zeros(2), backends=without_mooncake_by_day()).ok
    report = check(pb.from_julia("v -> sqrt(sum(abs2, v))"), np.zeros(2), backends=["zygote"])
    (finding,) = report.of_kind("non-finite")
    assert "PyBridge.cond(PyBridge.primal(s) > 0, sqrt, zero, s)" in finding.advice
    assert finding.primitive == "sqrt"
