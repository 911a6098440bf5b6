"""Each kind of fault is found by `pb.check`, and named with its place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pybridge as pb
from pybridge.consistency import check, to_html
from pybridge.consistency.subject import Subject


def only(report, kind):
    (finding,) = report.of_kind(kind)
    return finding


def with_rule(function, value, slope):
    """Give a function a custom_jvp rule with any value and slope."""
    f = jax.custom_jvp(function)
    f.defjvp(lambda primals, tangents: (value(*primals), slope(*primals) * tangents[0]))
    return f


def with_pullback(function, slope):
    f = jax.custom_vjp(function)
    f.defvjp(lambda x: (function(x), x), lambda x, ct: (slope(x) * ct,))
    return f


# --- rules --------------------------------------------------------------------------------


def test_a_rule_with_another_value_is_named_where_the_program_amplifies_it():
    rounded = with_rule(lambda x: jnp.where(jnp.abs(x) < 1e-12, 0.0, x), lambda x: x, lambda x: 1.0)
    report = check(lambda x: jnp.arctan2(rounded(x), 0.0), 1e-15)
    finding = only(report, "value")
    assert finding.severity == "error"
    assert finding.title == "value under differentiation 1.5707963, plain value 0"
    assert finding.primitive == "custom_jvp_call"
    assert "rounded(x)" in finding.location.source


@pytest.mark.parametrize("factor", [jnp.conj, jnp.negative, lambda z: z * jnp.exp(0.1j)])
def test_a_rule_that_is_wrong_for_complex_numbers_alone_has_its_place(factor):
    square = jax.custom_vjp(lambda z: z * z)
    square.defvjp(lambda z: (z * z, z), lambda z, ct: (2 * factor(z) * ct,))
    z = jnp.array([1 + 2j, 0.3 - 1j])
    finding = only(check(lambda z: jnp.sum(jnp.abs(square(z) - 1) ** 2), z), "finite")
    assert (finding.severity, finding.primitive) == ("error", "custom_vjp_call")
    assert "square(z)" in finding.location.source


def test_a_value_that_is_off_in_single_precision_only_is_found():
    def value(x):
        return jnp.sin(x) * (1.001 if x.dtype == jnp.float32 else 1.0)

    off = with_rule(jnp.sin, value, jnp.cos)
    finding = only(check(off, jnp.float32(0.3)), "value")
    np.testing.assert_allclose(finding.numbers["jax"], 1.001 * np.sin(0.3), rtol=1e-6)


def test_a_value_that_is_off_in_single_precision_only_has_its_rule_beside_effects():
    def value(x):
        return jnp.sin(x) * (1.001 if x.dtype == jnp.float32 else 1.0)

    off = with_rule(jnp.sin, value, jnp.cos)

    def watched(x):
        jax.debug.callback(lambda x: None, x)
        return off(x)

    finding = only(check(watched, jnp.float32(0.3), backends=["jax"]), "value")
    assert (finding.severity, finding.primitive) == ("error", "custom_jvp_call")


def test_a_value_that_is_off_and_masked_afterwards_is_found():
    off = with_rule(jnp.sin, lambda x: jnp.sin(x) * 1.001, jnp.cos)
    finding = only(check(lambda x: 0.0 * off(x) + x**2, 0.3), "value")
    assert "does not reach the value" in finding.advice


@pytest.mark.parametrize("size", [3, 500])
@pytest.mark.parametrize("slope", [lambda x: -2 * x, lambda x: 2.002 * x], ids=["sign", "scale"])
def test_a_wrong_forward_rule_is_found_and_named(slope, size):
    square = with_rule(lambda x: x**2, lambda x: x**2, slope)
    x = np.linspace(1.0, 2.0, size)
    report = check(lambda x: jnp.sum(jnp.sin(x)) + square(x[1]), x)
    finding = only(report, "finite")
    assert (finding.argument, finding.element) == ("args[0]", (1,))
    assert finding.primitive == "custom_jvp_call"
    assert "square(x[1])" in finding.location.source
    np.testing.assert_allclose(finding.numbers["finite"], np.cos(x[1]) + 2 * x[1], rtol=1e-8)


def test_a_wrong_pullback_is_found():
    square = with_pullback(lambda x: x**2, lambda x: 2.002 * x)
    report = check(lambda x: square(x) + x, 0.5)
    assert only(report, "finite").primitive == "custom_vjp_call"
    assert only(report, "unsupported").severity == "note"


def test_a_transposed_index_is_found():
    f = jax.custom_vjp(lambda x: jnp.sum(x @ x))
    f.defvjp(lambda x: (jnp.sum(x @ x), x), lambda x, ct: (ct * (x.sum(0) + x.sum(1)[:, None]),))
    assert not check(f, np.arange(9.0).reshape(3, 3)).ok


def test_a_second_derivative_that_is_cut_off_is_found():
    cube = with_rule(lambda x: x**3, lambda x: x**3, lambda x: 3 * jax.lax.stop_gradient(x) ** 2)
    finding = only(check(cube, 0.5), "second-order")
    assert finding.mode == "second"
    assert finding.numbers["jax"] == 0.0


def centred(x):
    return jnp.sum((x - jax.lax.stop_gradient(jnp.mean(x))) ** 2)


def last_step_of_newton(a):
    y = jax.lax.stop_gradient(jax.lax.fori_loop(0, 30, lambda i, y: 0.5 * (y + a / y), a))
    return y - (y * y - a) / (2 * y)


@pytest.mark.parametrize(
    ("f", "x"), [(centred, np.array([1.0, 2.0, 4.0])), (last_step_of_newton, 2.0)]
)
def test_a_gradient_stopped_where_the_first_derivative_is_right_is_no_error_of_the_second(f, x):
    (finding,) = check(f, x, backends=["jax"]).findings
    assert (finding.kind, finding.severity) == ("second-order", "warning")
    assert finding.primitive == "stop_gradient" and "stop_gradient" in finding.location.source
    assert "on purpose" in finding.advice


def test_a_stopped_gradient_is_a_warning_with_its_line():
    finding = only(check(lambda x: x * jax.lax.stop_gradient(x), 2.0), "finite")
    assert finding.severity == "warning"
    assert finding.primitive == "stop_gradient"


def test_a_gradient_that_jax_itself_stops_is_no_excuse():
    matrix = jnp.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0], [1.0, 1.0, 0.0]])

    # The matrix is a constant of the rule; `log_softmax` holds a stop_gradient.
    @jax.jit
    def transposed(x):
        return rule(jax.nn.log_softmax(x)).sum()

    @jax.custom_vjp
    def rule(x):
        return matrix @ x

    rule.defvjp(lambda x: (matrix @ x, None), lambda _, ct: (matrix @ ct,))
    finding = only(check(transposed, jnp.array([0.1, 0.7, -0.4])), "finite")
    assert finding.severity == "error"
    assert finding.primitive == "custom_vjp_call"
    assert finding.advice.startswith("The custom rule of rule is wrong")


def test_numbers_that_are_nearly_equal_are_shown_apart():
    f = with_rule(jnp.sin, jnp.sin, lambda x: jnp.cos(x) * (1 + 3e-8))
    finding = only(check(f, 0.0), "finite")
    assert finding.title == "jax gives 1.00000003, where differences give 1"


def test_a_variance_of_equal_numbers_has_no_second_derivative_to_compare():
    def f(x):
        return jnp.var(jnp.exp(-((1e-8 * x) ** 2)))

    assert check(f, jnp.array([0.3, 0.7, -0.2, 1.4])).findings == ()


@pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="jax 0.7 notes the line of the check")
def test_a_rule_that_is_checked_itself_has_the_line_of_its_function():
    @jax.custom_jvp
    def decay(x):
        return jnp.exp(-x)

    decay.defjvp(lambda primals, tangents: (decay(*primals), decay(*primals) * tangents[0]))
    (finding,) = check(decay, 0.7, backends=["jax"]).findings
    assert finding.location.file == __file__
    assert finding.location.source in ("@jax.custom_jvp", "def decay(x):")
    assert finding.advice.startswith("The custom rule of decay is wrong")
    assert "leave it out" in finding.advice


def test_a_derivative_that_follows_from_another_value_says_so():
    @jax.custom_vjp
    def grow(x):
        return jnp.exp(x)

    grow.defvjp(lambda x: (2 * jnp.exp(x), x), lambda x, g: (g * jnp.exp(x),))
    report = check(lambda x: jnp.log(grow(x) + 1), 0.3, backends=["jax"])
    value, derivative = (f for f in report.findings if f.severity == "error")
    assert (value.kind, derivative.kind) == ("value", "finite")
    assert value.location == derivative.location
    assert "follows from the other value" in derivative.advice


# --- indices ------------------------------------------------------------------------------


def test_an_index_out_of_bounds_is_named_once_where_modes_differ_by_it():
    report = check(lambda x: x[jnp.array([0, 5])].sum(), np.array([1.0, 2.0, 3.0]))
    finding = only(report, "out-of-bounds")
    assert finding.primitive == "gather"
    assert finding.numbers == {"index": 5, "axis": 0, "size": 3}
    assert "jnp.array([0, 5])" in finding.location.source
    assert "pb.take" in finding.advice
    assert not report.ok
    assert report.findings == (finding,)


@pytest.mark.parametrize("mode", [None, "clip"])
def test_the_advice_for_a_write_out_of_bounds_is_about_writing(mode):
    f = lambda x: (x.at[jnp.array([1, 7])].add(x[:2], mode=mode) ** 2).sum()  # noqa: E731
    findings = check(f, np.ones(3), backends=["jax"]).findings
    if mode is None:
        assert 'set(y, mode="clip")' in findings[0].advice
    assert len(findings) == (mode is None)


@pytest.mark.parametrize(
    ("f", "index", "axis"),
    [
        (lambda x: jax.lax.dynamic_slice(x, (1, 2), (2, 2)).sum(), 3, 1),
        (lambda x: x.at[7].add(1.0).sum(), 7, 0),
        (lambda x: jnp.nansum(jnp.take(x, 9, axis=1)), 9, 1),
        (lambda x: jax.lax.scan(lambda c, i: (c + x[i, 0], None), x[0, 0], jnp.arange(5))[0], 3, 0),
        (jax.jit(lambda x: jax.vmap(lambda i: jnp.take(x[:, 1], i))(jnp.arange(4)).sum()), 3, 0),
        (lambda x: jax.vmap(lambda i: x[i])(jnp.arange(4)).sum(), 3, 0),
    ],
)
def test_indices_are_followed_through_programs(f, index, axis):
    finding = check(f, np.ones((3, 3)) + np.eye(3)).of_kind("out-of-bounds")[0]
    assert (finding.numbers["index"], finding.numbers["axis"]) == (index, axis)
    assert finding.location is not None


def test_a_clipped_index_is_fine():
    f = lambda x: x.at[jnp.array([0, 5])].get(mode="clip").sum()  # noqa: E731
    assert check(f, np.array([1.0, 2.0, 3.0])).findings == ()


def test_a_number_that_was_chosen_to_fill_with_is_fine():
    x, chosen = np.array([1.0, 2.0, 3.0]), {"mode": "fill", "fill_value": 0.0}
    f = lambda x: jnp.take(x, jnp.array([0, 5]), **chosen).sum()  # noqa: E731
    assert check(f, x).findings == ()
    f = lambda x: jnp.nansum(jnp.take(x, jnp.array([0, 5])))  # noqa: E731
    assert "out-of-bounds" in [finding.kind for finding in check(f, x).findings]


# --- NaN, kinks and special points --------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: ((jnp.array([0.0, 1.0]) * x) ** 0.5)[jnp.array([0.0, 1.0]) * x > 0].sum(), 1.0),
        (lambda x: jnp.where(x > 0, jnp.log(x), 0 * x), 0.0),
        (lambda x: jnp.where(x == 0, jnp.ones_like(x), jnp.sin(x) / x), 0.0),
    ],
    ids=["19089", "log", "sinc"],
)
def test_a_nan_that_leaks_through_where_is_an_error(f, x):
    finding = only(check(f, x), "non-finite")
    assert (finding.severity, finding.systems, finding.mode) == ("error", ("jax",), "reverse")


def test_nan_in_single_precision_only_is_found():
    report = check(lambda x: jnp.sqrt(jnp.exp(-x)), jnp.float32(110.0))
    worst = report.of_kind("precision")[0]
    assert (worst.severity, worst.mode) == ("error", "reverse")
    assert "float32" in worst.title


def test_an_infinite_slope_that_is_right_is_a_note():
    finding = only(check(jnp.sqrt, 0.0), "non-finite")
    assert finding.severity == "note"


def test_a_norm_at_zero_is_an_error():
    finding = only(check(lambda x: jnp.sqrt(jnp.sum(x**2)), np.zeros(2)), "non-finite")
    assert finding.severity == "error"
    assert finding.numbers["places"] == 2


@pytest.mark.parametrize(
    ("f", "x", "left", "right"),
    [
        (jax.nn.relu, 0.0, 0.0, 1.0),
        (jnp.abs, 0.0, -1.0, 1.0),
        (jnp.max, np.array([2.0, 1.0, 2.0]), 0.0, 1.0),
        (lambda x: jnp.maximum(x, 1.0), 1.0, 0.0, 1.0),
        (lambda x: jnp.clip(3 * x, 0.0, 1.0), 0.0, 0.0, 3.0),
        (lambda x: jnp.abs(x) * jnp.ones(1), 0.0, -1.0, 1.0),
    ],
)
def test_a_kink_is_a_note_with_both_slopes(f, x, left, right):
    report = check(f, x)
    assert report.ok
    finding = only(report, "kink")
    assert finding.severity == "note"
    assert finding.primitive in ("max", "abs", "reduce_max", "clamp", "min")
    np.testing.assert_allclose(finding.numbers["left"], left, atol=1e-6)
    np.testing.assert_allclose(finding.numbers["right"], right, atol=1e-6)
    curve = report.curves[0]
    assert np.all(np.diff(curve.steps) > 0) and 0.0 in curve.steps
    assert left <= curve.choices["jax"] <= right


def test_a_choice_outside_of_the_slopes_is_an_error():
    wrong = with_rule(jnp.abs, jnp.abs, lambda x: jnp.where(x >= 0, 2.0, -1.0))
    assert [f.severity for f in check(wrong, 0.0).of_kind("kink")] == ["error"]


def test_outputs_with_kinks_of_different_signs_are_no_error():
    assert check(lambda x: jnp.stack([jax.nn.relu(x), jax.nn.relu(-x)]), 0.0).ok


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_solver_whose_transpose_is_wrong_is_named_with_its_line(factor):
    def f(b):
        a = jnp.array([[2.0, 1.0], [0.5, 3.0]])
        back = lambda _, ct: factor * jnp.linalg.solve(a.T, ct)  # noqa: E731
        return jnp.sum(
            lax.custom_linear_solve(
                lambda x: a @ x, b, lambda _, b: jnp.linalg.solve(a, b), transpose_solve=back
            )
        )

    report = check(f, np.array([1.0, 2.0]))
    if factor == 1.0:
        assert report.ok
        return
    finding = only(report, "reverse-forward")
    assert finding.primitive == "custom_linear_solve"
    assert "custom_linear_solve(" in finding.location.source
    assert "custom_linear_solve is wrong" in finding.advice


def test_a_kink_among_many_inputs_is_located_and_the_rest_compared():
    x = np.concatenate([[0.0], np.linspace(0.5, 2.0, 200)])
    report = check(lambda x: jnp.sum(jnp.abs(x)), x)
    assert report.ok
    assert only(report, "kink").element == (0,)
    wrong = with_rule(lambda x: x**2, lambda x: x**2, lambda x: 2.1 * x)
    report = check(lambda x: jnp.sum(jnp.abs(x)) + wrong(x[5]), x)
    assert only(report, "finite").element == (5,)


def test_a_shortcut_at_one_point_is_found():
    report = check(lambda x: jnp.ones_like(x) if x == 1 else x**2, 1.0)
    finding = only(report, "special-case")
    assert finding.severity == "error"
    np.testing.assert_allclose([finding.numbers["jax"], finding.numbers["finite"]], [0.0, 2.0])


def test_a_product_that_stops_at_zero_is_found():
    def f(x):
        product = 1.0
        for factor in x:
            product = product * factor
            if product == 0:
                break
        return product

    finding = only(check(f, np.array([0.0, 2.0, 3.0])), "special-case")
    np.testing.assert_allclose([finding.numbers["jax"], finding.numbers["finite"]], [1.0, 6.0])


def test_a_step_is_a_note():
    report = check(lambda x: jnp.heaviside(x, 0.5) + x, 0.0)
    assert report.ok
    assert only(report, "special-case").severity == "note"


# --- everything else ----------------------------------------------------------------------


_RNG = np.random.default_rng(0)


def _by_callback(x):
    dtype = jnp.result_type(x)
    shape = jax.ShapeDtypeStruct((), dtype)
    return x * jax.pure_callback(lambda: np.asarray(_RNG.uniform(), dtype), shape)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * _RNG.uniform(),
        lambda x: jnp.sum(x * _RNG.uniform(size=3)),
        lambda x: jnp.sum(jax.random.normal(jax.random.key(_RNG.integers(99)), (2,)) * x),
        lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * _RNG.uniform(), x),
        lambda x: float(x) * _RNG.uniform(),
        _by_callback,
    ],
    ids=["number", "array", "key", "in a loop", "not traced", "callback"],
)
def test_a_function_that_is_not_deterministic_is_found(f):
    assert only(check(f, 1.0), "random").numbers["difference"] > 0


def test_what_the_trace_shows_is_not_run_again():
    """Tracing twice shows that nothing changes: constants, keys and rules are the same."""
    table, key = np.arange(3.0), jax.random.key(1)

    def f(x):
        noise = jax.random.normal(key, (3,))
        return jnp.sum(jax.nn.softplus(x) * table + noise)

    assert not check(f, np.ones(3)).findings
    assert Subject(f, (np.ones(3),)).repeat() == ((), ())


def test_a_loop_without_reverse_mode_is_a_note():
    f = lambda x: jax.lax.while_loop(lambda c: c < 10.0, lambda c: c * 2, x)  # noqa: E731
    report = check(f, 1.5)
    assert report.ok
    assert {f.kind for f in report.findings} == {"unsupported"}


def test_an_exception_in_a_rule_is_a_finding_and_no_crash():
    def broken(primals, tangents):
        raise RuntimeError("a bug in the rule")

    f = jax.custom_jvp(lambda x: x**2)
    f.defjvp(broken)
    report = check(f, 2.0)
    assert not report.ok
    assert all("a bug in the rule" in f.title for f in report.of_kind("exception"))


def test_a_value_that_is_nan_is_a_warning():
    (finding,) = check(jnp.log, -1.0).findings
    assert (finding.kind, finding.severity) == ("non-finite", "warning")


@pytest.mark.parametrize(
    ("f", "x", "primitive"),
    [
        (lambda x: jnp.sin(x) / x, 0.0, "div"),
        (lambda x: jnp.expm1(x) / x, 0.0, "div"),
        (lambda x: -jnp.sum(x * jnp.log(x)), np.array([0.5, 0.0]), "mul"),
    ],
)
def test_a_value_that_is_nan_has_the_line_that_it_comes_from(f, x, primitive):
    (finding,) = check(f, x).findings
    assert (finding.kind, finding.severity, finding.mode) == ("non-finite", "warning", "value")
    assert finding.primitive == primitive
    assert finding.location.file.endswith("test_check_findings.py")


def test_a_wrong_rule_is_found_beside_within_gradient():
    wrong = with_rule(jnp.sin, jnp.sin, lambda x: 1.01 * jnp.cos(x))
    f = lambda x: pb.cond(pb.within_gradient(x), lambda v: v**2 + wrong(v), lambda v: v, x)  # noqa: E731
    report = check(f, 2.0)
    assert only(report, "mode-dependent").severity == "note"
    assert only(report, "finite").severity == "error"


def test_the_slope_at_the_edge_of_a_domain_is_compared():
    right = jax.custom_jvp(lambda x: jnp.sin(x) + 0 * jnp.sqrt(x))
    right.defjvp(lambda xs, vs: (right(xs[0]), 1.01 * jnp.cos(xs[0]) * vs[0]))
    assert only(check(right, 0.0), "finite").numbers["finite"] == pytest.approx(1.0)
    assert check(lambda x: x**1.5, 0.0).findings == ()


# --- where kinks are ------------------------------------------------------------------------


def test_a_kink_is_located_at_the_operation_whose_choice_changes():
    def f(x, m):
        one = jnp.where(x > 0, x * x * jnp.sign(x), 0.0)
        other = jnp.maximum(x - m, 0.0)
        return jnp.sum(one) + jnp.sum(other)

    report = check(f, np.array([0.0, 1.0, 2.0]), 1.0)
    kinks = {(f.argument, f.element): f for f in report.of_kind("kink")}
    assert set(kinks) == {("args[0]", (1,)), ("args[1]", None)}
    for finding in kinks.values():
        assert finding.primitive == "max"
        assert "jnp.maximum" in finding.location.source


def test_two_kinks_in_one_argument_have_two_lines():
    def f(x):
        y = jnp.maximum(x[0], 0.0)
        z = jnp.maximum(x[1], 2.0)
        return y + z

    sources = [k.location.source for k in check(f, np.array([0.0, 2.0])).of_kind("kink")]
    assert sorted(sources) == ["y = jnp.maximum(x[0], 0.0)", "z = jnp.maximum(x[1], 2.0)"]


def test_the_drawing_of_a_kink_is_that_of_its_own_point():
    report = check(lambda x: jnp.sum(jnp.abs(x)), np.array([0.0, 1.0]), probes=("zeros",))
    drawn = [part for part in to_html(report).split("<section") if "<figure" in part]
    # The value is 1 at the kink of the given point and 0 at zeros: so high the axes end.
    assert [("at the given point" in s, ">1.56<" in s, ">0.56<" in s) for s in drawn[:2]] == [
        (True, True, False),
        (False, False, True),
    ]


# --- the table and the findings -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entropy", "symbols"),
    [
        (lambda p: -(p * jnp.log(p)).sum(), ("△", "~", "~")),
        (lambda p: jax.scipy.special.entr(p).sum(), ("✓", "✘", "△")),
        (lambda p: -jax.scipy.special.xlogy(p, p).sum(), ("✓", "✘", "△")),
        (lambda p: -jnp.where(p > 0, p * jnp.log(p), 0).sum(), ("✓", "✓", "✘")),
    ],
    ids=["written out", "entr", "xlogy", "where"],
)
def test_the_table_says_of_an_entropy_at_0_what_the_findings_say(entropy, symbols):
    """An error in one mode does not hide what is to be said of the other."""
    report = check(entropy, np.array([0.0, 0.4, 0.6]), backends=["jax"])
    row = next(line for line in report.table().splitlines() if line.startswith(" jax"))
    assert tuple(part for part in row.split() if not part[0].isalnum()) == symbols


def test_the_suite_says_so_too():
    from pybridge.consistency import load_scenarios, prepare, run_scenarios

    scenarios = [s for s in load_scenarios("conventions") if s.name == "entropy-zero"]
    run = run_scenarios(scenarios, [prepare("jax"), prepare("finite")])
    assert [run.answers["entropy-zero", name].status for name in ("jax", "finite")] == ["known"] * 2


@pytest.mark.parametrize("distance", [1e-7, 1e-8, 1e-9, 1e-10, 1e-12])
@pytest.mark.parametrize("f", [lambda x: jnp.sqrt(1 - x), lambda x: jnp.log(1 - x), jnp.arcsin])
def test_beside_the_edge_of_a_domain_a_right_rule_passes_and_a_wrong_one_fails(f, distance, x64):
    x = 1 - distance
    assert check(f, x, backends=["jax"]).findings == ()
    wrong = with_rule(f, f, lambda x: 2 * jax.grad(f)(x))
    assert not check(wrong, x, backends=["jax"]).ok
