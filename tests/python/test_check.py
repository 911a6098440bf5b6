"""`pb.check` on functions without a fault, and its arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from precision import enable_x64
from quick import by_day

import pybridge as pb
from pybridge._errors import ArgumentTypeError, ArgumentValueError, UnknownBackendError
from pybridge.consistency import check
from pybridge.consistency.findings import KINDS, SEVERITIES
from pybridge.consistency.subject import coarsest
from pybridge.finite import double_precision

_UNARY = (jnp.sin, jnp.tanh, jnp.exp, lambda x: x**3, lambda x: 1 / (1 + x**2), jnp.arctan)


def _answer(report, system, mode):
    return next(a for a in report.answers if (a.system, a.mode) == (system, mode))


def test_a_smooth_function_has_no_findings(maybe_jit):
    report = check(maybe_jit(lambda x: jnp.sin(x) ** 2), 0.5)
    assert report.ok
    assert report.findings == ()
    for system, mode in (("jax", "reverse"), ("jax", "forward"), ("finite", "forward")):
        slope = _answer(report, system, mode).derivative["args[0]"]
        np.testing.assert_allclose(slope, np.sin(1.0), rtol=1e-9)
    second = _answer(report, "jax", "second").derivative["args[0]"]
    along = report.probes[0].direction["args[0]"]
    np.testing.assert_allclose(second, 2 * np.cos(1.0) * along, rtol=1e-12)


@settings(max_examples=6, deadline=None)
@example(which=[3, 1], seed=212)
@example(which=[3, 1], seed=257)
@given(
    which=st.lists(st.integers(0, len(_UNARY) - 1), min_size=1, max_size=2),
    seed=st.integers(0, 1000),
)
def test_random_smooth_functions_have_no_findings(which, seed):
    rng = np.random.default_rng(seed)
    w, x = rng.normal(size=(3, 3)), rng.normal(size=3)

    def f(x):
        for k in which:
            x = _UNARY[k](jnp.asarray(w, x.dtype) @ x)
        return x.sum()

    assume(abs(f(np.float32(x))) < 1e6)  # exp of exp overflows
    narrow = jax.grad(f)(np.float32(x))
    with enable_x64(True):
        exact = jax.grad(f)(x)
    # Where a function saturates, its gradient in single precision cancels: a finding, where fewer
    # than half of the digits are left.
    assume(np.allclose(narrow, exact, rtol=np.finfo(np.float32).eps ** 0.5, atol=0))
    assert check(f, x).findings == ()


def test_trees_constants_integers_and_keys_are_fine():
    scale = jnp.full(2, 3.0, jnp.float32)

    def f(p, x, n, key, name):
        assert name == "tanh"
        noise = jax.random.normal(key, (2,))
        return {"y": jnp.tanh(p["w"] @ x) * scale.astype(x.dtype) * n, "z": (noise * x).sum()}

    w = np.ones((2, 2), np.float32)
    report = check(f, {"w": w}, np.array([0.5, -1.0]), 3, jax.random.key(0), "tanh")
    assert report.findings == ()
    assert set(_answer(report, "jax", "reverse").derivative) == {"args[0]['w']", "args[1]"}
    assert set(report.probes[0].weights) == {"value['y']", "value['z']"}


def test_jit_scan_cond_vmap_and_custom_rules_are_fine():
    @jax.custom_jvp
    def cube(x):
        return x**3

    @cube.defjvp
    def _(primals, tangents):
        return cube(*primals), 3 * primals[0] ** 2 * tangents[0]

    def f(x):
        total, ys = jax.lax.scan(lambda c, a: (jnp.sin(c) + a, c), jnp.zeros((), x.dtype), x)
        y = jax.lax.cond(total > 100, jnp.cos, jnp.sin, total)
        return y + jax.vmap(cube)(x).sum() + jax.checkpoint(jnp.tanh)(ys).sum()

    assert check(f, np.array([0.3, -0.7, 1.1])).findings == ()


@pytest.mark.parametrize("x", [1.0 + 2.0j, np.array([0.5 - 1.0j, 2.0 + 0.1j])])
def test_complex_arguments_and_values_are_fine(x):
    report = check(lambda z: 1j * z**2 + jnp.conj(z), x)
    assert report.findings == ()
    by_differences = _answer(report, "finite", "forward").derivative["args[0]"]
    by_jax = _answer(report, "jax", "reverse").derivative["args[0]"]
    np.testing.assert_allclose(by_differences, by_jax, rtol=1e-8)


def test_a_function_that_jax_cannot_trace_is_fine():
    report = check(lambda x: x**2 if x > 0 else -x, 2.0)
    assert report.findings == ()
    assert report.sources == {}


def test_many_inputs_are_compared_along_directions():
    x = np.random.default_rng(0).normal(size=1000)
    report = check(lambda x: jnp.sum(jnp.tanh(x) * jnp.roll(x, 1)), x)
    assert report.findings == ()
    assert _answer(report, "finite", "forward").derivative is None
    assert _answer(report, "jax", "forward").deviation < 1e-8


def test_every_probe_is_a_point():
    names = ("large", "small", "zeros", "ties", "random")
    report = check(lambda x: jnp.sum(x * jnp.tanh(x)), np.arange(1.0, 4.0), probes=names)
    assert report.findings == ()
    found = [probe.name for probe in report.probes]
    assert found == ["given", "large", "small", "zeros", "ties", "random 1", "random 2"]
    points = {probe.name: np.asarray(probe.args[0]) for probe in report.probes}
    np.testing.assert_array_equal(points["large"], [1000.0, 2000.0, 3000.0])
    np.testing.assert_array_equal(points["ties"], [1.0, 1.0, 1.0])


def test_the_same_seed_gives_the_same_report():
    def f(x):
        return jnp.stack([jnp.sin(x), jnp.abs(x)])

    one, two, other = (check(f, 0.0, seed=seed) for seed in (1, 1, 2))
    assert [f.title for f in one.findings] == [f.title for f in two.findings]
    weights = [report.probes[0].weights["value"] for report in (one, two, other)]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_progress_is_told_and_the_program_shown():
    lines = []
    report = check(jnp.sin, 1.0, progress=lines.append)
    assert any("jax, reverse" in line for line in lines)
    assert "sin" in report.sources["jaxpr"]
    assert [backend.name for backend in report.systems] == ["jax", "finite"]


def test_systems_that_cannot_take_python_functions_are_absent_only_if_asked_for(no_julia):
    report = check(jnp.sin, 1.0, backends=("jax", "zygote"))
    assert {b.name: b.reason for b in report.systems if not b.available} == {"zygote": no_julia}
    assert report.findings == ()


def test_a_function_that_needs_single_precision_is_checked_in_it():
    start = jnp.zeros((), jnp.float32)

    def f(x):
        return jax.lax.scan(lambda c, a: (c + a * a, None), start, x)[0]

    report = check(f, jnp.array([1.0, 2.0], jnp.float32))
    assert report.ok
    np.testing.assert_allclose(_answer(report, "jax", "reverse").derivative["args[0]"], [2, 4])


@pytest.mark.parametrize("seed", ["a", 1.5, -1])
def test_a_seed_is_a_natural_number(seed):
    with pytest.raises(pb.ArgumentValueError, match="at least 0 as `seed`"):
        check(jnp.sin, 1.0, backends=["jax"], seed=seed)


def test_bad_input_is_refused_at_once():
    with pytest.raises(ArgumentTypeError, match="a function"):
        check(3.0, 1.0)
    with pytest.raises(ArgumentTypeError, match="floating-point"):
        check(lambda n: n + 1, 3)
    with pytest.raises(ArgumentTypeError, match="floating-point"):
        check(lambda x: 3, 1.0)
    with pytest.raises(ArgumentValueError, match=r"ZeroDivisionError: division by zero"):
        check(lambda x: 1 / 0, 1.0)
    with pytest.raises(ArgumentValueError, match="probes among"):
        check(jnp.sin, 1.0, probes=("huge",))
    with pytest.raises(UnknownBackendError):
        check(jnp.sin, 1.0, backends=("abacus",))


def test_kinds_and_severities_are_those_of_the_contract():
    for f, x in ((jnp.abs, 0.0), (jnp.sqrt, 0.0), (lambda x: x * np.random.rand(), 1.0)):
        for finding in check(f, x).findings:
            assert finding.kind in KINDS
            assert finding.severity in SEVERITIES
            assert finding.title and not finding.title.endswith(".")
            assert finding.advice


def test_within_gradient_is_a_note(maybe_jit):
    f = maybe_jit(lambda x: pb.cond(pb.within_gradient(x), lambda v: v**2, lambda v: v, x))
    report = check(f, 2.0)
    assert report.ok
    (finding,) = report.findings
    assert (finding.kind, finding.severity) == ("mode-dependent", "note")
    assert finding.primitive == "within_gradient"
    assert "test_check.py" in str(finding.location)


# --- numbers that are narrower than the arguments -------------------------------------------


def test_a_function_that_computes_in_single_precision_inside_has_no_findings():
    q, k, v = np.sin(np.arange(72.0)).reshape(3, 1, 4, 2, 3)
    assert check(jax.nn.dot_product_attention, q, k, v).findings == ()


@pytest.mark.parametrize("scale", by_day([1.0, -3.0, 0.4, 2.2], [-3.0]))
def test_noise_of_a_function_that_jax_cannot_trace_is_no_kink(scale):
    def f(x):
        y = jnp.sin(scale * x.astype(jnp.float32)) if x[0] < 9 else x
        return jnp.sum(jnp.exp(y).astype(x.dtype))

    assert check(f, np.array([0.3, -0.7])).findings == ()


def test_a_fault_in_a_function_that_computes_in_single_precision_is_found():
    sine = jax.custom_jvp(jnp.sin)
    sine.defjvp(lambda xs, vs: (jnp.sin(xs[0]), 1.01 * jnp.cos(xs[0]) * vs[0]))
    report = check(lambda x: jnp.sum(sine(x.astype(jnp.float32))), np.array([0.3, -0.7]))
    assert [f.kind for f in report.findings if f.severity == "error"] == ["finite"]


def test_only_numbers_between_arguments_and_value_count_as_narrow():
    table = jnp.asarray(np.linspace(0.0, 1.0, 3), jnp.float32)

    def loops(x):
        start = jnp.zeros((), jnp.float32), jnp.zeros((), x.dtype)

        def step(carry, a):
            return (carry[0] + jnp.float32(1.0), carry[1] + a * jnp.sin(a)), carry[0]

        (_, total), _ = jax.lax.scan(step, start, x)
        return total + jnp.sum(table).astype(x.dtype)

    with double_precision():
        x = jnp.ones(3)
        assert coarsest(jax.make_jaxpr(loops)(x)) == np.finfo(np.float64).eps
        narrow = jax.jit(lambda x: jnp.sum(x.astype(jnp.float32)).astype(x.dtype))
        assert coarsest(jax.make_jaxpr(narrow)(x)) == np.finfo(np.float32).eps


def test_a_value_that_changes_in_its_last_digit_is_no_jump():
    assert check(jax.nn.tanh, np.array([-20.0, 20.0])).findings == ()


def test_a_real_jump_and_a_real_vertical_slope_are_seen_on_a_large_value():
    def kinds(f):
        return [f.kind for f in check(f, np.array([0.0])).findings]

    assert kinds(lambda x: 1e6 + jnp.where(x > 0, 1e-3, 0.0) + 0 * x) == ["special-case"]
    assert kinds(lambda x: 1e3 + jnp.cbrt(x)) == ["non-finite"]


def test_second_derivatives_where_tanh_is_1_have_no_findings():
    assert check(lambda x: jnp.diff(jnp.tanh(x)), np.array([-18.773, 21.024])).findings == ()


def _normalise(x):
    return x / jnp.sqrt(x**2 + 1e-12)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: 1 / x, np.array([1.1e-6])),
        (lambda x: 1 / x, 3.9e-5),
        (jnp.log, np.array([1.1e-10])),
        (lambda p: -(jnp.log(p[0]) + jnp.log1p(-p[1])), np.array([1e-6, 0.3])),
        (lambda x: x / (x + 1e-8), np.array([1e-8, 1.0])),
        (_normalise, np.array([0.0, 1e-6])),
        (lambda x: jnp.tanh(x / 1e-4), 1.3e-4),
        (lambda x: jnp.exp(-((x / 1e-4) ** 2)), 1.3e-4),
        (lambda t: jnp.sin(t * 1e4), 3.7),
        (lambda t: jnp.sin(2 * np.pi * 1e6 * t), 0.37),
        (jnp.sin, np.array([1.1e6])),
        (jnp.sin, np.full(50, 1.1e6)),
    ],
)
def test_functions_that_change_over_short_lengths_have_no_findings(f, x):
    assert check(f, x, backends=["jax"]).findings == ()


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (jax.nn.softmax, (np.array([-np.inf, 1.0, 2.0]),)),
        (jax.nn.softmax, (np.array([-np.inf] * 60 + [1.0, 2.0]),)),
        (lambda x: jnp.exp(-x), (np.array([np.inf, 1.0]),)),
        (jnp.clip, (np.array([1.0, 2.0]), -np.inf, np.inf)),
    ],
)
def test_infinite_arguments_with_finite_derivatives_have_no_findings(f, args):
    assert check(f, *args, backends=["jax"]).findings == ()


def test_a_callback_that_declares_single_precision_is_checked_in_it():
    @jax.custom_jvp
    def sine(x):
        shape = jax.ShapeDtypeStruct(x.shape, jnp.float32)
        return jax.pure_callback(lambda x: np.sin(x), shape, x)

    sine.defjvp(lambda xs, ts: (sine(*xs), ts[0] * jnp.cos(xs[0])))
    report = check(sine, np.ones(2, np.float32), backends=["jax"])
    assert report.ok, report.findings


def test_an_exception_of_a_callback_is_named():
    def f(x):
        return jax.pure_callback(lambda x: 1 / 0, jax.ShapeDtypeStruct((), x.dtype), x)

    with pytest.raises(ArgumentValueError, match="ZeroDivisionError: division by zero"):
        check(f, jnp.float32(1.0), backends=["jax"])


def test_arguments_without_elements_have_no_findings():
    assert check(jnp.sum, np.zeros(0), backends=["jax"]).findings == ()
    assert check(lambda x: 2 * x, np.zeros((0, 3)), backends=["jax"]).findings == ()


def test_without_jit_the_same_is_found():
    x = jnp.array([100.0, 1.0], jnp.float32)
    for f in (lambda x: jnp.sum(jnp.sin(x)), lambda x: jnp.log(jnp.sum(jnp.exp(x)))):
        want = check(f, x, backends=["jax"])
        with jax.disable_jit():
            found = check(f, x, backends=["jax"])
        assert [f.kind for f in found.findings] == [f.kind for f in want.findings]
        assert _answer(found, "jax", "second").derivative is not None
    assert not want.ok  # it overflows in single precision


def test_a_dtype_is_no_number():
    report = check(lambda x, dtype: x.astype(dtype), np.ones(2), np.float32, backends=["jax"])
    assert report.ok
    assert set(_answer(report, "jax", "reverse").derivative) == {"args[0]"}


def test_no_system_is_refused():
    with pytest.raises(ArgumentValueError, match="at least one AD system"):
        check(jnp.sin, 1.0, backends=[])
