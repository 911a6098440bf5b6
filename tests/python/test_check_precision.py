"""What the caller's own precision loses is found, with the operation; stable forms lose nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import stats

import pybridge as pb
from pybridge.consistency import check
from pybridge.consistency.detectors.precision import Results, find_lost_results
from pybridge.finite import double_precision

F32, F16, BF16 = jnp.float32, jnp.float16, jnp.bfloat16
HILBERT = np.array([[1 / (i + j + 1) for i in range(4)] for j in range(4)], np.float32)
HALF = jnp.array([1000.25, 2000.75], F32)
NEAR_10000 = 1e4 + np.arange(4.0)


def lost(f, *args):
    """Compare value and gradient of a number's sum with extended precision."""
    xs = tuple(map(jnp.asarray, args))

    def total(ys):
        return sum(y.sum() for y in ys)

    ys, gs = jax.value_and_grad(lambda xs: (lambda y: (y.sum(), y))(f(*xs)), has_aux=True)(xs)
    eps = max(float(jnp.finfo(x.dtype).eps) for x in xs)
    results = Results(eps, xs, [np.asarray(ys[1])], [np.asarray(g) for g in gs])
    return find_lost_results(lambda xs: (f(*xs),), total, results)


def naive_softplus(x):
    return jnp.log(1 + jnp.exp(x))


def naive_softmax(x):
    return jnp.exp(x) / jnp.exp(x).sum()


def naive_norm(x):
    return jnp.sqrt((x * x).sum())


def naive_deviation(x):
    return jnp.sqrt(jnp.mean(x**2) - jnp.mean(x) ** 2 + 1e-5)


def density(mean):
    return jnp.log(jnp.prod(jnp.exp(-((jnp.linspace(-6, 6, 16, dtype=F32) - mean) ** 2))))


def likelihood(mean):
    return jnp.sum(stats.norm.logpdf(jnp.linspace(-3, 3, 200, dtype=F32), mean))


def scaled_norm(x):
    s = jax.lax.stop_gradient(jnp.max(jnp.abs(x)))
    return s * jnp.sqrt(((x / s) ** 2).sum())


def naive_cross_entropy(z, t):
    p = 1 / (1 + jnp.exp(-z))
    return -(t * jnp.log(p) + (1 - t) * jnp.log(1 - p))


FAULTS = {
    "softplus": (naive_softplus, F32(100), "exp", "softplus"),
    "softplus, 16 bits": (naive_softplus, F16(20), "exp", "softplus"),
    "softplus, 1000": (naive_softplus, F32(1000), "exp", "softplus"),
    "softmax": (naive_softmax, jnp.array([100, 90], F32), "exp", "softmax"),
    "scalar product": (
        lambda x: naive_softmax(x) @ jnp.ones(2, F32),
        jnp.array([230, 232], F32), "exp", "softmax"),
    "norm by a product": (
        lambda x: jnp.sqrt(x @ x), jnp.full(3, 3e25, F32), "dot_general", "scaled norm"),
    "logsumexp": (
        lambda x: jnp.log(jnp.exp(x).sum()), jnp.array([100, 90], F32), "exp", "logsumexp"),
    "log sigmoid": (lambda x: jnp.log(jax.nn.sigmoid(x)), F32(-100), "logistic", "log_sigmoid"),
    "log of a softmax": (
        lambda x: jnp.log(jax.nn.softmax(x))[1], jnp.array([200, 0], F32), "exp", "log_softmax"),
    "norm": (naive_norm, jnp.full(3, 3e25, F32), "mul", "scaled norm"),
    "norm, 16 bits": (naive_norm, jnp.array([300, 200], F16), "mul", "scaled norm"),
    "norm, bfloat16": (naive_norm, jnp.array([1e25, 2e25], BF16), "mul", "scaled norm"),
    "norm of small numbers": (naive_norm, jnp.full(3, 3e-25, F32), "mul", "scaled norm"),
    "norm of one number": (lambda x: jnp.sqrt(x**2 + 1), F32(1e30), "integer_pow", "scaled norm"),
    "densities": (density, F32(0.3), "mul", "logpdf"),
    "deviation": (naive_deviation, jnp.asarray(NEAR_10000, F32), "sub", "two passes"),
    "deviation of numbers that hardly differ": (
        naive_deviation, 1493864 + 1.125 * jnp.arange(6, dtype=F32), "sub", "two passes"),
    "deviation, 16 bits": (naive_deviation, jnp.array([200, 201, 202], F16), "sub", "two passes"),
    "expm1": (lambda x: jnp.exp(x) - 1, F32(1e-9), "sub", "expm1"),
    "log1p": (lambda x: jnp.log(1 + x), F32(1e-9), "log", "log1p"),
    "1 - cos": (lambda x: (1 - jnp.cos(x)) / x**2, F32(1e-4), "sub", "sin(x / 2)"),
    "roots": (lambda x: jnp.sqrt(x + 1) - jnp.sqrt(x), F32(1e7), "sub", "sqrt(a) + sqrt(b)"),
    "quadratic": (lambda b: -b + jnp.sqrt(b**2 - 4), F32(1e5), "add", "sqrt"),
    "log of a sigmoid written out": (
        lambda z: -jnp.mean(jnp.log(1 / (1 + jnp.exp(-z)))),
        jnp.array([-120, 2], F32), "exp", "log_sigmoid(x)"),
    "log of its complement": (
        lambda z: jnp.log(1 - 1 / (1 + jnp.exp(-z))), F32(30), "sub", "log_sigmoid(-x)"),
    "log of 1 - sigmoid": (
        lambda z: jnp.log(1 - jax.nn.sigmoid(z)), F32(18), "sub", "log_sigmoid(-x)"),
    "cross entropy": (
        lambda x: -jnp.mean(jnp.log(naive_softmax(x)[1:])),
        jnp.array([120, 3, 5], F32), "exp", "log_softmax"),
    "mean of logsumexps": (
        lambda x: jnp.mean(jnp.log(jnp.exp(x).sum(1)) / 3),
        jnp.full((2, 2), -200, F32), "exp", "logsumexp"),
    "log cosh": (lambda x: jnp.log(jnp.cosh(x)), F32(100), "cosh", "logaddexp(x, -x)"),
    "compound interest": (lambda r: (1 + r / 1e7) ** 1e7, F32(0.5), "pow", "exp(n * jnp.log1p"),
    "annuity": (lambda r: 1 - (1 + r) ** -12, F32(1e-8), "sub", "expm1(n * jnp.log1p"),
    "1 - tanh": (lambda x: 1e6 * (1 - jnp.tanh(x)), F32(9), "sub", "sigmoid(-2 * x)"),
    "geometric mean": (
        lambda x: jnp.prod(x) ** (1 / 20), jnp.full(20, 1e3, F32), "mul", "Add logarithms"),
    "root of a product": (
        lambda x: jnp.sqrt(x[0] * x[1]), jnp.array([1e30, 1e20], F32), "mul", "Add logarithms"),
    "8-norm": (
        lambda x: (x**8).sum() ** (1 / 8), jnp.array([1e6, 2e6], F32), "integer_pow", "Scale the"),
    "norm by a power": (
        lambda x: (x**2).sum() ** 0.5, jnp.full(3, 3e25, F32), "integer_pow", "scaled norm"),
    "mean of exponentials": (
        lambda x: jnp.log(jnp.mean(jnp.exp(x))), jnp.array([-200, -201], F32), "exp", "logsumexp"),
    "mixture of densities": (
        lambda x: jnp.log((jnp.exp(-((x - jnp.arange(3.0)) ** 2)) / 2).sum()),
        F32(30), "exp", "logsumexp"),
    "ratio of exponentials": (
        lambda x: jnp.exp(x) / jnp.exp(x - 1), F32(95), "exp", "exp(a - b)"),
    "log sinh": (lambda x: jnp.log(jnp.sinh(x)), F32(100), "sinh", "expm1(-2 * x)"),
    "distance": (
        lambda x: x @ x + HALF @ HALF - 2 * x @ HALF,
        jnp.array([1000.5, 2000.5], F32), "sub", "jnp.sum((x - y) ** 2)"),
    "a factorial": (lambda x: jnp.exp(x) * jnp.exp(-x + 1), F32(95), "exp", "logarithm"),
}  # fmt: skip


@pytest.mark.parametrize(("f", "x", "primitive", "cure"), FAULTS.values(), ids=FAULTS)
def test_what_a_formula_loses_is_an_error_with_operation_line_and_stable_form(
    f, x, primitive, cure
):
    found = lost(f, x)[0]
    assert found.mode == "value"
    assert found.is_error
    assert found.loss.step.primitive == primitive
    assert found.loss.step.line.file == __file__
    assert cure in found.advice


def log_of_exp(x):
    return jnp.log(jnp.exp(-x * x / 2))


@pytest.mark.parametrize("f", [log_of_exp, lambda x: jnp.log(stats.norm.pdf(x))])
def test_what_is_lost_outside_of_jit_alone_is_found(f):
    x = F32(15)
    assert not np.isfinite(f(x))
    if not np.isfinite(jax.jit(f)(x)):
        pytest.skip("this XLA computes log(exp(x)) as it is written; older ones take x for it")
    findings = check(f, x).of_kind("precision")
    assert [finding.severity for finding in findings] == ["error", "error"]
    assert all("outside of jax.jit" in finding.title for finding in findings)
    assert not check(f, F32(3)).findings


def scaled_cosine(a, b):
    a, b = (x / jax.lax.stop_gradient(jnp.max(jnp.abs(x))) for x in (a, b))
    return a @ b / jnp.sqrt((a @ a) * (b @ b))


STABLE = {
    "softplus": (jax.nn.softplus, F32(100)),
    "softplus of a negative number": (jax.nn.softplus, F32(-20)),
    "softmax": (jax.nn.softmax, jnp.array([100, 90], F32)),
    "softmax of far numbers": (jax.nn.softmax, jnp.array([1000, -90, 0], F32)),
    "logsumexp": (jax.nn.logsumexp, jnp.array([100, 90], F32)),
    "log_softmax": (lambda x: -jax.nn.log_softmax(x)[0], jnp.array([20, 0], F32)),
    "log_sigmoid": (jax.nn.log_sigmoid, F32(-100)),
    "log_sigmoid, 30": (jax.nn.log_sigmoid, F32(30)),
    "hypot": (jnp.hypot, F32(3e15), F32(4e15)),
    "scaled norm": (scaled_norm, jnp.array([3e25, 4e25], F32)),
    "scaled norm, 16 bits": (scaled_norm, jnp.array([300, 200], F16)),
    "scaled norm of small numbers": (scaled_norm, jnp.array([3e-25, 4e-25], F32)),
    "deviation": (lambda x: jnp.sqrt(jnp.var(x) + 1e-5), jnp.asarray(NEAR_10000, F32)),
    "two passes": (lambda x: jnp.mean((x - x.mean()) ** 2), jnp.asarray(NEAR_10000, F32)),
    "likelihood": (likelihood, F32(0.3)),
    "expm1": (jnp.expm1, F32(1e-9)),
    "log1p": (jnp.log1p, F32(1e-9)),
    "1 - cos": (lambda x: 2 * jnp.sin(x / 2) ** 2, F32(1e-4)),
    "roots": (lambda x: 1 / (jnp.sqrt(x + 1) + jnp.sqrt(x)), F32(1e7)),
    "tanh": (jnp.tanh, F32(12)),
    "sigmoid": (jax.nn.sigmoid, F32(30)),
    "bfloat16": (lambda x: jnp.tanh(x).sum(), jnp.linspace(-2, 2, 50, dtype=BF16)),
}


@pytest.mark.parametrize(("f", "args"), [(f, args) for f, *args in STABLE.values()], ids=STABLE)
def test_stable_forms_lose_nothing(f, args):
    assert lost(f, *args) == []


# Rounding the argument changes the exact function by as much: no formula is better.
ILL_CONDITIONED = {
    "sine of a large number": (lambda x: jnp.sin(x * x), F32(1000.3)),
    "pole": (lambda x: 1 / (x - 1), F32(1.00001)),
    "difference of arguments": (lambda x: x[0] - x[1], jnp.array([1.0000001, 1], F32)),
    "squared difference": (lambda x: (x[0] - x[1]) ** 2, jnp.array([1.0000001, 1], F32)),
    "sum of arguments": (lambda x: x.sum(), jnp.array([1e8, 1, -1e8, 0.3], F32)),
    "scalar product": (lambda x: x @ jnp.array([1, -1, 1e-4], F32), jnp.array([3.1, 3.1, 1], F32)),
    "power": (lambda x: x**50, F32(1.7)),
    "exponential": (jnp.exp, F32(80)),
    "tangent": (jnp.tan, F32(1.5707)),
    "arccosine": (jnp.arccos, F32(0.9999999)),
    "Hilbert matrix": (lambda b: jnp.linalg.solve(jnp.asarray(HILBERT), b), jnp.ones(4, F32)),
    "what is 0": (lambda x: jnp.sum(x - x.mean()), jnp.array([1.1, 2.3, 3.7], F32)),
}  # fmt: skip


@pytest.mark.parametrize(("f", "x"), ILL_CONDITIONED.values(), ids=ILL_CONDITIONED)
def test_what_rounding_the_arguments_does_as_well_is_no_finding(f, x):
    assert lost(f, x) == []


def test_a_loss_far_below_every_other_number_is_no_error():
    found = lost(naive_softplus, F32(-20))[0]
    assert not found.is_error
    assert "log1p" in found.advice


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant == np.finfo(float).nmant, reason="long doubles are doubles here"
)
@pytest.mark.parametrize(
    ("f", "x"),
    [
        (naive_softplus, 1000.0),
        (naive_softmax, [1000.0, 990.0]),
        (naive_norm, [3e200, 4e200]),
        (naive_deviation, 1e8 + np.arange(4.0)),
        (lambda x: jnp.exp(x) - 1, 1e-18),
    ],
)
def test_double_precision_is_judged_as_well(f, x):
    with double_precision():
        assert lost(f, jnp.asarray(x))[0].is_error


@pytest.mark.parametrize("offset", [0.0, 10.0, 100.0])
def test_the_digits_of_a_variance_are_counted(offset):
    """The naive variance at m has lost 2 log10(m) digits."""
    x = jnp.asarray(offset + np.array([-1.0, -0.2, 0.5, 0.9]), F32)
    found = lost(lambda x: jnp.mean(x**2) - jnp.mean(x) ** 2, x)
    if offset < 100.0:
        assert found == []
    else:
        right, whole = found[0].digits
        assert whole == 6
        assert 1 <= right <= 3


def test_loops_and_calls_are_opened():
    @jax.jit
    def product(x):
        return jax.lax.fori_loop(0, 60, lambda i, y: y * x, x)

    found = lost(lambda x: jnp.log(product(x)), F32(0.05))[0]
    assert (found.loss.kind, found.loss.step.primitive) == ("underflow", "mul")
    assert lost(lambda x: 61 * jnp.log(x), F32(0.05)) == []


def test_the_steps_before_a_loss_are_looked_at_once_each():
    """On all ways through 60 choices between two numbers there would be 2**60."""

    def f(x):
        for _ in range(60):
            x = jnp.where(x > 1, x, x[None].reshape(()))
        return jnp.exp(x) - 1

    assert "expm1" in lost(f, F32(1e-9))[0].advice


def test_check_names_operation_line_and_digits():
    report = check(naive_deviation, jnp.asarray(NEAR_10000, F32), backends=["jax"])
    value, gradient = report.of_kind("precision")
    assert not report.ok
    assert (value.mode, gradient.mode) == ("value", "reverse")
    assert value.title.startswith("value is 0.00316228 in float32, and exactly 1.11804 (0 of 6")
    assert value.location.source == "return jnp.sqrt(jnp.mean(x**2) - jnp.mean(x) ** 2 + 1e-5)"
    assert value.primitive == gradient.primitive == "sub"
    np.testing.assert_allclose(gradient.numbers["exact"], -0.335409, rtol=1e-5)


def test_check_says_why_a_value_is_not_finite():
    report = check(naive_softplus, F32(100), backends=["jax"])
    assert [f.kind for f in report.findings] == ["precision", "precision"]
    assert check(naive_softplus, F32(10), backends=["jax"]).ok
    assert check(jax.nn.softplus, F32(100), backends=["jax"]).findings == ()


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: jnp.log(1 - jnp.exp(-x)), (F32(1e-9),)),
        (naive_cross_entropy, (F32(30), F32(0))),
    ],
    ids=["a staircase", "second derivatives"],
)
def test_digits_that_double_precision_loses_as_well_are_no_fault_of_a_rule(f, args):
    """Differences of a value, or of a gradient, that is made of last digits know nothing better."""
    report = check(f, *args, backends=["jax"])
    assert {f.kind for f in report.findings} == {"precision"}


def test_what_a_choice_drops_from_the_value_is_a_leak_and_not_a_formula_to_rewrite():
    report = check(lambda x: jnp.where(x > 5, jnp.exp(x**3), x), F32(4.9), backends=["jax"])
    (finding,) = report.findings
    assert (finding.kind, finding.mode, finding.primitive) == ("precision", "reverse", "exp")
    assert "drops it from the value" in finding.advice
    assert "pb.cond" in finding.advice


RATES = np.array([1.0, 1.5, 0.3])  # in float64, as NumPy makes it


def closing_over(form):
    """Make the naive softplus of what a NumPy array scales, as programs hold such arrays."""
    body = lambda x: jnp.log(1 + jnp.exp(x * RATES)).sum()  # noqa: E731
    if form == "custom_jvp":
        f = jax.custom_jvp(body)
        f.defjvp(lambda p, t: (f(*p), (RATES * jax.nn.sigmoid(p[0] * RATES)).sum() * t[0]))
        return f
    if form == "scan":
        return lambda x: jax.lax.scan(lambda c, _: (body(x), None), x, None, length=2)[0]
    if form == "vmap of jit":
        return lambda x: jax.vmap(jax.jit(body))(x * jnp.ones(2)).sum()
    return {"plain": body, "jit": jax.jit(body)}[form]


@pytest.mark.parametrize("form", ["plain", "jit", "custom_jvp", "scan", "vmap of jit"])
def test_numpy_arrays_of_the_caller_have_his_precision_before_and_after(form):
    """JAX alone mixes them up: what float64 has converted it takes for float32, and back."""
    f = closing_over(form)
    assert f(F32(1)).dtype == F32
    held = jax.jit(lambda x: x * RATES).lower(F32(1)).compile()
    assert not check(f, F32(100), backends=["jax"]).ok
    assert check(f, F32(1), backends=["jax"]).findings == ()
    assert jax.jit(lambda rates: 2 * rates)(RATES).dtype == held(F32(1)).dtype == F32


def test_second_derivatives_at_tiny_numbers_are_seen_on_their_own_scale():
    x = np.array([3e-25, 4e-25])
    with double_precision():
        assert check(scaled_norm, x, backends=["jax"]).ok

        @jax.custom_jvp
        def cubed(x):
            return x**3 * 1e75

        cubed.defjvp(lambda p, t: (cubed(*p), 3e75 * jax.lax.stop_gradient(p[0]) ** 2 * t[0]))
        (finding,) = check(lambda x: cubed(x) + x, 4e-25, backends=["jax"]).of_kind("second-order")
    assert finding.numbers["jax"] == 0.0
    assert abs(finding.numbers["finite"]) > 1e20


def test_tiny_numbers_beside_others_are_seen_on_their_own_scale():
    args = jnp.array([1e-25, 2e-25, 0], F32), jnp.array([1, 2, 3], F32)
    assert check(scaled_cosine, *args, backends=["jax"]).ok
    with double_precision():
        assert check(lambda x: x / scaled_norm(x), np.array([1e-30, 2e-30]), backends=["jax"]).ok


def test_a_loss_that_is_lost_in_a_one_has_no_wrong_gradient():
    f = lambda x: -jax.nn.log_softmax(x)[0]  # noqa: E731
    assert check(f, jnp.array([60, 0, 1], F32), backends=["jax"]).findings == ()


def test_check_says_nothing_of_an_infinity_that_is_exact():
    report = check(lambda x: jnp.log(x), F32(0.0), backends=["jax"])
    assert report.of_kind("precision") == []
    assert check(jnp.exp, F32(100), backends=["jax"]).of_kind("precision") == []


def test_explain_nan_does_not_call_lost_digits_well():
    why = pb.explain_nan(naive_deviation, jnp.asarray(NEAR_10000, F32))
    assert not why.ok
    assert why.origin.kind == "precision"
    assert why.origin.operation.primitive == "sub"
    assert "two passes" in why.cures[0].text
    assert "exactly 1.11804" in str(why)
    assert pb.explain_nan(lambda x: jnp.sqrt(jnp.var(x) + 1e-5), jnp.asarray(NEAR_10000, F32)).ok


def test_explain_nan_names_the_stable_form_of_a_value_that_overflows():
    why = pb.explain_nan(naive_softplus, F32(100))
    assert (why.mode, why.origin.operation.primitive) == ("value", "exp")
    assert "softplus" in why.cures[0].text


def coarse_backward(dtype):
    """Make an exponential whose backward pass keeps its argument in another dtype."""
    f = jax.custom_vjp(jnp.exp)
    f.defvjp(lambda x: (jnp.exp(x), x.astype(dtype)), lambda x, g: (g * jnp.exp(x.astype(F32)),))
    return f


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_a_backward_pass_in_less_precision_is_found(dtype):
    (finding,) = check(coarse_backward(dtype), F32(3.3), backends=["jax"]).of_kind("precision")
    assert finding.severity == "warning" and finding.mode == "reverse"
    assert "convert_element_type rounds to fewer digits" in finding.title
    assert "backward pass" in finding.advice
    # What the function itself rounds is its own.
    assert not check(lambda x: jnp.exp(x.astype(dtype)).astype(F32), F32(3.3)).findings


def test_a_rule_that_is_wrong_in_one_dtype_alone_is_found():
    f = jax.custom_jvp(lambda x: jnp.sin(x))
    f.defjvp(lambda x, t: (f(*x), t[0] * jnp.cos(x[0]) * (2 if x[0].dtype == F32 else 1)))
    (finding,) = check(f, F32(0.3), backends=["jax"]).findings
    assert (finding.kind, finding.severity, finding.primitive) == (
        "finite",
        "error",
        "custom_jvp_call",
    )
    assert finding.numbers == pytest.approx({"float32": 2 * np.cos(0.3), "float64": np.cos(0.3)})
    # Sensitive to the last digit of its argument, and to no rule.
    assert not check(lambda x: jnp.sin(1e4 * x), F32(3.3)).findings
