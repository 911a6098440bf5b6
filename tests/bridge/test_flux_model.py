"""`pb.flux`: real Flux models, called and trained from JAX."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import SYSTEMS
from flux_helpers import close, in_julia, inputs, model
from precision import enable_x64
from quick import by_day

import pybridge as pb

MLP = "Chain(Dense(3 => 5, tanh), Dense(5 => 2; bias=false))"
CNN = """Chain(Conv((3, 2), 2 => 3, relu; pad=1), BatchNorm(3, tanh), MeanPool((2, 2)),
    Flux.flatten, Dense(12 => 2))"""
MODELS = {
    "mlp": (MLP, (4, 3)),
    "cnn": (CNN, (5, 2, 3, 4)),
    "norms": (
        "Chain(InstanceNorm(4; affine=true, track_stats=true), GroupNorm(4, 2), Flux.flatten, "
        "LayerNorm(12, tanh), Flux.Scale(12))",
        (2, 4, 3),
    ),
    "containers": (
        "Chain(skip=SkipConnection(Dense(3 => 3, relu), +), side=Parallel(vcat, a=Dense(3 => 2), "
        "b=Flux.Maxout(() -> Dense(3 => 2), 2)), last=Flux.WeightNorm(Dense(4 => 2)))",
        (4, 3),
    ),
    "recurrent": ("Chain(LSTM(3 => 4), Dense(4 => 2))", (2, 5, 3)),
}
NIGHT = pytest.mark.nightly
DROPOUT = "Chain(Dense(3 => 4), BatchNorm(4), Dropout(0.5))"


def total(y):
    return jnp.sum(jnp.square(y))


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=NIGHT), np.float64])
@pytest.mark.parametrize("name", by_day(MODELS, ["cnn"]))
def test_numbers_are_fluxs(name, dtype):
    source, shape = MODELS[name]
    single = dtype == np.float32
    with enable_x64(not single):
        flux = model(source if single else f"Flux.f64({source})")
        params, state = flux.init()
        x = inputs(shape, dtype)
        y, same = flux.apply(params, state, x)
        want = in_julia("(m, x) -> Flux.testmode!(deepcopy(m))(R(x))", flux.model, x)
        close(y, want, 1e-5 if single else 1e-12)
        assert same is state

        def loss(params, x):
            y, new = flux.apply(params, state, x)
            return total(y), new

        step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
        (value, new), (of_params, of_x) = step(params, x)
        flat, want_x, want_value = in_julia(
            """function (m, x)
                v, re = Flux.destructure(m)
                f(v, x) = sum(abs2, re(v)(x))
                value, (v̄, x̄) = Flux.withgradient(f, v, R(x))
                return v̄, x̄, [value]
            end""",
            flux.model,
            x,
        )
        ours = jnp.concatenate([a.ravel() for a in flux._params.arrays(of_params)])
        close(ours, flat, 1e-4 if single else 1e-11)
        close(of_x, want_x, 1e-4 if single else 1e-11)
        close(value, want_value[0], 1e-5 if single else 1e-12)
        assert jax.tree.structure(new) == jax.tree.structure(state)


def test_tree_has_fluxs_names_and_nesting():
    params, state = model(CNN).init()
    assert jax.tree.map(jnp.shape, params) == {
        "layers": (
            {"weight": (3, 2, 2, 3), "bias": (3,)},
            {"β": (3,), "γ": (3,)},
            {},
            {},
            {"weight": (12, 2), "bias": (2,)},
        )
    }
    assert jax.tree.map(jnp.shape, state) == {"layers": ({}, {"μ": (3,), "σ²": (3,)}, {}, {}, {})}
    named, none = model(MODELS["containers"][0]).init()
    assert set(named["layers"]) == {"skip", "side", "last"}
    assert set(named["layers"]["side"]["layers"]) == {"a", "b"}
    assert named["layers"]["last"]["g"].shape == (1, 2)
    assert none == {}


@pytest.mark.parametrize("system", by_day(SYSTEMS, ["zygote"]))
def test_running_statistics_are_fluxs(system):
    flux = model(CNN, system)
    params, state = flux.init()
    x = inputs((5, 2, 3, 4))
    want = in_julia(
        """function (m, x)
            m = Flux.trainmode!(deepcopy(m))
            m(R(x))
            return m[2].μ, m[2].σ²
        end""",
        flux.model,
        x,
    )
    step = jax.grad(lambda p: (lambda y, s: (total(y), s))(*flux.apply(p, state, x)), has_aux=True)
    gradient, new = jax.jit(step)(params)
    close([new["layers"][1]["μ"], new["layers"][1]["σ²"]], want, 1e-5)
    reference = jax.grad(lambda p: total(model(CNN).apply(p, state, x)[0]))(params)
    close(gradient, reference, 1e-4)
    assert in_julia("m -> m[2].μ", flux.model).tolist() == [0.0, 0.0, 0.0]
    if system == "yota":  # it lacks rules for the bridge's way to differentiate one leaf of a tuple
        return
    # One parameter alone: the layer's two are of different types inside the AD system.
    beta = params["layers"][1]["β"]

    def of_beta(beta):
        layers = list(params["layers"])
        layers[1] = {**layers[1], "β": beta}
        return total(flux.apply({"layers": tuple(layers)}, state, x)[0])

    close(jax.grad(of_beta)(beta), reference["layers"][1]["β"], 1e-4)


def test_vmap_scan_and_forward_mode():
    flux = model(MLP)
    params, state = flux.init()
    xs = inputs((3, 4, 3))
    f = lambda x: flux.apply(params, state, x)[0]  # noqa: E731
    want = jnp.stack([f(x) for x in xs])
    close(jax.vmap(f)(xs), want, 1e-6)
    close(jax.jit(lambda xs: jax.lax.map(f, xs))(xs), want, 1e-6)
    members = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), params)
    g = lambda p: jax.grad(lambda p: total(flux.apply(p, state, xs[0])[0]))(p)  # noqa: E731
    one = jax.tree.map(lambda p: p[1], jax.vmap(g)(members))
    close(one, g(jax.tree.map(lambda p: 2 * p, params)), 1e-5)
    _, moved = jax.jvp(f, (xs[0],), (xs[1],))
    back = jax.vjp(f, xs[0])[1](jnp.ones_like(want[0]))[0]
    np.testing.assert_allclose(jnp.sum(moved), jnp.sum(back * xs[1]), rtol=1e-4)


@pytest.mark.peers("optax")
def test_trained_by_optax_inside_scan():
    import optax

    flux = model(DROPOUT)
    params, state = flux.init(jax.random.key(0))
    optimizer = optax.adam(0.1)
    x, target = inputs((16, 3)), inputs((16, 4), seed=2)

    def loss(params, state, key):
        y, state = flux.apply(params, state, x, key=key)
        return jnp.mean((y - target) ** 2), state

    @jax.jit
    def train(params, state, keys):
        def step(carry, key):
            params, state, moments = carry
            (value, state), g = jax.value_and_grad(loss, has_aux=True)(params, state, key)
            updates, moments = optimizer.update(g, moments)
            return (optax.apply_updates(params, updates), state, moments), value

        return jax.lax.scan(step, (params, state, optimizer.init(params)), keys)

    (params, state, _), values = train(params, state, jax.random.split(jax.random.key(1), 60))
    before = jnp.mean((flux.apply(*flux.init(jax.random.key(0)), x)[0] - target) ** 2)
    after = jnp.mean((flux.apply(params, state, x)[0] - target) ** 2)
    assert after < before and np.isfinite(values).all()
    assert not jnp.allclose(state["layers"][1]["μ"], 0)


# --- mode ------------------------------------------------------------------------------------


def test_explicit_mode_wins_and_auto_asks():
    flux = model(DROPOUT)
    params, state = flux.init()
    x, key = inputs((6, 3)), jax.random.key(0)
    call = lambda x, training: flux.apply(params, state, x, key=key, training=training)  # noqa: E731
    test, same = call(x, "auto")
    assert same is state
    with pytest.warns(pb.nn.ModeWarning):
        train, new = call(x, True)
    assert not np.allclose(train, test)
    assert not np.allclose(new["layers"][1]["μ"], 0)
    auto, _ = jax.vjp(lambda x: call(x, "auto")[0], jnp.asarray(x))
    close(auto, train, 1e-6)
    with pytest.warns(pb.nn.ModeWarning):
        frozen, _ = jax.vjp(lambda x: call(x, False)[0], jnp.asarray(x))
    close(frozen, test, 1e-6)
    close(jax.jit(lambda x: call(x, "auto")[0])(x), test, 1e-6)
    traced = jax.jit(call)
    close(traced(x, jnp.bool_(True))[0], train, 1e-6)
    close(traced(x, jnp.bool_(False))[0], test, 1e-6)


def test_the_models_own_mode_stays_and_calls_never_change_it():
    flux = pb.flux(
        "Chain(BatchNorm(3; active=false), Dropout(0.5; active=true), Dropout(0.9))", using=()
    )
    params, state = flux.init()
    x, key = inputs((6, 3)), jax.random.key(0)
    y, _ = flux.apply(params, state, x, key=key)
    kept = jax.random.bernoulli(jax.random.fold_in(key, 1), np.float32(0.5), x.shape)
    close(y, jnp.where(kept, 2 * x / np.sqrt(np.float32(1 + 1e-5)), 0), 1e-6)
    jax.grad(lambda x: total(flux.apply(params, state, x, key=key)[0]))(x)
    with pytest.raises(pb.ArgumentValueError, match="expected a key"):
        flux.apply(params, state, x)
    fields = "m -> [m[1].active === false, m[2].active === true, m[3].active === nothing]"
    assert in_julia(fields, flux.model).all()


def test_training_without_a_key_is_an_error_when_it_is_known():
    flux = model(DROPOUT)
    params, state = flux.init()
    x = inputs((6, 3))
    f = lambda x: total(flux.apply(params, state, x)[0])  # noqa: E731
    assert np.isfinite(jax.jit(f)(x))
    for differentiated in (jax.grad(f), jax.jit(jax.grad(f)), jax.grad(jax.jit(f))):
        with pytest.raises(pb.ArgumentValueError, match="expected a key"):
            differentiated(x)
    with pytest.raises(pb.ArgumentValueError, match="expected a key"):
        flux.apply(params, state, x, training=jnp.bool_(True))
    nothing = model("Chain(Dropout(0.0))")
    x = jnp.asarray(x)
    assert (jax.vjp(lambda x: nothing.apply({}, {}, x)[0], x)[0] == x).all()


# --- masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.999, 1.0])
def test_masks_are_jaxs(p, dtype):
    flux = model(f"Dropout({p})")
    x, key = inputs((7, 5, 3), dtype), jax.random.key(4)
    y, back = jax.vjp(lambda x: flux.apply({}, {}, x, key=key)[0], jnp.asarray(x))
    kept = jax.random.bernoulli(key, np.float32(1 - p), x.shape)
    scale = dtype(1 / (1 - p)) if p < 1 else dtype(0)
    assert y.dtype == dtype
    assert (y == jnp.where(kept, x * scale, 0)).all()
    assert (back(jnp.ones_like(y))[0] == jnp.where(kept, scale, 0).astype(dtype)).all()


def test_masks_of_channels_and_of_nested_layers():
    channels = model("Dropout(0.5; dims=(3, 4))")
    x, key = np.ones((4, 8, 2, 2), np.float32), jax.random.key(4)
    y, _ = jax.vjp(lambda x: channels.apply({}, {}, x, key=key)[0], x)
    kept = jax.random.bernoulli(key, np.float32(0.5), (4, 8, 1, 1))
    assert (y == jnp.where(kept, 2 * x, 0)).all()
    nested = model(
        "Chain(identity, SkipConnection(Chain(identity, a -> a, Dropout(0.5)), (a, b) -> a), "
        "Parallel(+, Dropout(0.5), zero))"
    )
    y, _ = jax.vjp(lambda x: nested.apply({}, {}, x, key=key)[0], x)
    fold = jax.random.fold_in
    first = jax.random.bernoulli(fold(fold(fold(key, 1), 0), 2), np.float32(0.5), x.shape)
    second = jax.random.bernoulli(fold(fold(key, 2), 0), np.float32(0.5), x.shape)
    assert (y == jnp.where(first & second, 4, 0)).all()


def test_masks_are_the_same_under_every_system(system):
    flux = model("Chain(Dropout(0.3), AlphaDropout(0.4))", system)
    x, key = inputs((5, 4)), jax.random.key(4)
    layer, params, state = pb.nn.from_flux(flux)
    got = jax.vjp(lambda x: flux.apply({}, {}, x, key=key)[0], jnp.asarray(x))
    want = jax.vjp(lambda x: layer.apply(params, state, x, key=key)[0], jnp.asarray(x))
    close(got[0], want[0], 1e-6)
    close(got[1](got[0]), want[1](got[0]), 1e-6)


# --- weights ---------------------------------------------------------------------------------


def test_init_draws_from_the_key_and_leaves_julias_generator():
    flux = model(MLP)
    state_of = "() -> collect(Flux.Random.rand(copy(Flux.Random.default_rng()), 3))"
    before = in_julia(state_of)
    one, _ = flux.init(jax.random.key(1))
    assert (in_julia(state_of) == before).all()
    again, _ = jax.jit(flux.init)(jax.random.key(1))
    other, _ = flux.init(jax.random.key(2))
    assert all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(again)))
    assert not np.array_equal(one["layers"][0]["weight"], other["layers"][0]["weight"])
    half, _ = flux.init(dtype=jnp.float16)
    assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {np.dtype(np.float16)}


def test_load_writes_exactly_or_not_at_all():
    flux = pb.flux(DROPOUT)
    start = flux.init()
    new = jax.tree.map(lambda a: a + np.float32(1 / 3), start)
    flux.load(*new)
    assert all(map(np.array_equal, jax.tree.leaves(flux.init()), jax.tree.leaves(new)))
    params, state = start
    wrong_dtype = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    wrong_shape = {"layers": ({**params["layers"][0], "bias": jnp.zeros(5)}, *params["layers"][1:])}
    lacking = {"layers": ({"weight": params["layers"][0]["weight"]}, *params["layers"][1:])}
    cases = [
        ((wrong_dtype, state), pb.ArgumentTypeError, "float32 for params['layers'][0]['bias']"),
        ((wrong_shape, state), pb.ArgumentValueError, "(4,) for params['layers'][0]['bias']"),
        ((lacking, state), pb.ArgumentTypeError, "an array at params['layers'][0]['bias']"),
        ((params, params), pb.ArgumentTypeError, "an array at state['layers'][1]['μ']"),
    ]
    for arguments, error, text in cases:
        with pytest.raises(error, match=re.escape(text)):
            flux.load(*arguments)
    with pytest.raises(pb.ArgumentValueError, match=re.escape("params['layers'][0]['bias']")):
        flux.apply(wrong_shape, state, inputs((2, 3)))
    assert all(map(np.array_equal, jax.tree.leaves(flux.init()), jax.tree.leaves(new)))


def test_model_objects_and_what_they_hold():
    source = "Chain(Dense(2 => 2), Dense(2 => 2))"
    first = model(source)
    second = pb.flux(first.model)
    assert second.source is None and len(second) == len(first) == 2
    params, state = second.init(jax.random.key(0))
    assert all(map(np.array_equal, jax.tree.leaves(params), jax.tree.leaves(first.init()[0])))
    second.load(jax.tree.map(jnp.zeros_like, params), state)
    assert not any(leaf.any() for leaf in jax.tree.leaves(first.init()[0]))
    assert "Dense(2 => 2)" in repr(second)
    with pytest.raises(TypeError, match="has a length"):
        len(model("Dropout(0.5)"))


def test_tied_weights_stay_tied():
    tied = pb.flux("let d = Dense(3 => 3; bias=false); Chain(d, d, Dense(transpose(d.weight))) end")
    params, state = tied.init()
    assert jax.tree.map(jnp.shape, params) == {"layers": ({"weight": (3, 3)}, {}, {"bias": (3,)})}
    weight, x = params["layers"][0]["weight"], jnp.asarray(inputs((4, 3)))

    def ours(weight):
        layers = ({"weight": weight}, *params["layers"][1:])
        return tied.apply({"layers": layers}, state, x)[0]

    theirs = lambda weight: x @ weight @ weight @ weight.T  # noqa: E731
    close(ours(weight), theirs(weight), 1e-5)
    gradients = (jax.grad(lambda w, f=f: total(f(w)))(weight) for f in (ours, theirs))
    close(*gradients, 1e-4)


def test_layers_of_the_users_own():
    source = """begin
        struct Shift{A,B,C}; shift::A; table::B; count::C; end
        Flux.@layer Shift trainable=(shift,)
        (s::Shift)(x) = s.shift .* x .+ s.table .+ sum(s.count)
        Chain(Shift(fill(2f0), Float32[1, 2], [3]), let W = ones(Float32, 2, 2); x -> W * x end)
    end"""
    flux = pb.flux(source)
    params, state = flux.init()
    assert jax.tree.map(jnp.shape, params) == {"layers": ({"shift": ()}, {"W": (2, 2)})}
    assert jax.tree.map(jnp.shape, state) == {"layers": ({"table": (2,)}, {})}
    x = jnp.asarray(inputs((4, 2)))
    want = lambda a, W: total((a * x + jnp.array([1.0, 2.0]) + 3) @ W)  # noqa: E731
    got = jax.grad(lambda p: total(flux.apply(p, state, x)[0]))(params)
    one, two = jax.grad(want, argnums=(0, 1))(jnp.float32(2), jnp.ones((2, 2)))
    close([got["layers"][0]["shift"], got["layers"][1]["W"]], [one, two], 1e-5)


def test_a_model_is_a_layer_among_layers():
    whole = pb.nn.Chain(model(DROPOUT), jnp.tanh)
    params, state = whole.init(jax.random.key(0))
    x, key = inputs((6, 3)), jax.random.key(1)
    step = jax.jit(jax.value_and_grad(lambda p: total(whole.apply(p, state, x, key=key)[0])))
    value, gradient = step(params)
    inner = model(DROPOUT).apply(
        params[0], state[0], x, key=jax.random.fold_in(key, 0), training=jnp.bool_(True)
    )[0]
    close(value, total(jnp.tanh(inner)), 1e-5)
    assert jax.tree.structure(gradient) == jax.tree.structure(params)


def test_inputs_and_outputs_are_trees():
    flux = model("Parallel((a, b) -> (a, sum=a .+ b), Dense(2 => 2), identity)")
    params, state = flux.init()
    a, b = inputs((3, 2)), inputs((3, 2), seed=2)
    (first, second), _ = flux.apply(params, state, (a, b))
    np.testing.assert_allclose(second, first + b, rtol=1e-6)
    words = model("Chain(Embedding(5 => 3), Flux.flatten)")
    y, _ = words.apply(*words.init(), jnp.array([[1, 5], [2, 2]]))
    assert y.shape == (2, 6)


def test_julia_functions_are_made_once():
    flux = model(MLP)
    params, state = flux.init()
    traced = []

    @jax.jit
    def f(params, x):
        traced.append(1)
        return flux.apply(params, state, x)[0]

    for seed in range(3):
        f(params, inputs((4, 3), seed=seed))
    assert len(traced) == 1


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: pb.flux(3), pb.ArgumentTypeError, "got a int"),
        (lambda: pb.flux("3"), pb.ArgumentTypeError, "Int64"),
        (lambda: pb.flux("Chain(Dense(2 => 3)"), pb.JuliaError, "ParseError"),
        (lambda: pb.flux("Chain(Nonsense(2))"), pb.JuliaError, "Nonsense"),
        (lambda: pb.flux(MLP, ad="jax"), pb.UnknownBackendError, "zygote"),
        (lambda: pb.flux(MLP, using="a b"), pb.ArgumentValueError, "'a b'"),
        (lambda: pb.flux("Flux.f64(Dense(1 => 1))").init(), pb.ArgumentTypeError, "['bias']"),
        (lambda: pb.flux("Chain(x -> x, Dict(1 => Dense(1 => 1)))"), pb.JuliaError, "layers.2"),
    ],
)
def test_errors_say_what_is_wrong(make, error, text):
    with pytest.raises(error, match=re.escape(text)):
        make()


def test_errors_of_the_model_come_through():
    flux = model(MLP)
    with pytest.raises(pb.JuliaError, match="DimensionMismatch"):
        flux.apply(*flux.init(), np.ones((4, 7), np.float32))
    with pytest.raises(pb.ArgumentTypeError, match="one JAX key"):
        model(DROPOUT).apply(*model(DROPOUT).init(), inputs((2, 3)), key=3)
