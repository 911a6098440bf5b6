"""`within_gradient` and `is_differentiating`: exact for each value, never a silent no."""

import collections
import enum
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pybridge as pb
from pybridge.primitives import listen

wg = pb.within_gradient


class Parameter:
    """An object that turns into an array."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


def by_value(w, x):
    """Show in one number which of the two is differentiated (tesseract-jax #137)."""
    return jnp.where(wg(w), 10.0, 1.0) * jnp.where(wg(x), 100.0, 1.0) * w * x


def tenfold(x):
    return jnp.where(wg(x), 10.0, 1.0) * x


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: jax.value_and_grad(f),
        lambda f: jax.value_and_grad(jax.jit(f)),
        lambda f: jax.jit(jax.value_and_grad(f)),
    ],
    ids=["grad", "grad of jit", "jit of grad"],
)
def test_only_the_differentiated_argument_answers(wrap):
    value, gradient = wrap(by_value)(2.0, 3.0)
    assert (value, gradient) == (60.0, 30.0)


@pytest.mark.parametrize("argnums, expected", [(0, 60.0), (1, 600.0), ((0, 1), 6000.0)])
def test_argnums(argnums, expected, maybe_jit):
    assert maybe_jit(jax.value_and_grad(by_value, argnums))(2.0, 3.0)[0] == expected


@pytest.mark.parametrize(
    "plain", [tenfold, jax.jit(tenfold), lambda x: jax.vmap(tenfold)(x[None])[0]]
)
def test_no_derivative_no_answer(plain):
    assert plain(jnp.asarray(2.0)) == 2.0


def value_and_derivative(f, x):
    return jax.value_and_grad(f)(x)


def by_vjp(f, x):
    value, pullback = jax.vjp(f, x)
    return value, pullback(jnp.ones_like(value))[0]


def by_linearize(f, x):
    value, tangent = jax.linearize(f, x)
    return value, tangent(jnp.ones_like(value))


def by_jvp(f, x):
    return jax.jvp(f, (x,), (jnp.ones_like(x),))


@pytest.mark.parametrize("how", [value_and_derivative, by_vjp, by_linearize, by_jvp])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        jax.jit,
        jax.checkpoint,
        lambda f: lambda x: lax.cond(x > 0, f, lambda x: x, x),
    ],
    ids=["plain", "jit", "checkpoint", "cond"],
)
def test_value_and_derivative_of_tenfold(how, wrap, maybe_jit):
    result = maybe_jit(lambda x: how(wrap(tenfold), x))(jnp.asarray(2.0))
    assert result == (20.0, 10.0)


def test_two_step_scan(maybe_jit):
    def two_steps(x):
        return lax.scan(lambda carry, _: (tenfold(carry), None), x, length=2)[0]

    assert maybe_jit(two_steps)(2.0) == 2.0
    assert maybe_jit(jax.value_and_grad(two_steps))(2.0) == (200.0, 100.0)


def test_hessian_of_the_square(maybe_jit):
    assert maybe_jit(jax.hessian(lambda x: tenfold(x) ** 2))(2.0) == 200.0


def test_traces_without_a_derivative(maybe_jit):
    assert not maybe_jit(wg)(1.0)
    batched = maybe_jit(jax.vmap(wg))(jnp.ones(3))
    assert batched.shape == (3,)
    assert not batched.any()
    closed = jax.make_jaxpr(wg)(1.0)
    assert not jax.core.eval_jaxpr(closed.jaxpr, closed.consts, 1.0)[0]
    answer = jax.eval_shape(wg, 1.0)
    assert (answer.shape, answer.dtype) == ((), np.dtype(bool))


def test_stop_gradient(maybe_jit):
    def f(x):
        return jnp.where(wg(lax.stop_gradient(x)), 100.0, 1.0) * tenfold(x)

    assert maybe_jit(jax.value_and_grad(f))(2.0) == (20.0, 10.0)


def test_what_comes_from_a_differentiated_value_answers(maybe_jit):
    def f(x):
        y = jnp.sin(x)
        rounded = jnp.round(x).astype(int)
        return jnp.stack([wg(y), wg(rounded), wg(x > 0), wg(3.0)]).astype(float).sum() + x

    assert maybe_jit(jax.value_and_grad(f))(2.0) == (3.0, 1.0)


@pytest.mark.parametrize(
    "outer", [jax.jit, jax.checkpoint, lambda f: lambda x: jax.vmap(f)(x[None])[0]]
)
def test_only_the_level_that_differentiates_sees_it(outer):
    # The inner gradient is with respect to `y`; `x` is a constant of it, and differentiated
    # only by the outer one.
    def inner(x):
        def f(y):
            return jnp.where(wg(x), 10.0, 1.0) * jnp.where(wg(y), 100.0, 1.0) * x * y

        return jax.grad(f)(3.0)

    x = jnp.asarray(2.0)
    assert outer(inner)(x) == 200.0
    assert jax.value_and_grad(outer(inner))(x) == (2000.0, 1000.0)


def test_the_answer_is_not_batched():
    # A jitted vmap of a gradient: a plain `if` on the answer, in spite of the vmap.
    def f(x):
        return 10.0 * x if wg(x) else x

    x = jnp.arange(3.0)
    assert jax.vmap(f)(x).tolist() == x.tolist()
    assert jax.vmap(jax.grad(f))(x).tolist() == [10.0] * 3
    assert jax.grad(lambda x: jax.vmap(f)(x).sum())(x).tolist() == [10.0] * 3
    assert jax.jit(jax.vmap(jax.grad(f)))(x).tolist() == [10.0] * 3


def test_shard_map_without_jit(mesh):
    mapped = jax.shard_map(tenfold, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    x = jnp.arange(8.0)
    assert mapped(x).tolist() == x.tolist()
    assert jax.grad(lambda x: mapped(x).sum())(x).tolist() == [10.0] * 8


def test_sharded_arrays_under_jit(mesh):
    def f(x):
        flag = wg(x)
        # Loops compare the types of what they carry, the mesh included.
        flag, _ = lax.scan(lambda f, _: (f | wg(x), None), flag, length=2)
        flag = lax.while_loop(lambda f: f & False, lambda f: wg(x), flag)
        return (jnp.where(flag, 10.0, 1.0) * x).sum()

    x = jax.device_put(jnp.ones(8), NamedSharding(mesh, P("i")))
    assert jax.jit(f)(x) == 8.0
    assert jax.jit(jax.grad(f))(x).tolist() == [10.0] * 8
    assert jax.grad(jax.jit(f))(x).tolist() == [10.0] * 8


def test_inside_custom_rules_values_are_plain():
    @jax.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def _(primals, tangents):
        return jnp.where(wg(primals), 10.0, 1.0) * primals[0], tangents[0]

    @jax.custom_vjp
    def g(x):
        return x

    def forward(x):
        return jnp.where(wg(x), 10.0, 1.0) * x, None

    g.defvjp(forward, lambda _, ct: (ct,))
    assert jax.value_and_grad(f)(2.0)[0] == 2.0
    assert jax.value_and_grad(g)(2.0)[0] == 2.0


def test_pytrees_and_leaves_that_carry_nothing(key, maybe_jit):
    def f(x, n):
        tree = {"n": n, "key": key, "flag": True, "name": "layer", "act": jnp.tanh}
        without = wg(tree) | wg((None, [])) | wg(np.float64(1.0)) | wg(1 + 2j)
        return jnp.where(wg({**tree, "x": [x]}), 10.0, 1.0) * x + without.astype(float)

    assert maybe_jit(jax.value_and_grad(f))(2.0, 3) == (20.0, 10.0)


def test_complex_and_half_precision_values_answer(maybe_jit):
    def f(x):
        return jnp.where(wg(x), 10.0, 1.0).astype(x.dtype) * x

    half = jnp.asarray(2.0, jnp.bfloat16)
    assert maybe_jit(jax.grad(f))(half) == 10.0
    gradient = maybe_jit(jax.grad(lambda z: f(z).real, holomorphic=False))(2.0 + 1.0j)
    assert gradient == 10.0


def test_a_differentiated_key_array_is_no_obstacle(key, maybe_jit):
    def f(x, key):
        noise = jax.random.normal(key)
        return jnp.where(wg(key), 100.0, 1.0) * tenfold(x) + 0.0 * noise

    assert maybe_jit(jax.value_and_grad(f))(2.0, key)[0] == 20.0


def test_is_differentiating(maybe_jit):
    def f(w, x):
        either = jnp.where(pb.is_differentiating(w, x), 10.0, 1.0)
        return either * jnp.where(pb.is_differentiating(x, 1), 100.0, 1.0) * w * x

    assert maybe_jit(f)(2.0, 3.0) == 6.0
    assert maybe_jit(jax.value_and_grad(f, 0))(2.0, 3.0)[0] == 60.0
    assert maybe_jit(jax.value_and_grad(f, 1))(2.0, 3.0)[0] == 6000.0
    assert not pb.is_differentiating()


def test_is_differentiating_asks_for_each_value_under_vmap():
    def f(w, x):
        return jnp.where(pb.is_differentiating(w, x), 10.0, 1.0) * w * x

    ones = jnp.ones(3)
    for argnum in (0, 1):
        by_one = jax.grad(lambda *args: jax.vmap(f)(*args).sum(), argnum)(ones, ones)
        assert by_one.tolist() == [10, 10, 10]


def test_a_plain_if_works_without_jit():
    def f(x):
        if wg(x):
            return 10.0 * x
        return x

    assert f(2.0) == 2.0
    for differentiate in (jax.grad, jax.jacfwd, jax.jacrev):
        assert differentiate(f)(2.0) == 10.0
    assert jax.jit(jax.grad(f))(2.0) == 10.0


@pytest.mark.parametrize(
    "use",
    [
        lambda x: 1.0 if wg(x) else x,
        lambda x: 1.0 if not wg(x) else x,
        lambda x: wg(x) and x,
        lambda x: 1.0 if pb.is_differentiating(x, 1) else x,
    ],
    ids=["if", "not", "and", "is_differentiating"],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.grad, jax.vmap, jax.checkpoint])
def test_a_plain_if_under_jit_names_cond(use, wrap):
    argument = jnp.ones(2) if wrap is jax.vmap else 1.0
    traced = jax.jit(use)
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        wrap(traced)(argument)
    message = str(caught.value)
    assert "pb.cond(pb.within_gradient(x), f, g, x)" in message
    assert "under `jit`" in message


@pytest.mark.parametrize(
    "operation",
    [
        lambda flag, x: jnp.where(flag, x, 2.0 * x),
        lambda flag, x: lax.select(flag, x, 2.0 * x),
        lambda flag, x: lax.cond(flag, lambda x: x, lambda x: 2.0 * x, x),
        lambda flag, x: jax.jit(jnp.where)(flag, x, 2.0 * x),
        lambda flag, x: jnp.where(lax.fori_loop(0, 2, lambda i, f: ~f, flag), x, 2.0 * x),
        lambda flag, x: lax.scan(lambda f, _: (f, f), flag, length=2)[1].sum() + 2.0 * x,
        lambda flag, x: jnp.where((flag & True) | (flag == flag[None])[0], 2.0 * x, x),
        lambda flag, x: jnp.where(jnp.stack([flag, flag]).any(), x, 2.0 * x),
        lambda flag, x: (2.0 - flag.astype(float)) * x,
    ],
)
def test_the_answer_is_an_array_like_any_other(operation):
    with jax.numpy_dtype_promotion("standard"):
        assert jax.jit(lambda x: operation(wg(x), x))(2.0) == 4.0


FOREIGN = {
    "torch": types.new_class("Tensor", exec_body=lambda ns: ns.update(__module__="torch")),
    "juliacall": type("AnyValue", (), {"__module__": "juliacall", "__call__": print}),
    "autograd": type("ArrayBox", (), {"__module__": "autograd.numpy.numpy_boxes"}),
    "dual": type("Dual", (float,), {"__module__": "my_duals"}),
    "matrix": type("Units", (np.ndarray,), {"__module__": "units"}),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_value_is_an_error_that_names_it(name):
    kind = FOREIGN[name]
    value = np.zeros(2).view(kind) if name == "matrix" else kind()
    for tree in (value, [1.0, {"x": value}]):
        with pytest.raises(pb.DetectionError, match=rf"{kind.__module__}.{kind.__name__}"):
            wg(tree)
    with pytest.raises(TypeError):
        pb.is_differentiating(1.0, value)


def test_an_array_of_objects_is_an_error():
    with pytest.raises(pb.DetectionError, match="dtype object"):
        wg(np.array([1.0, None]))


def test_an_object_that_holds_a_tracer_unseen_is_an_error():
    class Holder:
        def __init__(self, x):
            self.x = x

    with pytest.raises(pb.DetectionError, match="Holder"):
        jax.grad(lambda x: jnp.where(wg(Holder(x)), 1.0, 2.0) * x)(1.0)


def test_static_values_are_false():
    class Mode(enum.Enum):
        TRAIN = "train"

    Point = collections.namedtuple("Point", "x y")
    static = [
        "name",
        Mode.TRAIN,
        3,
        2.0,
        None,
        len,
        np.dtype(float),
        jnp.float32,
        slice(1),
        functools.partial(print),
        Point(1, 2),
        np.float32(1.0),
        jnp.zeros(2),
        jnp.bfloat16.dtype.type(1),
        jax.jit(jnp.sin),
        Parameter,
    ]
    assert not wg(static)


def test_what_never_carries_a_derivative_is_answered_at_once_under_jit():
    answers = []

    @jax.jit
    def ask(*xs):
        answers.extend(wg(x) for x in xs)

    ask(3, True, jax.random.key(0))
    assert answers == [False, False, False]


def test_an_object_that_turns_into_an_array_is_asked():
    def f(x):
        return jnp.where(wg(Parameter(x)), 10.0, 1.0) * x

    assert f(2.0) == 2.0
    assert jax.grad(f)(2.0) == 10.0
    with pytest.raises(pb.DetectionError, match=r"pb\.differentiation_order.*torch\.Tensor"):
        pb.differentiation_order(Parameter(FOREIGN["torch"]()))


def test_a_linear_transpose_asks_for_what_is_known():
    def f(w):
        scaled = lambda v: jnp.where(pb.is_differentiating(w, v), 10.0, 1.0) * v  # noqa: E731
        return jax.linear_transpose(scaled, 1.0)(w)[0]

    assert f(2.0) == 2.0
    assert jax.grad(f)(2.0) == 10.0


def test_nothing_is_heard_after_the_end_of_listening():
    with listen() as heard:
        jax.grad(tenfold)(2.0)
    jax.grad(tenfold)(3.0)
    assert heard == [True]


def test_the_answer_has_no_derivative():
    _, tangent = jax.jvp(wg, (1.0,), (1.0,))
    assert tangent.dtype == jax.dtypes.float0


def test_no_retrace(count_traces):
    traced = count_traces(tenfold)
    compiled = jax.jit(jax.value_and_grad(traced))
    for x in (1.0, 2.0, 3.0):
        compiled(x)
    assert traced.traces == 1


def test_the_condition_of_a_while_loop_sees_no_derivative():
    # JAX differentiates the body alone.
    def steps(x):
        carry = (x, jnp.asarray(0.0))
        return lax.while_loop(
            lambda c: ~pb.within_gradient(c[0]) & (c[1] < 3),
            lambda c: (c[0] * jnp.where(pb.within_gradient(c[0]), 2.0, 1.0), c[1] + 1),
            carry,
        )

    (x, count), _ = jax.jvp(steps, (1.0,), (1.0,))
    assert (float(x), float(count)) == (8.0, 3.0)
