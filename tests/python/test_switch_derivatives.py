"""A switch that is differentiated stays one conditional forward and one back, as JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal
from jax import lax
from jax.interpreters import partial_eval as pe
from jax.sharding import PartitionSpec as P

import pybridge as pb
from pybridge.jaxprs import inner_jaxprs

ONE_RESIDUAL = [jnp.sin, jnp.cos, jnp.sinh]
TWO_RESIDUALS = [*ONE_RESIDUAL, lambda x: jnp.sin(x) + jnp.cos(x)]
ASKING = [lambda x: 2 * x, lambda x: pb.cond(pb.within_gradient(x), lambda x: 3 * x, jnp.exp, x)]


def conditionals(function, *args):
    """Return the conditionals of a program: for each how many outputs it has."""
    equations = jax.make_jaxpr(function)(*args).jaxpr.eqns
    return [len(e.outvars) for e in equations if e.primitive.name in ("cond", "pybridge_switch")]


@pytest.mark.parametrize("branches", [ONE_RESIDUAL, TWO_RESIDUALS, ASKING])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.grad, lambda f: jax.grad(jax.grad(f))])
def test_no_more_conditionals_and_residuals_than_jax(branches, wrap):
    ours, theirs = (
        conditionals(wrap(lambda x, i, switch=switch: switch(i, branches, x)), 0.5, 1)
        for switch in (pb.switch, lax.switch)
    )
    assert len(ours) <= len(theirs)
    assert sum(ours) <= sum(theirs)


@pytest.mark.parametrize("branches", [ONE_RESIDUAL, TWO_RESIDUALS, ASKING])
@pytest.mark.parametrize(("wrap", "count"), [(jax.grad, 2), (jax.jacfwd, 1), (jax.hessian, 2)])
def test_derivatives_make_the_conditionals_that_the_page_says(wrap, count, branches):
    """docs/how-to/choose-between-branches.md: as many as JAX's own switch."""
    for switch in (pb.switch, lax.switch):
        f = wrap(lambda x, i, switch=switch: switch(i, branches, x))
        assert _count_everywhere(jax.make_jaxpr(f)(0.5, 1)) == count


def _count_everywhere(program):
    own = sum(eqn.primitive.name in ("cond", "pybridge_switch") for eqn in program.eqns)
    inner = (part for eqn in program.eqns for part in inner_jaxprs(eqn))
    return own + sum(map(_count_everywhere, inner))


POLICIES = jax.checkpoint_policies
AROUND = {
    "nothing": lambda f: f,
    "checkpoint": jax.checkpoint,
    "checkpoint that saves": lambda f: jax.checkpoint(f, policy=POLICIES.everything_saveable),
    "checkpoint of jit": lambda f: jax.checkpoint(jax.jit(f)),
    "scan": lambda f: lambda i, x: lax.scan(lambda x, _: (f(i, x), x), x, None, length=2),
    "checkpointed scan": lambda f: jax.checkpoint(
        lambda i, x: lax.scan(lambda x, _: (f(i, x), x), x, None, length=2)
    ),
    "scan of checkpoint": lambda f: (
        lambda i, x: lax.scan(
            jax.checkpoint(lambda x, _: (f(i, x), x), policy=POLICIES.dots_saveable),
            x,
            None,
            length=2,
        )
    ),
    "cond": lambda f: lambda i, x: lax.cond(x[0] > 0, f, lambda i, x: x, i, x),
}
NONLINEAR = [jnp.sin, lambda x: x * jnp.exp(x), jnp.ones_like, lambda x: 3 * x]


def pulled(f):
    """Return the transpose of the pushforward, which JAX divides under another name."""

    def function(x):
        pushed = jax.jit(lambda t: jax.jvp(f, (x,), (t,))[1])
        return jax.linear_transpose(pushed, x)(jax.tree.map(jnp.ones_like, pushed(x)))[0]

    return function


def total(f):
    return lambda x: sum((leaf**2).sum() for leaf in jax.tree.leaves(f(x)))


DERIVATIVES = {
    "value and gradient": lambda f: jax.value_and_grad(total(f)),
    "forward": lambda f: lambda x: jax.jvp(f, (x,), (x + 1,)),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x + 1),
    "transposed forward": pulled,
    "forward over reverse": lambda f: jax.hessian(total(f)),
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(total(f))),
    "reverse over transposed": lambda f: jax.grad(total(pulled(f))),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_every_way_to_divide_a_switch_gives_what_jax_gives(around, derivative):
    index, x = jnp.arange(4), jnp.linspace(-1.0, 1.0, 8).reshape(4, 2)

    def derived(switch):
        def of_lane(i, x):
            f = AROUND[around](lambda i, x: switch(i, NONLINEAR, x))
            return DERIVATIVES[derivative](lambda x: f(i, x))(x)

        # One branch for all lanes, and one for each.
        return jax.jit(lambda: (of_lane(1, x[0]), of_lane(2, x[0]), jax.vmap(of_lane)(index, x)))()

    assert_same(derived(pb.switch), derived(lax.switch))


def test_results_that_nobody_uses_are_removed():
    def f(x, y, i):
        branches = [lambda x, y: (jnp.sin(x), jnp.exp(y)), lambda x, y: (x * 2, y * x)]
        return jax.jvp(lambda x, y: pb.switch(i, branches, x, y), (x, y), (x, y))

    program = jax.make_jaxpr(f)(0.5, 1.0, 0).jaxpr
    assert len(program.outvars) == 4
    for used, count in (([True, False, False, False], 2), ([False, False, False, True], 5)):
        [switch] = (e for e in pe.dce_jaxpr(program, used)[0].eqns if "switch" in str(e.primitive))
        assert (len(switch.invars), len(switch.outvars)) == (count, 1)
    assert pe.dce_jaxpr(program, [False] * 4)[0].eqns == []


def test_what_a_branch_prints_is_printed_once_under_checkpoint(capfd):
    def noisy(x):
        jax.debug.print("here {}", x)
        return jnp.sin(x)

    for around in (jax.checkpoint, lambda f: f):
        f = around(lambda x, i: pb.switch(i, [noisy, jnp.cos], x))
        assert float(jax.jit(jax.grad(f))(0.5, 0)) == pytest.approx(np.cos(0.5))
        jax.effects_barrier()
        assert capfd.readouterr().out.count("here") == 1


def test_a_rule_for_reverse_mode_alone_in_a_branch():
    @jax.custom_vjp
    def square(x):
        return x**2

    square.defvjp(lambda x: (square(x), x), lambda x, ct: (10 * x * ct,))

    def f(x, i):
        return pb.switch(i, [square, jnp.sin], x)

    assert float(jax.grad(f)(3.0, 0)) == 30
    assert float(jax.jit(jax.grad(jax.checkpoint(f)))(3.0, 0)) == 30
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jit(jax.jacfwd(f))(3.0, 0)


# Residuals of several shapes and dtypes, operands among them, whole numbers and keys.
def dot(x, n, key):
    return x @ x * jnp.float32(n), {"n": n + 1, "key": key}


def powers(x, n, key):
    return (x**3).sum() + jnp.exp(x[0] * n.astype(x.dtype)), {"n": n, "key": key}


@jax.checkpoint
def noise(x, key):
    return x * jax.random.normal(key, x.shape)


def noisy(x, n, key):
    key = jax.random.fold_in(key, n)
    return noise(jnp.sin(x), key).sum(), {"n": 2 * n, "key": key}


BRANCHES = [dot, powers, noisy, lambda x, n, key: (jnp.float32(1), {"n": n, "key": key})]


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize(
    "derivative",
    [
        jax.value_and_grad,
        lambda f, has_aux: jax.jit(jax.value_and_grad(jax.checkpoint(f), has_aux=has_aux)),
        pytest.param(jax.hessian, marks=pytest.mark.nightly),
    ],
    ids=["grad", "checkpoint", "hessian"],
)
def test_branches_with_different_residuals(derivative, index):
    args = jnp.array([0.5, -1.0, 2.0]), jnp.int32(2), jax.random.key(3)

    def chosen(index, x, n, key):
        return pb.switch(index, BRANCHES, x, n, key)

    def plain(x, n, key):
        return BRANCHES[index](x, n, key)

    for each in (chosen, jax.jit(chosen)):
        got = derivative(lambda *args, each=each: each(jnp.int32(index), *args), has_aux=True)(
            *args
        )
        assert_same(got, derivative(plain, has_aux=True)(*args))


def assert_same(got, expected):
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True)
    for one, other in pairs:
        if jnp.issubdtype(other.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_lanes_take_their_own_residuals(maybe_jit):
    branches = [jnp.log, lambda x: 1 / x, lambda x: jnp.sqrt(-x), jnp.zeros_like]
    index, x = jnp.array([0, 1, 2, 3, 0]), jnp.array([2.0, -3.0, -4.0, 0.0, 0.5])
    slopes = [1 / 2, -1 / 9, -1 / 4, 0, 2]
    curvatures = [-1 / 4, -2 / 27, -1 / 32, 0, -4]

    def f(i, x):
        return pb.switch(i, branches, x)

    equal(maybe_jit(jax.vmap(jax.grad(f, 1)))(index, x), slopes)
    equal(maybe_jit(jax.vmap(jax.grad(jax.grad(f, 1), 1)))(index, x), curvatures)
    pushed = maybe_jit(jax.vmap(lambda i, x: jax.jvp(lambda x: f(i, x), (x,), (1.0,))[1]))
    equal(pushed(index, x), slopes)
    # The index is the same for all lanes, the operand is not.
    equal(maybe_jit(jax.vmap(jax.grad(f, 1), (None, 0)))(0, x[:1]), slopes[:1])


def test_what_every_branch_passes_on_is_in_no_conditional(maybe_jit):
    def f(x, y):
        return pb.cond(x > 0, lambda x, y: (jnp.log(x), y), lambda x, y: (x, y), x, y)

    x, y = jnp.array([1.0, -2.0]), jnp.array([3.0, 4.0])
    logs, same = maybe_jit(jax.vmap(f, (0, None), (0, None)))(x, y)
    equal(logs, [0, -2])
    equal(same, y)
    equal(jax.grad(lambda y: f(1.0, y)[1].sum())(y), [1, 1])
    assert conditionals(lambda x, y: pb.cond(x > 0, lambda y: y, lambda y: y, y), 1.0, y) == []


def test_an_output_that_no_lane_reaches_has_no_lanes(maybe_jit):
    def f(pred, x, w):
        return pb.cond(pred, lambda x, w: (x * w, w**2), lambda x, w: (x, w + 1), x, w)

    mapped = jax.vmap(f, (None, 0, None), (0, None))
    by_lane, shared = maybe_jit(mapped)(True, jnp.array([1.0, 2.0]), 3.0)
    equal(by_lane, [3, 6])
    equal(shared, 9)


def test_a_tangent_that_is_a_number():
    def f(x, i):
        return pb.switch(i, ONE_RESIDUAL, x)

    equal(jax.jit(lambda i: jax.jvp(lambda x: f(x, i), (0.5,), (1.0,))[1])(0), np.cos(0.5))


def test_numbers_come_back_as_arrays():
    for branch in (lambda x: x, lambda x: 2.0):
        f = jax.checkpoint(lambda x, i, g=branch: pb.switch(i, [g, lambda x: 3.0 * x], x))
        for result in jax.jvp(lambda x, f=f: f(x, 0), (0.5,), (1.0,)):
            assert result.reshape(-1).shape == (1,)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("index", [[0, 1, 2, 1], [-3, 5, 2, 3], [2, 2, 2, 2]])
def test_an_index_that_differs_between_devices(mesh, index, check_vma):
    """Indices out of range are those of the first and the last branch here, too."""
    powers = [lambda w, x: w * x, lambda w, x: w**2 * x, lambda w, x: w**3 * x]

    def by_device(index, w, x):
        return pb.switch(index[0], powers, w, x)

    mapped = jax.shard_map(
        by_device,
        mesh=mesh,
        in_specs=(P("i"), P(), P("i")),
        out_specs=P("i"),
        check_vma=check_vma,
    )
    x, n = jnp.arange(1.0, 5.0), np.clip(index, 0, 2) + 1.0

    def loss(w, x):
        return jax.jit(mapped)(jnp.asarray(index), w, x).sum()

    by_w, by_x = jax.grad(loss, (0, 1))(3.0, x)
    equal(by_x, 3.0**n)
    if check_vma:  # without it, who sums over the devices is left to the function
        equal(by_w, (n * 3.0 ** (n - 1) * x).sum())
