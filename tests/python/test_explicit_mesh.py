"""Arrays sharded over explicit mesh axes, the default of `jax.make_mesh`: the same answers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal, log_or_zero, sqrt_or_zero, total, zero
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import pybridge as pb
from pybridge import nn

X = np.arange(-3.0, 5.0, dtype=np.float32)
SQUARE = X.repeat(2).reshape(4, 4)


@pytest.fixture
def put():
    """Return a function that shards an array over a mesh of 2 x 2 devices."""
    mesh = jax.make_mesh((2, 2), ("i", "j"), axis_types=(AxisType.Explicit,) * 2)
    use_mesh = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh  # before jax 0.7.1

    def sharded(x, *spec):
        return jax.device_put(jnp.asarray(x), NamedSharding(mesh, P(*spec)))

    with use_mesh(mesh):
        yield sharded


def spec(x):
    return tuple(jax.typeof(x).sharding.spec)


def test_the_answer_of_within_gradient_is_on_the_mesh(put):
    x, answers = put(X, "i"), []
    jax.make_jaxpr(lambda x: answers.append(jax.typeof(pb.within_gradient(x))))(x)
    (answer,) = answers
    assert answer.sharding.mesh == jax.typeof(x).sharding.mesh
    assert answer.sharding.spec == P()


# By how many axes are mapped over.
MAPPED = [lambda f: f, jax.vmap, lambda f: jax.vmap(jax.vmap(f))]


def value_and_slopes(f, by=0):
    return lambda *args: (f(*args), jax.grad(total(f), by)(*args))


@functools.cache  # compiled once for all tests of a function
def on_one_device(f):
    return jax.jit(value_and_slopes(f))


def same_as_on_one_device(f, g, x, axes, put, maybe_jit):
    y, slopes = maybe_jit(value_and_slopes(g))(put(x, *axes))
    assert spec(y) == axes
    expected, expected_slopes = on_one_device(f)(x)
    equal(y, expected)
    equal(slopes, expected_slopes)


@pytest.mark.parametrize("f", [log_or_zero, sqrt_or_zero])
@pytest.mark.parametrize("mapped", [0, 1])
def test_conds_of_a_vector(f, mapped, put, maybe_jit):
    same_as_on_one_device(f, MAPPED[mapped](f), X, ("i",), put, maybe_jit)


@pytest.mark.parametrize("f", [log_or_zero, sqrt_or_zero])
@pytest.mark.parametrize("axes", [("i", "j"), (None, "j"), (("i", "j"), None)], ids=str)
@pytest.mark.parametrize("mapped", [0, 1, 2])
def test_conds_of_a_matrix(f, axes, mapped, put, maybe_jit):
    same_as_on_one_device(f, MAPPED[mapped](f), SQUARE, axes, put, maybe_jit)


@pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="jax 0.7 loses a tangent's sharding")
def test_the_hessian_of_a_cond_of_elements(put, maybe_jit):
    f = total(log_or_zero)
    equal(maybe_jit(jax.hessian(f))(put(X, "i")), jax.jit(jax.hessian(f))(X))


def test_operands_that_are_sharded_differently(put, maybe_jit):
    def f(x, w, c):
        return pb.cond(x > 0, lambda x, w: jnp.log(x) * w + c, lambda x, w: 0.0 * x, x, w)

    args = (X, 2 + X, np.arange(8.0, dtype=np.float32))
    work = value_and_slopes(f, (0, 1, 2))
    expected, expected_slopes = jax.jit(work)(*args)
    given = (put(args[0], "i"), put(args[1], None), put(args[2], None))
    y, slopes = maybe_jit(work)(*given)
    equal(y, expected)
    mapped = maybe_jit(jax.vmap(f, (0, None, None)))
    equal(mapped(given[0], 2.0, 3.0), jax.jit(f)(X, 2.0, 3.0))
    for slope, by_one_device in zip(slopes, expected_slopes, strict=True):
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
        same_as_on_one_device(f, g, X, ("i",), put, maybe_jit)


@pytest.mark.parametrize("mode", ["error", "clip", "fill", "wrap"])
@pytest.mark.parametrize("of_x", [("i", "j"), ("i", None), (None, None), ("j", None)])
@pytest.mark.parametrize("of_indices", [("i",), (None,)])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_take(mode, of_x, of_indices, axis, put, maybe_jit):
    if jax.__version_info__ < (0, 8) and mode == "clip":
        pytest.skip("jax 0.7 has no sharding for the derivative of what is clipped")
    indices = np.array([0, 3, 3, -1]) if mode == "error" else np.array([0, 7, -1, 3])
    options = {"mode": mode} | ({"fill_value": 0.5} if mode == "fill" else {})
    x, given = put(SQUARE, *of_x), put(indices, *of_indices)

    def f(x, i):
        return pb.take(x, i, axis, **options)

    def loss(x, i):
        return (f(x, i) ** 2).sum()

    def work(x, i):
        return f(x, i), jax.grad(loss)(x, i)

    got, want = maybe_jit(work)(x, given), jax.jit(work)(SQUARE, indices)
    for one, other in zip(got, want, strict=True):
        equal(one, other)


def test_what_is_read_is_sharded_as_the_indices_and_the_array_are(put, maybe_jit):
    x, indices = put(SQUARE, None, "j"), put(np.array([0, 3]), "i")
    f = maybe_jit(lambda x, i: pb.take(x, i, 0, mode="clip"))
    assert spec(f(x, indices)) == ("i", "j")
    assert spec(f(put(SQUARE, None, "i"), indices)) == ("i", None)
    f = maybe_jit(lambda x, i: pb.at(x)[None, :, i].get(mode="clip"))
    assert spec(f(put(SQUARE, "j", None), indices)) == (None, "j", "i")


READS = {
    "[i]": lambda x, i, j: x[i],
    "[..., i, 1:3]": lambda x, i, j: x[..., i, 1:3],
    "[j, :, i]": lambda x, i, j: x[j, :, i],
    "[:, i, j]": lambda x, i, j: x[:, i, j],
    "[:, None, 1]": lambda x, i, j: x[:, None, 1],
}


@pytest.mark.parametrize("mode", ["error", "clip", "fill", "wrap"])
@pytest.mark.parametrize("read", READS)
def test_at(mode, read, put, maybe_jit):
    i, j = put(np.array([0, 3]), "i"), put(np.array([[1], [2]]), None, None)
    cube = np.arange(64.0, dtype=np.float32).reshape(4, 4, 4)
    f = maybe_jit(lambda x, i, j: READS[read](pb.at(x), i, j).get(mode=mode))
    expected = READS[read](cube, np.asarray(i), np.asarray(j))
    equal(f(put(cube, "j", None, "i"), i, j), expected)


def test_a_row_for_each_lane(put, maybe_jit):
    x = put(SQUARE, "i", None)
    f = jax.vmap(lambda row: pb.take(row, np.array([0, 9]), mode="clip"))
    equal(maybe_jit(f)(x), SQUARE[:, [0, 3]])


@pytest.mark.parametrize("of_table", [(None, None), ("i", None), (None, "j"), ("j", "i")], ids=str)
def test_embedding(of_table, put, maybe_jit):
    table = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    params = {"weight": put(table, *of_table)}
    indices = put(np.array([[0, 3], [1, 1]]), "i", None)

    def f(params, x):
        return nn.Embedding(4, 2).apply(params, {}, x)[0]

    y, slopes = maybe_jit(value_and_slopes(f))(params, indices)
    equal(y, table[np.asarray(indices)])
    equal(slopes["weight"], np.array([[1.0], [2], [0], [1]]) * np.ones((1, 2)))


def test_embedding_of_one_hot_rows(put, maybe_jit):
    params = {"weight": put(SQUARE, None, None)}
    f = maybe_jit(lambda p, x: nn.Embedding(4, 4).apply(p, {}, x)[0])
    equal(f(params, put(np.eye(4, dtype=bool), "i", None)), SQUARE)


# The layer, the input's shape, its spec, that of the parameters and of the state, and options.
SHARDED_LAYERS = {
    "channels of a batch norm": (nn.BatchNorm(4), (8, 4), (None, "j"), ("j",), {}),
    "batch and channels": (nn.BatchNorm(4), (8, 4), ("i", "j"), (), {}),
    "instances": (nn.InstanceNorm(4, track_stats=True), (4, 4, 6), (None, "j"), (), {}),
    "two groups": (nn.Conv((3,), 4, 4, groups=2), (4, 4, 6), ("i",), (), {}),
    "as many groups as channels": (nn.DepthwiseConv((3,), 4, 8), (4, 4, 6), ("i",), (), {}),
    "groups, transposed": (nn.ConvTranspose((3,), 4, 8, groups=2), (4, 4, 6), ("i",), (), {}),
    "pixels from channels": (nn.PixelShuffle(2), (4, 8, 2, 3), ("i",), (), {}),
    "a recurrent layer": (nn.RNN(3, 4), (4, 5, 3), ("i",), (), {}),
    "two hidden states": (nn.LSTM(3, 4), (4, 5, 3), ("i",), (), {}),
    "padded steps": (nn.GRU(3, 4), (4, 5, 3), ("i",), (), {"mask": np.tri(4, 5, 1, bool)}),
}


@pytest.mark.parametrize("name", SHARDED_LAYERS)
def test_layers(name, put, maybe_jit):
    if jax.__version_info__ < (0, 8) and "groups" in name:
        pytest.skip("jax 0.7 has no sharding for the derivative of a convolution in groups")
    layer, shape, of_x, of_params, options = SHARDED_LAYERS[name]
    x = np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)

    def wave(shape):
        return 0.5 + 0.4 * np.cos(np.arange(np.prod(shape))).reshape(shape)

    def loss(params, state, x):
        y, new = layer.apply(params, state, x, **options)
        return (y**2 * jnp.arange(1.0, 1 + y.shape[-1])).sum(), (y, new)

    work = jax.value_and_grad(loss, has_aux=True)
    # Drawing parameters takes longer to compile than the layer does.
    structs = jax.eval_shape(layer.init, jax.random.key(0))
    params, state = jax.tree.map(lambda s: wave(s.shape).astype(s.dtype), structs)
    on_mesh = jax.tree.map(lambda leaf: put(leaf, *of_params[: leaf.ndim]), (params, state))
    got, want = maybe_jit(work)(*on_mesh, put(x, *of_x)), jax.jit(work)(params, state, x)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["crossentropy", "kldivergence", "mse", "poisson_loss"])
@pytest.mark.parametrize("of_y", [(), ("i",), (None, "j"), ("j",)])
def test_losses(name, of_y, put, maybe_jit):
    loss = getattr(nn.losses, name)
    p, y = np.full((4, 4), 0.25, np.float32), np.eye(4, dtype=np.float32)
    work = maybe_jit(jax.value_and_grad(loss))
    got, want = work(put(p, "i"), put(y, *of_y)), jax.jit(jax.value_and_grad(loss))(p, y)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
