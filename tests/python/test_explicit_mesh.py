"""Arrays sharded over explicit mesh axes, the default of `jax.make_mesh`: the same answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal, log_or_zero, sqrt_or_zero, total, zero
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pybridge as pb
from pybridge import nn

X = np.arange(-3.0, 5.0, dtype=np.float32)
SQUARE = X.repeat(2).reshape(4, 4)


@pytest.fixture
def put():
    """Return a function that shards an array over a mesh of 2 x 2 devices."""
    mesh = jax.make_mesh((2, 2), ("i", "j"))

    def sharded(x, *spec):
        return jax.device_put(jnp.asarray(x), NamedSharding(mesh, P(*spec)))

    with jax.set_mesh(mesh):
        yield sharded


def spec(x):
    return tuple(jax.typeof(x).sharding.spec)


@pytest.mark.parametrize("f", [log_or_zero, sqrt_or_zero])
def test_conds_of_lanes_and_elements(f, put, maybe_jit):
    expected, slopes = jax.vmap(f)(X), jax.vmap(jax.grad(f))(X)
    for g in (f, jax.vmap(f)):
        y = maybe_jit(g)(put(X, "i"))
        assert spec(y) == ("i",)
        equal(y, expected)
        equal(maybe_jit(jax.grad(total(g)))(put(X, "i")), slopes)
    for axes in (("i", "j"), (None, "j"), (("i", "j"), None)):
        for g in (f, jax.vmap(jax.vmap(f)), jax.vmap(f)):
            y = maybe_jit(g)(put(SQUARE, *axes))
            assert spec(y) == axes
            equal(y, f(SQUARE))
            equal(maybe_jit(jax.grad(total(g)))(put(SQUARE, *axes)), jax.grad(total(f))(SQUARE))
    equal(maybe_jit(jax.hessian(total(f)))(put(X, "i")), jax.hessian(total(f))(X))


def test_operands_that_are_sharded_differently(put, maybe_jit):
    def f(x, w, c):
        return pb.cond(x > 0, lambda x, w: jnp.log(x) * w + c, lambda x, w: 0.0 * x, x, w)

    args = (X, 2 + X, np.arange(8.0, dtype=np.float32))
    expected, slopes = f(*args), jax.grad(total(f), (0, 1, 2))(*args)
    given = (put(args[0], "i"), put(args[1], None), put(args[2], None))
    equal(maybe_jit(f)(*given), expected)
    equal(maybe_jit(jax.vmap(f, (0, None, None)))(given[0], 2.0, 3.0), f(X, 2.0, 3.0))
    for slope, by_one_device in zip(
        maybe_jit(jax.grad(total(f), (0, 1, 2)))(*given), slopes, strict=True
    ):
        equal(slope, by_one_device)


def test_keys_counts_and_complex_numbers(put, maybe_jit):
    def f(x, tree):
        return pb.cond(x > 0, lambda t: t, lambda t: jax.tree.map(lambda x: x, t), tree)

    tree = {
        "int8": np.arange(8, dtype=np.int8),
        "bool": np.arange(8) % 3 == 0,
        "complex": np.arange(8) * (1 + 2j).real + 1j * X,
    }
    tree["complex"] = tree["complex"].astype(np.complex64)
    sharded = {name: put(x, "i") for name, x in tree.items()}
    for g in (f, jax.vmap(f)):
        out = maybe_jit(g)(put(X, "i"), sharded)
        for name, x in tree.items():
            assert out[name].dtype == x.dtype
            np.testing.assert_array_equal(out[name], x)


def test_a_switch_and_a_nested_cond(put, maybe_jit):
    def f(x):
        inner = [lambda x: x, lambda x: pb.cond(x < 2, jnp.sqrt, zero, x), jnp.log]
        return pb.switch((x / 2 + 1).astype(int), inner, x)

    for g in (f, jax.vmap(f)):
        equal(maybe_jit(g)(put(X, "i")), f(X))
        equal(maybe_jit(jax.grad(total(g)))(put(X, "i")), jax.grad(total(f))(X))


@pytest.mark.parametrize("mode", ["error", "clip", "fill", "wrap"])
@pytest.mark.parametrize("of_x", [("i", "j"), ("i", None), (None, None), ("j", None)])
@pytest.mark.parametrize("of_indices", [("i",), (None,)])
def test_take(mode, of_x, of_indices, put, maybe_jit):
    indices = np.array([0, 3, 3, -1]) if mode == "error" else np.array([0, 7, -1, 3])
    options = {"mode": mode} | ({"fill_value": 0.5} if mode == "fill" else {})
    x, given = put(SQUARE, *of_x), put(indices, *of_indices)
    for axis in (0, 1, None):

        def f(x, i, axis=axis):
            return pb.take(x, i, axis, **options)

        def loss(x, i, f=f):
            return (f(x, i) ** 2).sum()

        equal(maybe_jit(f)(x, given), f(SQUARE, indices))
        equal(maybe_jit(jax.grad(loss))(x, given), jax.grad(loss)(SQUARE, indices))


def test_what_is_read_is_sharded_as_the_indices_and_the_array_are(put, maybe_jit):
    x, indices = put(SQUARE, None, "j"), put(np.array([0, 3]), "i")
    f = maybe_jit(lambda x, i: pb.take(x, i, 0, mode="clip"))
    assert spec(f(x, indices)) == ("i", "j")
    assert spec(f(put(SQUARE, None, "i"), indices)) == ("i", None)
    f = maybe_jit(lambda x, i: pb.at(x)[None, :, i].get(mode="clip"))
    assert spec(f(put(SQUARE, "j", None), indices)) == (None, "j", "i")


@pytest.mark.parametrize("mode", ["error", "clip", "fill", "wrap"])
def test_at(mode, put, maybe_jit):
    i, j = put(np.array([0, 3]), "i"), put(np.array([[1], [2]]), None, None)
    reads = [
        lambda x, i, j: pb.at(x)[i].get(mode=mode),
        lambda x, i, j: pb.at(x)[..., i, 1:3].get(mode=mode),
        lambda x, i, j: pb.at(x)[j, :, i].get(mode=mode),
        lambda x, i, j: pb.at(x)[:, i, j].get(mode=mode),
        lambda x, i, j: pb.at(x)[:, None, 1].get(mode=mode),
    ]
    cube = np.arange(64.0, dtype=np.float32).reshape(4, 4, 4)
    for f in reads:
        expected = f(jnp.asarray(cube), np.asarray(i), np.asarray(j))
        equal(maybe_jit(f)(put(cube, "j", None, "i"), i, j), expected)


def test_a_row_for_each_lane(put, maybe_jit):
    x = put(SQUARE, "i", None)
    f = jax.vmap(lambda row: pb.take(row, np.array([0, 9]), mode="clip"))
    equal(maybe_jit(f)(x), SQUARE[:, [0, 3]])


def test_embedding(put, maybe_jit):
    layer = nn.Embedding(4, 2)
    table = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    for of_table in ((None, None), ("i", None), (None, "j"), ("j", "i")):
        params = {"weight": put(table, *of_table)}
        indices = put(np.array([[0, 3], [1, 1]]), "i", None)

        def f(params, x):
            return layer.apply(params, {}, x)[0]

        equal(maybe_jit(f)(params, indices), table[np.asarray(indices)])
        slopes = maybe_jit(jax.grad(lambda p, x: f(p, x).sum()))(params, indices)["weight"]
        equal(slopes, np.array([[1.0], [2], [0], [1]]) * np.ones((1, 2)))
    one_hot = put(np.eye(4, dtype=bool), "i", None)
    equal(maybe_jit(f)({"weight": put(table, None, None)}, one_hot), table)
