"""`NonDifferentiable` under `jit`, `vmap`, `scan`: arrays travel, everything else is fixed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from nondifferentiable_helpers import ND, Pair, Plain, Traces, is_own

import pybridge as pb


def test_jit_does_not_trace_again_for_another_array():
    traces = Traces()
    f = jax.jit(traces)
    for value in (1.0, 2.0, float("nan"), 3.0):
        np.testing.assert_equal(np.asarray(f(ND(jnp.array(value)), jnp.array(2.0))), 2 * value)
        np.testing.assert_equal(
            np.asarray(f(ND(np.array(value, np.float32)), jnp.array(2.0))), 2 * value
        )
    assert traces.count <= 2  # jnp.array(1.0) is weakly typed
    jax.grad(f, argnums=1)(ND(jnp.array(1.0)), jnp.array(2.0))
    before = traces.count
    assert float(jax.grad(f, argnums=1)(ND(jnp.array(7.0)), jnp.array(2.0))) == 7.0
    assert traces.count == before


@pytest.mark.parametrize(
    "same, other",
    [
        ((3, 3), 4),
        ((3, 3), 3.0),
        ((1, 1), True),
        ((0.0, 0.0), -0.0),
        ((float("nan"), float("nan")), 1.0),
        (("text", "te" + "xt"), "other"),
        ((np.float32(1), np.float32(1)), np.float64(1)),
        (((1, "a"), (1, "a")), (1, "b")),
        (({"k": 1}, {"k": 1}), {"k": 2}),
        ((None, None), 0),
        ((2 + 1j, 2 + 1j), 2 - 1j),
        ((np.array(["a"]), np.array(["a"])), np.array(["b"])),
    ],
)
def test_jit_traces_again_only_when_a_static_payload_changes(same, other):
    traces = Traces(lambda n, x: x)
    f = jax.jit(traces)
    x = jnp.ones(2)
    for value in same:
        f(ND(value), x)
    assert traces.count == 1
    f(ND(other), x)
    assert traces.count == 2
    f(ND(same[0]), x)
    assert traces.count == 2


def test_objects_are_compared_by_equality_or_identity():
    @dataclasses.dataclass
    class Settings:  # defines ==, and so cannot be hashed
        a: int

    class Odd:
        def __eq__(self, other):
            return np.array([True, False])

        __hash__ = None

    traces = Traces(lambda n, x: x)
    f = jax.jit(traces)
    x, plain, odd = jnp.ones(2), Plain(), Odd()
    for payload in (Settings(1), Settings(1), plain, plain, odd, odd):
        f(ND(payload), x)
    assert traces.count == 3
    for payload in (Settings(2), Plain(), Odd()):
        f(ND(payload), x)
    assert traces.count == 6


def test_a_number_can_be_a_shape_and_an_index(maybe_jit):
    f = maybe_jit(lambda n, x: jnp.zeros(n).at[n - 1].set(x[n - 1]) + len(range(n)))
    assert f(ND(3), jnp.arange(5.0)).tolist() == [3.0, 3.0, 5.0]


def test_jit_returns_it(maybe_jit):
    f = maybe_jit(lambda s: Pair(s.p + s.n, ND(s.n * 2)))
    out = f(Pair(jnp.float32(1), ND(jnp.arange(3.0))))
    assert isinstance(out.n, ND)
    assert out.n.value.tolist() == [0.0, 2.0, 4.0]
    assert f(Pair(jnp.int32(1), ND(7))).n == 14


def test_vmap_maps_arrays_and_shares_the_rest(maybe_jit):
    f = maybe_jit(jax.vmap(lambda n, x: n * x))
    assert f(ND(jnp.arange(3.0)), jnp.ones(3)).tolist() == [0.0, 1.0, 2.0]
    assert f(ND(np.arange(3, dtype=np.float32)), jnp.ones(3)).tolist() == [0.0, 1.0, 2.0]
    assert f(ND(2.0), jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    shared = maybe_jit(jax.vmap(lambda n, x: jnp.sum(n * x), in_axes=(None, 0)))
    assert shared(ND(jnp.arange(3.0)), jnp.ones(2)).tolist() == [3.0, 3.0]
    slopes = maybe_jit(jax.vmap(jax.grad(lambda s: s.p**2 * s.n)))
    out = slopes(Pair(jnp.ones(3), ND(jnp.arange(3.0))))
    assert out.p.tolist() == [0.0, 2.0, 4.0]
    assert out.n.value.tolist() == [0.0, 1.0, 2.0]
    batched = jax.grad(lambda s: jnp.sum(jax.vmap(lambda s: s.p**2 * s.n)(s)))
    assert maybe_jit(batched)(Pair(jnp.ones(3), ND(jnp.arange(3.0)))).p.tolist() == [0.0, 2.0, 4.0]


def test_scan_carries_and_slices_it(maybe_jit):
    def f(s):
        def step(carry, n):
            out = carry.p * n
            return Pair(carry.p * 2.0, ND(carry.n.value + 1)), out

        return lax.scan(step, s, ND(jnp.arange(3.0)))

    last, outs = maybe_jit(f)(Pair(jnp.float32(1), ND(jnp.int32(5))))
    assert int(last.n) == 8
    assert outs.tolist() == [0.0, 2.0, 8.0]
    gradient = maybe_jit(jax.grad(lambda s: jnp.sum(f(s)[1])))(
        Pair(jnp.float32(1), ND(jnp.int32(5)))
    )
    assert float(gradient.p) == 10.0


def test_other_control_flow(maybe_jit):
    n = ND(jnp.arange(3.0))
    assert float(maybe_jit(lambda n: lax.cond(n[1] > 0, lambda n: n, lambda n: n, n)[2])(n)) == 2.0
    out = maybe_jit(
        lambda n: lax.while_loop(lambda n: n[0] < 3, lambda n: ND(n.value + 1), n).value
    )(n)
    assert out.tolist() == [3.0, 4.0, 5.0]
    assert maybe_jit(lambda n: lax.map(lambda n: n * 2, n))(n).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("pred", [True, np.array([True, False])])
def test_operands_of_cond(pred, maybe_jit):
    def f(s):
        return pb.cond(jnp.asarray(pred), lambda s: s.p * s.n, lambda s: jnp.log(s.p) * s.n**2, s)

    s = Pair(jnp.float32(4), ND(jnp.float32(2)))
    gradient = maybe_jit(jax.grad(lambda s: jnp.sum(f(s))))(s)
    assert float(gradient.p) == (2.0 if pred is True else 3.0)
    assert isinstance(gradient.n, ND)


def test_cond_returns_it(maybe_jit):
    f = maybe_jit(lambda p, s: pb.cond(p, lambda s: s, lambda s: Pair(s.p, ND(s.n.value + 1)), s))
    s = Pair(jnp.float32(3), ND(jnp.float32(2)))
    assert float(f(True, s).n) == 2.0
    assert float(f(False, s).n) == 3.0
    out = jax.vmap(f)(jnp.array([True, False]), Pair(jnp.ones(2), ND(jnp.array([5.0, 6.0]))))
    assert out.n.value.tolist() == [5.0, 7.0]
    static = maybe_jit(lambda p, s: pb.cond(p, lambda s: s.p * s.n, lambda s: s.p, s))
    assert float(static(True, Pair(jnp.float32(3), ND(2)))) == 6.0


def test_checkpoint_and_custom_rules(maybe_jit):
    @jax.custom_vjp
    def f(s):
        return s.p * s.n

    f.defvjp(lambda s: (f(s), s), lambda s, ct: (Pair(ct * s.n * 10.0, None),))
    s = Pair(jnp.float32(3), ND(jnp.float32(2)))
    assert float(maybe_jit(jax.grad(f))(s).p) == 20.0
    inner = jax.checkpoint(lambda s: jnp.sin(s.p) * s.n)
    gradient = maybe_jit(jax.grad(lambda s: inner(s) * 2.0))(s)
    np.testing.assert_allclose(gradient.p, 4 * np.cos(3.0), rtol=1e-6)


def test_abstract_evaluation_and_devices():
    s = Pair(jnp.ones(2), ND(jnp.arange(3.0)))
    shapes = jax.eval_shape(lambda s: s, s)
    assert shapes.n.shape == (3,)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    assert zeros.n.value.tolist() == [0.0, 0.0, 0.0]
    assert len(jax.make_jaxpr(lambda s: s.p.sum() * s.n)(s).jaxpr.invars) == 2
    there = jax.device_put(s, jax.devices()[-1])
    assert there.n.value.devices() == {jax.devices()[-1]}
    assert jax.block_until_ready(s).n.shape == (3,)


def test_keys(maybe_jit):
    def f(s):
        return s.p * jax.random.normal(s.n.value)

    key = jax.random.key(3)
    want = float(jax.random.normal(key))
    s = Pair(jnp.float32(2), ND(key))
    traces = Traces(f)
    g = maybe_jit(jax.grad(traces))
    np.testing.assert_allclose(g(s).p, want, rtol=1e-6)
    np.testing.assert_allclose(
        g(Pair(jnp.float32(2), ND(jax.random.key(4)))).p,
        jax.random.normal(jax.random.key(4)),
        rtol=1e-6,
    )
    keys = jax.random.split(key, 3)
    out = maybe_jit(jax.vmap(jax.grad(f)))(Pair(jnp.ones(3), ND(keys)))
    np.testing.assert_allclose(out.p, jax.vmap(jax.random.normal)(keys), rtol=1e-6)
    assert jax.tree.structure(s) == jax.tree.structure(Pair(jnp.float32(2), ND(jax.random.key(3))))
    assert jax.tree.structure(s) != jax.tree.structure(Pair(jnp.float32(2), ND(jax.random.key(4))))


def test_a_container_is_treated_leaf_by_leaf():
    payload = {"scale": jnp.array([2.0, 3.0]), "power": 2, "name": "x"}
    traces = Traces(lambda s: jnp.sum(s.p ** s.n["power"] * s.n["scale"]))
    g = jax.jit(jax.grad(traces))
    assert g(Pair(jnp.ones(2), ND(payload))).p.tolist() == [4.0, 6.0]
    payload["scale"] = jnp.array([5.0, 7.0])
    assert g(Pair(jnp.ones(2), ND(payload))).p.tolist() == [10.0, 14.0]
    assert traces.count == 1
    payload["power"] = 3
    assert g(Pair(jnp.ones(2), ND(payload))).p.tolist() == [15.0, 21.0]
    assert traces.count == 2


@jax.jit
def compiled(n):
    return n * 2


def test_compiled_functions_called_by_functions_of_trees_get_the_arrays():
    for value in (1.0, 5.0):
        tree = {"a": ND(jnp.array([value])), "b": ND(jnp.array([-value]))}
        for _ in range(2):
            doubled = jax.tree.map(compiled, tree, is_leaf=is_own)
            assert doubled["a"].tolist() == [2 * value]
            partial = jax.tree_util.Partial(compiled, tree["b"])
            assert partial().tolist() == [-2 * value]
            assert jax.tree_util.Partial(compiled)(tree["b"]).tolist() == [-2 * value]
