"""Recurrent cells and layers: values, gradients, masks, hidden states, transformations, errors."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from layer_helpers import close
from nn_helpers import check_derivatives, draw

import pybridge as pb
from pybridge import nn

KEY = jax.random.key(3)
LAYERS = [nn.RNN, nn.LSTM, nn.GRU, nn.GRUv3]
CELLS = [nn.RNNCell, nn.LSTMCell, nn.GRUCell, nn.GRUv3Cell]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference_step(name, params, x, hidden):
    """Write down the formulas of the papers, gate by gate."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    out = p["weight_hidden"].shape[0]
    bias = p.get("bias", np.zeros(p["weight_in"].shape[1]))

    def gate(i, h):
        part = slice(i * out, (i + 1) * out)
        return x @ p["weight_in"][:, part] + h @ p["weight_hidden"][:, part] + bias[part]

    if name == "RNN":
        h = np.tanh(gate(0, hidden))
        return h, h
    if name == "LSTM":
        h, c = hidden
        write, forget, value, read = (gate(i, h) for i in range(4))
        c = sigmoid(forget) * c + sigmoid(write) * np.tanh(value)
        h = sigmoid(read) * np.tanh(c)
        return h, (h, c)
    h = hidden
    reset, update = sigmoid(gate(0, h)), sigmoid(gate(1, h))
    part = slice(2 * out, 3 * out)
    value = x @ p["weight_in"][:, part] + bias[part]
    if name == "GRU":
        value = value + reset * (h @ p["weight_hidden"][:, part])
    else:
        value = value + (reset * h) @ p["weight_candidate"]
    h = (1 - update) * np.tanh(value) + update * h
    return h, h


def start(name, *shape):
    zeros = np.zeros(shape)
    return (zeros, zeros) if name == "LSTM" else zeros


def reference(name, params, x, hidden=None, mask=None):
    """Step through a batch of sequences, each to its end."""
    ys, ends = [], []
    for row in range(x.shape[0]):
        h = start(name, 2) if hidden is None else jax.tree.map(lambda a, row=row: a[row], hidden)
        y = []
        for t in range(x.shape[1]):
            if mask is not None and not mask[row, t]:
                y.append(np.zeros(2))
                continue
            out, h = reference_step(name, params, x[row, t], h)
            y.append(out)
        ys.append(np.stack(y))
        ends.append(h)
    return np.stack(ys), jax.tree.map(lambda *parts: np.stack(parts), *ends)


def materials(kind, dtype=np.float64, **options):
    layer = kind(3, 2, return_state=True, **options)
    # Without drawing the parameters, which would compile a program for each shape.
    shapes, state = jax.eval_shape(lambda: layer.init(KEY, dtype))
    assert state == {}
    params = {
        name: jnp.asarray(0.5 * draw(seed, of.shape), of.dtype)
        for seed, (name, of) in enumerate(shapes.items(), start=1)
    }
    return layer, params, draw(0, (4, 5, 3), dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_values_are_those_of_the_formulas(kind, bias, x64, maybe_jit):
    layer, params, x = materials(kind, bias=bias)
    hidden = jax.tree.map(lambda zeros: draw(5, zeros.shape), start(kind.__name__, 4, 2))

    def run(params, x, hidden):
        return layer.apply(params, {}, x, hidden=hidden)[0]

    close(maybe_jit(run)(params, x, None), reference(kind.__name__, params, x), rtol=1e-12)
    want = reference(kind.__name__, params, x, hidden)
    close(maybe_jit(run)(params, x, hidden), want, rtol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_mask_ends_each_sequence_where_it_ends(kind, x64, maybe_jit):
    layer, params, x = materials(kind)
    mask = np.arange(5) < np.array([[5], [2], [0], [3]])
    x = np.where(mask[..., None], x, np.nan)

    def run(params, x, mask):
        y, hidden = layer.apply(params, {}, x, mask=mask)[0]
        return (jnp.sin(y).sum() + sum(h.sum() for h in jax.tree.leaves(hidden))), (y, hidden)

    (_, got), slopes = maybe_jit(jax.value_and_grad(run, (0, 1), has_aux=True))(params, x, mask)
    close(got, reference(kind.__name__, params, x, mask=mask), rtol=1e-12)
    assert (got[0][1, 2:] == 0).all()
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert (slopes[1][~mask] == 0).all() and (slopes[1][mask] != 0).all()
    # What stands in the padding makes no difference; a hole is skipped.
    other = np.where(mask[..., None], x, 1e3)
    close(jax.jit(run)(params, other, mask[..., None])[1], got, rtol=0)
    holes = np.ones((4, 5), bool)
    holes[:, 2] = False

    @jax.jit
    def both(x, short):
        return layer.apply(params, {}, x, mask=holes)[0], layer.apply(params, {}, short)[0]

    (y, hidden), want = both(other, np.delete(other, 2, 1))
    close((np.delete(y, 2, 1), hidden), want, rtol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_derivatives_of_both_orders(kind, x64):
    layer, params, x = materials(kind)
    hidden = jax.tree.map(lambda zeros: draw(5, zeros.shape), start(kind.__name__, 4, 2))

    def loss(params, x, hidden):
        return jnp.sin(jnp.stack(jax.tree.leaves(layer.apply(params, {}, x, hidden=hidden)[0])[1:]))

    check_derivatives(loss, (params, x[:, :3], hidden), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kind", "cell"), list(zip(LAYERS, CELLS, strict=True)))
def test_a_layer_is_its_cell_step_by_step(kind, cell):
    layer, params, x = materials(kind, np.float32)
    one = cell(3, 2)
    assert layer == kind(3, 2, return_state=True) and layer.cell == one
    hidden, ys = None, []
    for t in range(x.shape[1]):
        (y, hidden), _ = one.apply(params, {}, x[:, t], hidden=hidden)
        ys.append(y)

    @jax.jit
    def in_other_ways(x):
        again = nn.Recurrence(one, return_state=True).apply(params, {}, x)[0]
        plain = kind(3, 2).apply(params, {}, x)[0]
        # In two parts, with the state handed over; and one sequence alone.
        first, between = layer.apply(params, {}, x[:, :2])[0]
        second, end = layer.apply(params, {}, x[:, 2:], hidden=between)[0]
        parts = jnp.concatenate([first, second], 1), end
        return again, plain, parts, layer.apply(params, {}, x[0])[0]

    got, last = layer.apply(params, {}, x)[0]
    close((got, last), (np.stack(ys, 1), hidden), rtol=1e-6)
    again, plain, parts, alone = in_other_ways(x)
    close(again, (got, last), rtol=0)
    close(plain, got, rtol=0)
    close(parts, (got, last), rtol=1e-6)
    close(alone, jax.tree.map(lambda leaf: np.asarray(leaf)[0], (got, last)), rtol=1e-6)


@pytest.mark.parametrize("kind", LAYERS)
def test_one_scan_for_any_length(kind):
    layer, params, _ = materials(kind, np.float32)
    programs = [
        jax.make_jaxpr(lambda x: layer.apply(params, {}, x)[0])(jnp.ones((2, n, 3)))
        for n in (1, 100)
    ]
    kinds = [[equation.primitive.name for equation in p.jaxpr.eqns] for p in programs]
    assert kinds[0] == kinds[1] and str(programs[1]).count("scan[") == 1
    b, t = export.symbolic_shape("b, t")
    struct = jax.ShapeDtypeStruct((b, t, 3), jnp.float32)
    run = jax.jit(lambda x: layer.apply(params, {}, x)[0])
    compiled = export.export(run)(struct)
    for shape in ((2, 4, 3), (1, 9, 3)):
        x = draw(1, shape, np.float32)
        close(compiled.call(x), run(x), rtol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRUv3])
def test_transformations(kind, maybe_jit):
    layer, params, x = materials(kind, np.float32)
    want = layer.apply(params, {}, x)[0]
    rows = jax.vmap(lambda row: layer.apply(params, {}, row)[0])(x)
    close(rows, want, rtol=1e-6)

    def loss(params, x):
        return jnp.sin(layer.apply(params, {}, x)[0][0]).sum()

    plain = maybe_jit(jax.grad(loss))(params, x)
    close(jax.grad(jax.checkpoint(loss))(params, x), plain, rtol=1e-5)
    # Two features that are nearly the same would make digits of their last ones, but for the eps.
    norm = nn.LayerNorm(2, eps=1.0)
    model = nn.Chain(nn.Dense(3, 3), kind(3, 2), nn.Dropout(0.5), norm)
    params, state = model.init(KEY)
    run = jax.jit(lambda x, mask: model.apply(params, state, x, mask=mask)[0])
    y = run(x, np.ones((4, 5, 1), bool))
    assert y.shape == (4, 5, 2)
    close(y, jax.jit(lambda x: model.apply(params, state, x)[0])(x), rtol=1e-6)


@pytest.mark.parametrize("kind", CELLS)
def test_a_checkpointed_cell_inside_a_layer(kind, x64):
    """`jax.checkpoint` around each step keeps nothing but the hidden state."""

    @dataclasses.dataclass(frozen=True)
    class Again(nn.Cell):
        cell: nn.Cell

        def init(self, key, dtype=jnp.float32):
            return self.cell.init(key, dtype)

        def initial_hidden(self, params, batch):
            return self.cell.initial_hidden(params, batch)

        def prepare(self, params, x):
            return self.cell.prepare(params, x)

        def step(self, params, x, hidden):
            return jax.checkpoint(self.cell.step)(params, x, hidden)

    plain, again = nn.Recurrence(kind(3, 2)), nn.Recurrence(Again(kind(3, 2)))
    params, _ = plain.init(KEY, np.float64)
    x = draw(0, (4, 5, 3))
    one, other = (
        jax.jit(jax.grad(lambda p, layer=layer: jnp.sin(layer.apply(p, {}, x)[0]).sum()))(params)
        for layer in (plain, again)
    )
    close(one, other, rtol=1e-12)


def test_fresh_parameters():
    params, _ = nn.LSTMCell(300, 200).init(KEY)
    assert {n: v.shape for n, v in params.items()} == {
        "weight_in": (300, 800),
        "weight_hidden": (200, 800),
        "bias": (800,),
    }
    for name, fans in (("weight_in", 1100), ("weight_hidden", 1000)):
        np.testing.assert_allclose(np.abs(params[name]).max(), (6 / fans) ** 0.5, rtol=1e-3)
    assert (params["weight_in"][0, :9] != params["weight_hidden"][0, :9]).all()
    more, _ = nn.GRUv3(2, 3).init(KEY)
    assert more["weight_candidate"].shape == (3, 3)
    ones = nn.GRU(2, 3, init=nn.ones, recurrent_init=nn.zeros, bias=False).init(KEY)[0]
    assert (ones["weight_in"] == 1).all() and (ones["weight_hidden"] == 0).all()
    assert "bias" not in ones


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_input_and_hidden_state_get_the_weights_dtype(dtype):
    layer = nn.LSTM(3, 2, return_state=True)
    params, _ = layer.init(KEY, jnp.dtype(dtype))
    h = np.zeros(2, np.float32)
    run = jax.jit(lambda: layer.apply(params, {}, np.ones((2, 4, 3), int), hidden=(h, h))[0])
    y, hidden = run()
    assert {leaf.dtype.name for leaf in jax.tree.leaves((y, hidden))} == {dtype}
    assert hidden[1].shape == (2, 2)


def test_configuration():
    layer = nn.RNN(3, 2, nn.relu, bias=False, return_state=True)
    assert repr(layer) == "RNN(3, 2, bias=False, activation=relu, return_state=True)"
    assert repr(nn.LSTM(3, 2)) == "LSTM(3, 2)" and repr(nn.GRUv3Cell(3, 2)) == "GRUv3Cell(3, 2)"
    assert repr(nn.Recurrence(nn.GRUCell(3, 2))) == "Recurrence(GRUCell(3, 2))"
    assert nn.GRU(3, 2) != nn.GRUv3(3, 2) and hash(nn.GRU(3, 2)) == hash(nn.GRU(3, 2))


X = np.ones((4, 5, 3), np.float32)
H = np.zeros((4, 2), np.float32)


@pytest.mark.parametrize(
    ("kind", "x", "options", "message"),
    [
        (nn.GRU, X[:, :0], {}, "with one step or more, got shape (4, 0, 3)"),
        (nn.GRU, X[0, 0], {}, "(time, features) or (batch, time, features)"),
        (nn.GRU, X[..., :2], {}, "an input with 3 features on its last axis, got shape (4, 5, 2)"),
        (nn.GRU, [X[0], X[0, :2]], {}, "got a list of 2 arrays. Pad them to one length, and pass"),
        (nn.GRU, X, {"hidden": H[:3]}, "`hidden` of shape (4, 2), or (2,) for the whole batch"),
        (nn.GRU, X, {"hidden": H[:, :1]}, "`hidden` of shape (4, 2)"),
        (nn.GRU, X, {"hidden": (H, H)}, "`hidden` as the cell makes it, (4, 2), got ((4, 2), (4,"),
        (nn.LSTM, X, {"hidden": H}, "`hidden` as a tuple (h, c), ((4, 2), (4, 2)), got (4, 2)"),
        (nn.LSTM, X, {"hidden": (H, H[:, :1])}, "got shape (4, 1)"),
        (nn.LSTM, X, {"hidden": (H, H * 1j)}, "numbers that convert to the weight's dtype"),
        (nn.RNN, X, {"mask": np.ones((5, 4), bool)}, "`mask` of shape (4, 5), got shape (5, 4)"),
        (nn.RNN, X, {"mask": np.ones((4, 5))}, "a bool array as `mask`, got float"),
        (nn.RNN, X, {"mask": np.ones((4, 5, 3), bool)}, "`mask` of shape (4, 5), got shape"),
    ],
)
def test_wrong_calls(kind, x, options, message):
    layer = kind(3, 2)
    params, _ = layer.init(KEY)
    with pytest.raises(pb.BridgeError, match=re.escape(f"{kind.__name__}")) as caught:
        layer.apply(params, {}, x, **options)
    assert message in str(caught.value).replace("\n", " ")


def test_wrong_calls_of_cells():
    cell = nn.GRUCell(3, 2)
    params, _ = cell.init(KEY)
    with pytest.raises(pb.ArgumentValueError, match=r"GRUCell.apply: expected an input with 3"):
        cell.apply(params, {}, X[..., :2])
    with pytest.raises(pb.ArgumentValueError, match=r"`hidden` of shape \(2,\)"):
        cell.apply(params, {}, X[0, 0], hidden=H)
    for make, message in (
        (lambda: nn.LSTM(0, 1), "LSTMCell: expected a positive integer as in_features"),
        (lambda: nn.LSTM(1, 1, return_state=1), "LSTM: expected True or False as `return_state`"),
        (lambda: nn.RNN(1, 1, nn.softmax), "an elementwise function"),
        (lambda: nn.GRU(1, 1, recurrent_init=1), "a function as `recurrent_init`"),
        (lambda: nn.Recurrence(nn.Dense(1, 1)), "a recurrent cell, got a Dense"),
    ):
        with pytest.raises(pb.BridgeError, match=re.escape(message)):
            make()


@dataclasses.dataclass(frozen=True)
class OfLogarithms(nn.Cell):
    """A cell of one's own that has no derivative at 0."""

    def init(self, key, dtype=jnp.float32):
        return {"w": jnp.ones(1, dtype)}, {}

    def initial_hidden(self, params, batch):
        return jnp.zeros((*batch, 1))

    def step(self, params, x, hidden):
        new = hidden / 2 + params["w"] * jnp.log(x)
        return new, new


@pytest.mark.parametrize("hole", [0.0, 1.0, np.nan])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_padding_is_nothing_that_a_cell_sees(hole, batch, maybe_jit):
    layer, mask = nn.Recurrence(OfLogarithms()), np.array([False, True, True, False])
    x = jnp.broadcast_to(jnp.array([[hole], [2.0], [3.0], [hole]]), (*batch, 4, 1))

    def loss(params, x):
        return layer.apply(params, {}, x, mask=jnp.broadcast_to(mask, (*batch, 4)))[0].sum()

    params, _ = layer.init(KEY)
    gradient, dx = maybe_jit(jax.grad(loss, argnums=(0, 1)))(params, x)
    want = int(np.prod(batch)) * (1.5 * np.log(2) + np.log(3))
    np.testing.assert_allclose(gradient["w"], [want], rtol=1e-6)
    np.testing.assert_allclose(dx[..., 0], np.broadcast_to([0, 0.75, 1 / 3, 0], dx.shape[:-1]))


@pytest.mark.parametrize("kind", CELLS)
def test_the_first_hidden_state_may_be_donated(kind):
    cell = kind(2, 3)
    params, _ = cell.init(KEY)
    step = jax.jit(lambda h, x: cell.apply(params, {}, x, hidden=h)[0][1], donate_argnums=0)
    x, hidden = jnp.ones((4, 2)), cell.initial_hidden(params, (4,))
    want = jax.jit(lambda x: cell.apply(params, {}, x)[0][1])(x)
    close(step(hidden, x), want)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_bias_in_single_precision_beside_weights_in_half(kind):
    layer = kind(2, 3)
    params, _ = layer.init(KEY)
    half = {name: p if name == "bias" else p.astype(jnp.bfloat16) for name, p in params.items()}
    x = draw(0, (2, 5, 2)).astype(np.float32)
    with jax.numpy_dtype_promotion("standard"):
        y = layer.apply(half, {}, x)[0]
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, layer.apply(params, {}, x)[0], atol=0.03)
