"""Rules of one's own, what is asked of Julia and how often, and detection inside JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import BY_VALUE, REVERSE_ONLY, counted, julia, same
from jax import lax
from precision import enable_x64

import pybridge as pb


@pytest.fixture(autouse=True)
def _x64():
    with enable_x64(True):
        yield


# Each rule has a slope of its own, ten times or a hundred times the true one: so it is seen.
BODY = "begin f(x) = sum(x .^ 2)\n"
RRULE = """
function ChainRulesCore.rrule(::typeof(f), x)
    return f(x), ȳ -> (ChainRulesCore.NoTangent(), 20 .* ȳ .* x)
end
"""
FRULE = """
function ChainRulesCore.frule((_, ẋ), ::typeof(f), x)
    return f(x), sum(200 .* x .* ẋ)
end
"""
VJP = "x -> (sum(x .^ 2), ȳ -> (20 .* ȳ .* x,))"
JVP = "((x,), (ẋ,)) -> (sum(x .^ 2), sum(200 .* x .* ẋ))"

# What it is made of; factors of the slope in reverse mode and in forward mode.
RULES = {
    "rrule": ((BODY + RRULE + "f end",), {}, 10, 10),
    "frule": ((BODY + FRULE + "f end",), {}, 1, 100),
    "rrule and frule": ((BODY + RRULE + FRULE + "f end",), {}, 10, 100),
    "vjp": (("x -> sum(x .^ 2)",), {"vjp": VJP}, 10, 10),
    "jvp": (("x -> sum(x .^ 2)",), {"jvp": JVP}, 100, 100),
    "vjp and jvp": (("x -> sum(x .^ 2)",), {"vjp": VJP, "jvp": JVP}, 10, 100),
    "vjp before rrule": ((BODY + RRULE + "f end",), {"vjp": VJP.replace("20", "40")}, 20, 20),
}
X = np.array([1.0, -2.0, 0.5])


def directed(f, x, t):
    return jax.jvp(f, (x,), (t,))[1]


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_used_by_every_system(rules, system):
    source, options, reverse, forward = RULES[rules]
    f = julia(*source, system, **options)
    t = np.array([0.5, 1.0, 3.0])
    # A value of two parts has no shortcut: reverse mode is reverse mode, forward is forward.
    pair = lambda x: jnp.stack([f(x), 2 * f(x)])  # noqa: E731
    for wrap in (lambda f: f, jax.jit):
        np.testing.assert_allclose(wrap(jax.grad(f))(X), 2 * reverse * X)
        np.testing.assert_allclose(wrap(jax.jacrev(pair))(X)[1], 4 * reverse * X)
        np.testing.assert_allclose(wrap(jax.vmap(jax.grad(f)))(X[None])[0], 2 * reverse * X)
    slope = float(jax.jit(lambda x, t: directed(f, x, t))(X, t))
    # The tangent of a number is taken from its gradient where that costs no more.
    assert slope == pytest.approx(2 * reverse * (X @ t)) or slope == pytest.approx(
        2 * forward * (X @ t)
    )


VECTOR_RULES = {
    "rrule": ("rrule(::typeof(f), x) = (f(x), ȳ -> (ChainRulesCore.NoTangent(), 20 .* ȳ .* x))",),
    "frule": ("frule((_, ẋ), ::typeof(f), x) = (f(x), 20 .* x .* ẋ)",),
}


@pytest.mark.parametrize("kind", VECTOR_RULES)
def test_a_rule_for_one_mode_of_a_vector_function(kind, system):
    source = f"begin f(x) = x .^ 2\nChainRulesCore.{VECTOR_RULES[kind][0]}\nf end"
    f = julia(source, system)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(f))(X), np.diag(20 * X))
    if kind == "rrule":
        np.testing.assert_allclose(jax.jit(jax.jacrev(f))(X), np.diag(20 * X))
        np.testing.assert_allclose(jax.jit(jax.hessian(lambda x: f(x).sum()))(X), 20 * np.eye(3))


PAIR = {
    "vjp": "(x, y) -> (x .* y, z̄ -> (z̄ .* y, z̄ .* x))",
    "jvp": "((x, y), (ẋ, ẏ)) -> (x .* y, ẋ .* y .+ x .* ẏ)",
}


@pytest.mark.parametrize("given", [("vjp",), ("jvp",), ("vjp", "jvp")], ids="+".join)
@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian", "jvp of grad", "vmap"])
def test_right_rules_give_right_derivatives_of_every_order(given, transform, system):
    if system in REVERSE_ONLY and transform != "jacrev":
        pytest.skip("the system takes no part")
    f = julia("(x, y) -> x .* y", system, **{name: PAIR[name] for name in given})
    total = lambda f: lambda x, y: jnp.sum(jnp.sin(f(x, y)))  # noqa: E731
    run = {
        "jacrev": lambda f: jax.jacrev(f, (0, 1)),
        "jacfwd": lambda f: jax.jacfwd(f, (0, 1)),
        "hessian": lambda f: jax.hessian(total(f), (0, 1)),
        "jvp of grad": lambda f: lambda x, y: directed(lambda x: jax.grad(total(f))(x, y), x, y),
        "vmap": lambda f: jax.vmap(jax.grad(f, (0, 1))),
    }[transform]
    y = np.array([0.3, 0.1, -1.0])
    same(jax.jit(run(f))(X, y), run(lambda x, y: x * y)(X, y))


WRONG_RULES = {
    "no comma": ("x -> 2 .* x", {"vjp": "x -> (2 .* x, ȳ -> (2 .* ȳ))"}, r"vjp=.*1 in all.*size"),
    "one too many": (
        "x -> 2 .* x",
        {"vjp": "x -> (2 .* x, ȳ -> (nothing, 2 .* ȳ))"},
        "vjp=.*1 in all, got a tuple of 2.*none for the function itself",
    ),
    "no pullback": ("x -> 2 .* x", {"vjp": "x -> 2 .* x"}, r"vjp=.*\(y, back\), got an array"),
    "a number": (
        "x -> 2 .* x",
        {"vjp": "x -> (2 .* x, ȳ -> (sum(ȳ),))"},
        r"vjp=.*array of size \(3,\), got a number",
    ),
    "a part": (
        "x -> 2 .* x",
        {"vjp": "x -> (2 .* x, ȳ -> (ȳ[1:2],))"},
        r"vjp=.*array of size \(3,\), got an array of size \(2,\)",
    ),
    "no tangent": ("x -> 2 .* x", {"jvp": "((x,), (ẋ,)) -> 2 .* ẋ"}, "jvp=.*tangent of y"),
    "another tangent": (
        "x -> 2 .* x",
        {"jvp": "((x,), (ẋ,)) -> (2 .* x, sum(ẋ))"},
        r"jvp=.*array of size \(3,\), got a number",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_RULES)
def test_rules_of_the_wrong_form(wrong):
    source, rule, text = WRONG_RULES[wrong]
    f = julia(source, **rule)
    for transform in (jax.jacrev, jax.jacfwd):
        with pytest.raises(pb.ArgumentTypeError, match=text):
            transform(f)(X)


@pytest.mark.parametrize(
    ("cotangents", "text"),
    [
        ("(7 .* ȳ,)", "2 in all, got a tuple of 1"),
        ("(7.0, ȳ)", r"NamedTuple \(; a = _\), got a number"),
        ("((; b=7.0), ȳ)", r"\(; a = _\), got a NamedTuple \(; b = _\)"),
    ],
)
def test_cotangents_of_containers_of_the_wrong_form(cotangents, text):
    f = julia("(p, x) -> p.a .* x", vjp=f"(p, x) -> (p.a .* x, ȳ -> {cotangents})")
    with pytest.raises(pb.ArgumentTypeError, match=text):
        jax.grad(lambda p: jnp.sum(f(p, X)))({"a": 2.0})


WRAPPED = ("UpperTriangular(A' * A)", "Symmetric(A[1:3, :], :L)", "Diagonal(A[1, :])", "(A' * A)'")


@pytest.mark.parametrize("source", WRAPPED)
def test_results_in_wrappers(source):
    a = jnp.array(np.random.default_rng(0).normal(size=(4, 3)))
    found = []
    for system in ("forwarddiff", "zygote", "yota"):
        f = julia(f"begin using LinearAlgebra; A -> {source} end", system)
        found.append(
            jax.grad(lambda a, f=f: jnp.sum(jnp.sin(f(a)) * jnp.arange(9).reshape(3, 3)))(a)
        )
    for gradient in found[1:]:
        np.testing.assert_allclose(gradient, found[0], atol=1e-12)


# --- how often Julia is called ------------------------------------------------------------


@pytest.mark.parametrize("x", [np.float64(2.0), X], ids=["number", "array"])
def test_value_and_gradient_are_one_run(x, system):
    source, count = counted("x -> x isa Number ? sin(x) * x : sum(sin.(x) .* x)", system)
    f = pb.from_julia(source, ad=system, out=jax.ShapeDtypeStruct((), np.float64))
    programs = {
        "value": (jax.jit(f), 1),
        "value_and_grad": (jax.jit(jax.value_and_grad(f)), 1),
        "grad": (jax.jit(jax.grad(f)), 1),
    }
    for program, calls in programs.values():
        program(x)
        count()
        jax.block_until_ready(program(x))
        # ForwardDiff runs once for the value and once for every dozen elements; Yota to trace.
        assert count() <= (calls if system in ("zygote", "tracker", "reversediff") else 3)


def test_what_is_not_used_is_not_computed():
    source, count = counted("x -> (sum(x), 2 .* x)")
    f = pb.from_julia(source)
    unused = jax.jit(lambda x: (f(x), x + 1)[1])
    unused(X)  # traced, for which it is called once
    count()
    unused(X)
    assert count() == 0


def test_arguments_that_are_not_differentiated_are_not_asked_for(system):
    source = """
    begin
        f(x, y, n) = sum(x) * y * n
        function ChainRulesCore.rrule(::typeof(f), x, y, n)
            back(z̄) = (ChainRulesCore.NoTangent(), fill(z̄ * y * n, size(x)),
                ChainRulesCore.@thunk(error("asked for y")), ChainRulesCore.NoTangent())
            return f(x, y, n), back
        end
        f
    end
    """
    f = julia(source, system)
    gradient = jax.jit(jax.grad(f))(X, 3.0, 2)
    np.testing.assert_allclose(gradient, np.full(3, 6.0))
    np.testing.assert_allclose(jax.jit(jax.grad(f))(X, lax.stop_gradient(3.0), 2), np.full(3, 6.0))
    if system in ("zygote", "forwarddiff"):  # the others read rules, and unthunk, on their own
        with pytest.raises(Exception, match="asked for y"):
            jax.jit(jax.grad(f, 1))(X, 3.0, 2)


def test_integer_arguments_take_no_part(system):
    f = julia("(n, x, m) -> sum(x) * n + sum(m)", system)
    m = np.arange(3)
    np.testing.assert_allclose(jax.jit(jax.grad(f, 1))(2, X, m), np.full(3, 2.0))
    gradients = jax.jit(jax.grad(f, (0, 1), allow_int=True))(2, X, m)
    assert gradients[0].dtype == jax.dtypes.float0
    assert float(jax.jit(lambda x: jax.jvp(lambda x: f(2, x, m), (x,), (x,))[1])(X)) == -1.0


# --- detection ----------------------------------------------------------------------------


def both_orders(f, x):
    """Return the value and the derivative in several ways; each way has to find the same."""
    yield jax.jit(lambda x: jax.value_and_grad(lambda x: jnp.sum(f(x)))(x))(x)
    yield jax.jit(lambda x: jax.jvp(lambda x: jnp.sum(f(x)), (x,), (jnp.ones_like(x),)))(x)

    def pulled(x):
        y, pull = jax.vjp(f, x)
        return jnp.sum(y), pull(jnp.ones_like(y))[0]

    yield jax.jit(pulled)(x)
    push = jax.linearize(lambda x: jnp.sum(f(x)), x)
    yield push[0], push[1](jnp.ones_like(x))
    lanes = jax.vmap(jax.value_and_grad(lambda x: jnp.sum(f(x))))(jnp.stack([x, x]))
    yield jax.tree.map(lambda x: x[1], lanes)


CHOOSE = "x -> PyBridge.cond(PyBridge.within_gradient(x), x -> x.^2, x -> x, x)"


@pytest.mark.parametrize("shape", [(), (3,)], ids=["number", "array"])
def test_value_and_derivative_agree_on_being_differentiated(shape, system):
    f = julia(CHOOSE, system)
    x = jnp.full(shape, 2.0)
    n = x.size
    same(jax.jit(f)(x), x)
    for value, slope in both_orders(f, x):
        assert float(value) == 4.0 * n
        np.testing.assert_allclose(jnp.sum(slope), 4.0 * n)


@pytest.mark.parametrize("system", BY_VALUE)
def test_detection_is_per_argument(system):
    # Zygote says yes to all arguments inside a gradient, Yota no outside of rules.
    f = julia(
        "(x, y) -> (PyBridge.within_gradient(x) ? 10 : 1) * sum(x)"
        " + (PyBridge.within_gradient(y) ? 1000 : 100) * sum(y)",
        system,
    )
    x, y = jnp.ones(1), jnp.ones(1)
    found = {
        (): jax.jit(f)(x, y),
        (0,): jax.jit(jax.value_and_grad(f, (0,)))(x, y)[0],
        (1,): jax.jit(jax.value_and_grad(f, (1,)))(x, y)[0],
        (0, 1): jax.jit(jax.value_and_grad(f, (0, 1)))(x, y)[0],
        "stopped": jax.jit(jax.value_and_grad(lambda x, y: f(x, lax.stop_gradient(y)), (0, 1)))(
            x, y
        )[0],
    }
    want = {(): 101, (0,): 110, (1,): 1001, (0, 1): 1010, "stopped": 110}
    assert {key: float(value) for key, value in found.items()} == want


def test_julia_never_sees_a_lane_that_took_the_other_branch():
    seen = pb.from_julia(
        "begin const SEEN = Float64[]; Core.eval(Main, :(SEEN = $SEEN)); x -> x end"
    )
    assert seen(1.0) == 1.0
    look = "ChainRulesCore.ignore_derivatives(() -> PyBridge.primal(x) |> y -> push!(Main.SEEN, y))"
    f = pb.from_julia(f"x -> ({look}; log(x))", out=jax.ShapeDtypeStruct((), np.float64))
    read = pb.from_julia("x -> (y = copy(Main.SEEN); empty!(Main.SEEN); y)")
    xs = jnp.array([1.0, -1.0, 2.0, -3.0])

    def chosen(x):
        return pb.cond(x > 0, f, lambda x: 0.0 * x, x)

    want = np.where(xs > 0, np.log(np.abs(xs)), 0.0)
    slopes = np.where(xs > 0, 1 / np.asarray(xs), 0.0)
    for transform, expected in (
        (jax.vmap(chosen), want),
        (jax.vmap(jax.grad(chosen)), slopes),
        (jax.grad(lambda xs: jnp.sum(jax.vmap(chosen)(xs))), slopes),
        (lambda xs: jax.jvp(jax.vmap(chosen), (xs,), (jnp.ones(4),))[1], slopes),
        (jax.vmap(jax.grad(jax.grad(chosen))), np.where(xs > 0, -1 / np.asarray(xs) ** 2, 0.0)),
    ):
        read(1.0)
        np.testing.assert_allclose(jax.jit(transform)(xs), expected, rtol=1e-12, atol=0)
        lanes = read(1.0)
        assert len(lanes) and not (set(lanes) & {-1.0, -3.0}), lanes
