"""A value computed outside of a gradient with a derivative from inside is found."""

import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import pybridge as pb
from pybridge import nn
from pybridge.consistency import _check_run, check
from pybridge.consistency.subject import first_lines
from pybridge.primitives._detection import listen


def asking(x):
    return jnp.where(pb.within_gradient(x), 10.0, 1.0) * x


def fixed_point(a, factor):
    """Solve y = factor * a by a solver that runs outside of the gradient."""
    return lax.custom_root(
        lambda y: y - factor(a),
        jnp.zeros_like(a),
        lambda f, y: y - f(y),
        lambda g, y: y / g(jnp.ones_like(y)),
    )


def test_a_root_whose_value_and_derivative_are_of_two_modes_is_an_error():
    assert [float(x) for x in jax.value_and_grad(lambda a: fixed_point(a, asking))(2.0)] == [2, 10]
    (finding,) = check(lambda a: fixed_point(a, asking), 2.0, backends=["jax"]).findings
    assert (finding.kind, finding.severity) == ("mode-dependent", "error")
    assert finding.location.source.startswith("return jnp.where(pb.within_gradient(x)")
    assert finding.numbers["value"] == 2
    assert finding.numbers["value inside"] == 20
    np.testing.assert_allclose(finding.numbers["jax"], 10)


def test_a_derivative_of_no_function_is_no_wrong_rule_as_well():
    def root(a):
        return lax.custom_root(
            lambda y: y**2 - asking(a),
            jnp.ones_like(a),
            lambda f, y: lax.fori_loop(0, 8, lambda i, y: y - f(y) / (2 * y), y),
            lambda g, y: y / g(jnp.ones_like(y)),
        )

    report = check(root, 2.0, backends=["jax"])
    assert [f.kind for f in report.findings if f.severity == "error"] == ["mode-dependent"]


def test_several_elements_are_compared():
    def f(a):
        return jax.vmap(lambda x: fixed_point(x, asking))(a).sum() + (a**2).sum()

    report = check(f, np.array([2.0, 3.0, -1.0]), backends=["jax"])
    assert [f.severity for f in report.of_kind("mode-dependent")] == ["error"]


def test_a_root_that_does_not_ask_has_no_finding():
    assert check(lambda a: fixed_point(a, jnp.sin), 2.0, backends=["jax"]).findings == ()


def test_a_question_about_what_is_not_differentiated_is_no_error():
    def f(x):
        return jnp.where(pb.within_gradient(lax.stop_gradient(x)), 10.0, 1.0) * x

    assert check(f, 2.0, backends=["jax"]).findings == ()
    report = check(lambda x: f(lax.stop_gradient(x)) * x, 2.0, backends=["jax"])
    assert {f.kind for f in report.findings} == {"finite"}
    assert report.ok  # a stopped gradient is a warning


def test_answers_are_heard_in_the_thread_that_listens_alone():
    def gradient():
        return jax.grad(lambda x: asking(x) + 0 * x)(2.0)

    with listen() as heard:
        other = threading.Thread(target=gradient)
        other.start()
        other.join()
        assert heard == []
        with listen() as inner:
            gradient()
        assert heard == []
        assert inner == [True]
    gradient()
    assert heard == []


def test_the_seed_chooses_the_directions_of_many_inputs(monkeypatch):
    seen = []

    def record(xs, rng):
        seen.append(first_lines(xs, rng))
        return seen[-1]

    monkeypatch.setattr(_check_run, "first_lines", record)
    for seed in (0, 0, 1):
        assert check(jnp.sum, np.linspace(0, 1, 50), backends=["jax"], seed=seed).ok
    first, again, other = (lines[0].vs[0] for lines in seen)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def exported(f):
    return export.export(jax.jit(f))(jax.ShapeDtypeStruct((), jnp.float32)).call


def test_an_exported_function_that_asks_is_an_error():
    call = exported(asking)
    assert [float(x) for x in jax.value_and_grad(call)(jnp.float32(2))] == [2, 10]
    assert not check(call, jnp.float32(2), backends=["jax"]).ok
    assert check(exported(jnp.sin), jnp.float32(2), backends=["jax"]).ok


def checkpointed(training):
    """Normalise a batch twice in a loop of Equinox's that keeps few steps."""
    from equinox import internal as loops

    layer = nn.BatchNorm(2)
    params, state = layer.init(jax.random.key(0))

    def step(carry):
        count, y, state = carry
        return count + 1, *layer.apply(params, state, y, training=training)

    def loss(x):
        start = 0, x, state
        end = loops.while_loop(lambda c: c[0] < 2, step, start, max_steps=4, kind="checkpointed")
        return (end[1] ** 3).sum(), end[2]["mean"]

    return loss


BATCH = np.array([[1.0, 2.0], [3.0, 1.0], [0.5, -1.0]], np.float32)


@pytest.mark.peers("equinox")
def test_an_explicit_mode_is_the_remedy_and_no_warning():
    (_, mean), _ = jax.value_and_grad(checkpointed("auto"), has_aux=True)(BATCH)
    np.testing.assert_array_equal(mean, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", nn.ModeWarning)
        (_, mean), _ = jax.value_and_grad(checkpointed(True), has_aux=True)(BATCH)
    assert np.all(mean != 0)


@pytest.mark.peers("equinox")
@pytest.mark.nightly
def test_a_checkpointed_loop_is_an_error():
    loss = checkpointed("auto")
    report = check(lambda x: loss(x)[0], BATCH, backends=["jax"])
    assert any(f.severity == "error" for f in report.of_kind("mode-dependent"))
