"""Findings name the user's line and words, once; what a system refuses is a note."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pybridge as pb
from pybridge.consistency import Finding, check
from pybridge.consistency.detectors._julia_functions import explain_in_julia
from pybridge.consistency.subject import is_unsupported
from pybridge.interop import Sighting
from pybridge.jaxprs import Location


def truncated(x):
    return (jnp.sin(x).astype(jnp.float32) * 2).astype(x.dtype).sum()


def test_a_cast_to_single_precision_in_a_function_of_double_precision_is_a_note():
    report = check(truncated, np.array([0.3, 0.5]), backends=["jax"])
    (finding,) = report.findings
    assert (finding.kind, finding.severity) == ("precision", "note")
    assert "float32 leaves 6 digits" in finding.title
    assert finding.location.source.startswith("return (jnp.sin(x).astype(jnp.float32)")
    assert check(truncated, jnp.array([0.3, 0.5]), backends=["jax"]).findings == ()


def test_the_advice_for_a_norm_at_0_is_in_the_callers_words():
    why = pb.explain_nan(lambda d: jnp.linalg.norm(d * 2), jnp.zeros(3))
    assert "jnp.linalg.norm(d * 2)" in why.cures[0].text
    assert "sqrt" not in why.cures[0].text
    assert why.cures[0].verified


def test_the_advice_uses_no_name_of_the_caller():
    ok, x = 3.0, 2.0

    def f(y):
        return jnp.sqrt(jnp.abs(y)) * ok * x * 0.0

    why = pb.explain_nan(lambda y: jnp.sqrt(y * y) + 0 * f(y + 1), jnp.float32(0.0))
    text = why.cures[0].text
    assert "`ok" not in text
    # This file has both of the shorter names.
    is_smooth = "has" + "_slope"
    assert f"`{is_smooth} = y * y != 0.0`" in text


def test_equal_eigenvalues_are_one_finding():
    def f(matrix):
        _, vectors = jnp.linalg.eigh(matrix)
        return (vectors**3).sum()

    report = check(f, np.eye(3), backends=["jax"])
    assert [finding.kind for finding in report.findings] == ["non-finite"]
    assert "eigenvalues" in report.findings[0].advice


def test_a_wrong_second_derivative_has_the_line_of_the_rule():
    @jax.custom_jvp
    def cube(x):
        return x**3

    cube.defjvp(lambda p, t: (cube(*p), 3 * jax.lax.stop_gradient(p[0]) ** 2 * t[0]))
    (finding,) = check(lambda x: cube(x) + x, 1.3, backends=["jax"]).findings
    assert finding.kind == "second-order"
    assert "cube(x) + x" in finding.location.source


def test_rounding_between_smooth_parts_has_its_line():
    finding = check(lambda x: x + jnp.round(x * 1e9) / 1e9, 1.2345, backends=["jax"]).findings[0]
    assert finding.primitive == "round"
    assert "jnp.round" in finding.location.source


def test_a_cast_to_whole_numbers_between_smooth_parts_has_its_line():
    def f(x):
        return x + (x * 1e9).astype(int).astype(x.dtype) / 1e9

    finding = check(f, jnp.float32(1.2345), backends=["jax"]).findings[0]
    assert finding.primitive == "convert_element_type"
    assert "astype(int)" in finding.location.source


# --- what a system cannot do --------------------------------------------------------------------


def noisy(x, key):
    return (x * jax.random.normal(key, (3,))).sum()


def test_a_key_among_the_arguments_is_no_error():
    report = check(noisy, np.ones(3), jax.random.key(0), backends=["jax", "finite"])
    assert report.findings == ()
    assert "jax" in report.to_json() and "jax" in str(report)


def test_finite_differences_take_keys():
    key = jax.random.key(0)
    with pb.finite.double_precision():
        expected = jax.grad(noisy)(jnp.ones(3), key)
        found = pb.grad(noisy, backend="finite")(jnp.ones(3), key)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("Differentiation rule for 'x' not implemented"),
        pb.LoweringError("no such primitive"),
        TypeError("can't apply forward-mode autodiff (jvp) to a custom_vjp function."),
    ],
)
def test_a_refusal_is_no_failure(error):
    assert is_unsupported(error)
    assert not is_unsupported(ValueError("no"))


def test_a_function_with_a_reverse_rule_alone_is_right():
    square = jax.custom_vjp(lambda x: x**2)
    square.defvjp(lambda x: (x**2, x), lambda x, ct: (2 * x * ct,))
    report = check(square, 1.5, backends=["jax"])
    assert report.ok
    assert {f.severity for f in report.findings} == {"note"}


def test_a_mutation_that_no_system_refuses_is_a_finding():
    seen = {"writes": Sighting("writes", "setindex!", Location("julia source", 1, "f", "y[1] = x"))}
    sightings = SimpleNamespace(first=lambda *kinds: seen.get(kinds[0]) if kinds else None)
    subject = SimpleNamespace(sightings=sightings, name="f")
    point = SimpleNamespace(subject=subject, probe=SimpleNamespace(name="given"))
    wrong = Finding(
        "minority", "error", "yota gives 2", ("yota",), numbers={"yota": 2.0, "finite": 4.0}
    )
    (finding,) = explain_in_julia([wrong], point)
    assert finding.title == "the function mutates an array: yota gives 2 for 4 without a word"
    assert finding.location.line == 1


NOT_LINEAR = {
    "abs": lambda x, t: jnp.cos(x) * jnp.abs(t),
    "square": lambda x, t: jnp.cos(x) * t**2,
    "bounded": lambda x, t: jnp.maximum(jnp.cos(x) * t, -0.5),
    "shifted": lambda x, t: jnp.cos(x) * t + 1.0,
}


@pytest.mark.parametrize("name", NOT_LINEAR)
@pytest.mark.parametrize("x", [np.float32(0.4), np.array([0.5, 1.3])])
def test_a_forward_rule_that_is_not_linear_is_found(name, x):
    f = jax.custom_jvp(lambda x: jnp.sin(x))
    f.defjvp(lambda x, t: (jnp.sin(x[0]), NOT_LINEAR[name](x[0], t[0])))
    finding = next(f for f in check(f, x, backends=["jax"]).findings if "not linear" in f.title)
    assert (finding.kind, finding.severity, finding.mode) == ("finite", "error", "forward")
    assert finding.location.file == __file__ and finding.primitive == "custom_jvp_call"


def test_linear_forward_rules_are_no_finding():
    f = jax.custom_jvp(lambda x: jnp.sin(x))
    f.defjvp(lambda x, t: (jnp.sin(x[0]), jnp.cos(x[0]) * t[0]))
    for dtype in (np.float32, np.float16):
        assert not check(lambda x: f(x).sum(), np.array([0.4, 2], dtype), backends=["jax"]).findings
