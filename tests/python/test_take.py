"""`take` and `at` mean in every mode of differentiation what NumPy's `take` means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import checkify
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from quick import examples

import pybridge as pb
from pybridge.finite import double_precision

RUNTIME = (jax.errors.JaxRuntimeError, ValueError)  # JAX raises either
X = jnp.array([1.0, 2.0, 3.0])
A = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


def equal(got, want):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    if got.dtype == jnp.bfloat16:  # of which NumPy does not know that NaN is NaN
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(got, want)


# ---------------------------------------------------------------- values are NumPy's

INDEX = st.integers(-9, 9)
INDICES = st.one_of(
    INDEX,
    st.lists(INDEX, max_size=4),
    st.lists(st.lists(INDEX, min_size=2, max_size=2), min_size=1, max_size=3),
)
NUMPY_MODES = {"error": "raise", "clip": "clip", "wrap": "wrap"}


def numpy_take(x, indices, axis, mode):
    """Return NumPy's answer; None where it raises."""
    indices = np.asarray(indices, np.int64)
    if mode != "fill":
        try:
            return np.take(x, indices, axis, mode=NUMPY_MODES[mode])
        except IndexError:
            return None
    size = x.size if axis is None else x.shape[axis]
    valid = (indices >= -size) & (indices < size)
    y = np.take(x, np.where(valid, indices, 0), axis)
    before = 0 if axis is None else axis % x.ndim
    shape = (1,) * before + valid.shape + (1,) * (y.ndim - before - valid.ndim)
    return np.where(valid.reshape(shape), y, np.nan).astype(x.dtype)


@settings(deadline=None, max_examples=examples(60))
@given(
    indices=INDICES,
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    axis=st.one_of(st.none(), st.integers(-3, 2)),
    mode=st.sampled_from(["error", "clip", "wrap", "fill"]),
    how=st.sampled_from(["list", "numpy", "jax"]),
)
def test_values_are_numpys(indices, shape, axis, mode, how):
    if axis is not None and not -len(shape) <= axis < len(shape):
        axis = None
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    want = numpy_take(x, indices, axis, mode)
    convert = {"list": lambda i: i, "numpy": np.asarray, "jax": lambda i: jnp.asarray(i, int)}[how]
    if how == "numpy" and np.size(indices) == 0:
        convert = lambda i: np.asarray(i, int)  # noqa: E731
    if want is None:
        with pytest.raises(pb.IndexOutOfBoundsError):
            pb.take(x, convert(indices), axis, mode)
        return
    equal(pb.take(x, convert(indices), axis, mode), want)


DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def check_width(dtype, mode, sizes, wrap):
    info = np.iinfo(dtype)
    values = [info.min, info.max, info.max - 1, 0, 1, info.max // 2]
    rule = {
        "clip": lambda v, size: min(max(v, 0), size - 1),
        "wrap": lambda v, size: v % size,
        "fill": lambda v, size: v % size if -size <= v < size else np.nan,
    }[mode]
    arrays = [np.arange(size, dtype=np.float32) for size in sizes]
    got = wrap(lambda i: [pb.take(x, i, mode=mode) for x in arrays])(np.array(values, dtype))
    for size, taken in zip(sizes, got, strict=True):
        equal(taken, np.array([rule(v, size) for v in values], np.float32))


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_indices_of_every_width(dtype, mode, maybe_jit, x64):
    check_width(dtype, mode, (3, 70_000), maybe_jit)


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
def test_known_indices_of_64_bits_do_not_overflow_in_single_precision(mode):
    for dtype in ("int64", "uint64"):
        check_width(dtype, mode, (3,), lambda f: f)
        check_width(dtype, mode, (3,), lambda f: lambda i: jax.jit(lambda: f(i))())


def test_python_integers_of_any_size():
    equal(pb.take(X, [2**70, -(2**70), 1], mode="clip"), [3, 1, 2])
    equal(pb.take(X, 2**70, mode="wrap"), X[2**70 % 3])
    equal(pb.take(X, [2**70, 0], mode="fill", fill_value=7.0), [7, 1])
    with pytest.raises(pb.IndexOutOfBoundsError, match=str(2**70)):
        pb.take(X, 2**70)


@pytest.mark.parametrize(
    ("dtype", "filled"),
    [
        ("float16", np.nan),
        ("bfloat16", np.nan),
        ("float32", np.nan),
        ("complex64", np.nan),
        ("int8", -128),
        ("uint8", 255),
        ("int32", -(2**31)),
        ("bool", True),
    ],
)
def test_fill_values_are_those_of_jax(dtype, filled, maybe_jit):
    x = jnp.asarray([0, 1], dtype)
    got = maybe_jit(lambda x, i: pb.take(x, i, mode="fill"))(x, jnp.array([1, 2, -3, -1]))
    assert got.dtype == x.dtype
    equal(got, np.array([1, filled, filled, 1]).astype(x.dtype))
    equal(got, jnp.take(x, jnp.array([1, 2, -3, -1]), mode="fill"))


def test_keys(maybe_jit):
    keys = jax.random.split(jax.random.key(0), 3)
    got = maybe_jit(lambda k, i: pb.take(k, i, mode="wrap"))(keys, jnp.array([2, 3]))
    equal(jax.random.key_data(got), jax.random.key_data(keys)[jnp.array([2, 0])])
    spare = jax.random.key(7)
    got = pb.take(keys, [5], mode="fill", fill_value=spare)
    equal(jax.random.key_data(got)[0], jax.random.key_data(spare))
    with pytest.raises(pb.ArgumentTypeError, match="fill_value for PRNG keys"):
        pb.take(keys, [5], mode="fill")


def test_an_axis_of_size_zero(maybe_jit):
    x = jnp.zeros((2, 0))
    none = jnp.zeros((0,), int)
    for mode in ("error", "clip", "wrap", "fill"):
        take = maybe_jit(lambda x, i, mode=mode: pb.take(x, i, 1, mode))
        equal(take(x, none), np.zeros((2, 0)))
        if mode != "fill":
            with pytest.raises(IndexError, match="axis 1, got a size of 0"):
                take(x, jnp.array([0]))
    filled = maybe_jit(lambda x, i: pb.take(x, i, 1, "fill"))
    equal(filled(x, jnp.array([0, 1, 2])), np.full((2, 3), np.nan))
    equal(pb.take(x, [1], axis=0), np.zeros((1, 0)))


# ------------------------------------------------------------- one meaning in every mode


def weigh(y):
    return jnp.sum(y**2 * jnp.arange(1, y.size + 1, dtype=y.dtype).reshape(y.shape))


def test_the_case_of_jax_5760(maybe_jit):
    f = lambda x: pb.take(x, jnp.array([0, 5]), mode="clip").sum()  # noqa: E731
    equal(maybe_jit(f)(X), 4.0)
    equal(maybe_jit(jax.grad(f))(X), [1, 0, 1])
    equal(maybe_jit(jax.jacfwd(f))(X), [1, 0, 1])


@settings(deadline=None, max_examples=examples(15))
@given(
    indices=INDICES,
    axis=st.sampled_from([None, 0, 1, -1]),
    mode=st.sampled_from(["clip", "wrap", "fill"]),
    traced=st.booleans(),
)
def test_forward_reverse_and_differences_agree(indices, axis, mode, traced):
    with double_precision():
        x = np.sin(np.arange(6.0)).reshape(2, 3)
        fill_value = 3.0 if mode == "fill" else None

        def f(x, i):
            return weigh(pb.take(x, i, axis, mode, fill_value=fill_value))

        i = jnp.asarray(indices, int)

        def derivatives(x, i):
            second = jax.hessian(f)(x, i), jax.jacrev(jax.grad(f))(x, i)
            return jax.grad(f)(x, i), jax.jacfwd(f)(x, i), *second

        wrap = (lambda f: jax.jit(f)) if traced else (lambda f: f)
        reverse, forward, hessian, twice = wrap(derivatives)(jnp.asarray(x), i)
        np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-12)
        # f is quadratic: central differences are exact but for rounding.
        n = x.size
        work = jax.jit(lambda x, i: (f(x, i), jax.grad(f)(x, i)))
        slopes = [
            (work(x + e.reshape(2, 3), i)[0] - work(x - e.reshape(2, 3), i)[0]) / 2
            for e in np.eye(n)
        ]
        np.testing.assert_allclose(np.ravel(reverse), slopes, rtol=1e-9, atol=1e-9)
        one, none = (np.asarray(work(np.full((2, 3), v), i)[1]) for v in (1.0, 0.0))
        want = np.diag(np.ravel(one - none))
        np.testing.assert_allclose(np.reshape(hessian, (n, n)), want, atol=1e-12)
        np.testing.assert_allclose(np.reshape(twice, (n, n)), want, atol=1e-12)


def test_filled_places_have_no_derivative(maybe_jit):
    f = lambda x, c: pb.take(x, jnp.array([0, 7, 0]), mode="fill", fill_value=c)  # noqa: E731
    nan = lambda x: pb.take(x, jnp.array([0, 7]), mode="fill")  # noqa: E731
    equal(maybe_jit(jax.jacrev(nan))(X), [[1, 0, 0], [0, 0, 0]])
    equal(maybe_jit(jax.jacfwd(nan))(X), [[1, 0, 0], [0, 0, 0]])
    for jacobian in (jax.jacrev, jax.jacfwd):
        equal(maybe_jit(jacobian(f, argnums=1))(X, jnp.float32(2)), [0, 1, 0])
    # A cotangent that is not finite stays where it is.
    _, back = jax.vjp(nan, X)
    equal(back(jnp.array([1.0, np.nan]))[0], [1, 0, 0])


def test_complex_arrays_and_integers():
    z = jnp.array([1 + 2j, 3 - 1j], jnp.complex64)
    f = lambda z: jnp.abs(pb.take(z, jnp.array([1, 5]), mode="clip").sum()) ** 2  # noqa: E731
    np.testing.assert_allclose(jax.grad(f)(z), [0, 8 * np.conj(z[1])], rtol=1e-6)
    primal, tangent = jax.jvp(
        lambda n: pb.take(n, [2, 0]), (jnp.arange(3),), (np.zeros(3, jax.dtypes.float0),)
    )
    equal(primal, [2, 0])
    assert tangent.dtype == jax.dtypes.float0


def test_linear_transpose(maybe_jit):
    f = maybe_jit(lambda x: pb.take(x, jnp.array([2, 2, 0])))
    equal(jax.linear_transpose(f, X)(jnp.array([1.0, 10.0, 100.0]))[0], [100, 0, 11])


# ----------------------------------------------------------------------- transformations


def test_vmap_of_arrays_and_of_indices(maybe_jit):
    i = jnp.array([[0, 5], [-2, 1], [2, 2]])
    x = jnp.arange(9.0).reshape(3, 3)
    for mode in ("clip", "wrap", "fill"):
        f = lambda x, i, mode=mode: pb.take(x, i, mode=mode)  # noqa: E731
        g = jax.grad(lambda x, i, f=f: jnp.nansum(f(x, i) ** 2))

        def mapped(x, i, f=f, g=g):
            rows = jax.vmap(f)(x, i), jax.vmap(f, (None, 0))(X, i)
            return *rows, jax.vmap(f, (1, None))(x, i[0]), jax.vmap(g)(x, i)

        def looped(x, i, f=f, g=g):
            pairs = list(zip(x, i, strict=True))
            rows = [f(a, b) for a, b in pairs], [f(X, b) for b in i]
            return *rows, [f(a, i[0]) for a in x.T], [g(a, b) for a, b in pairs]

        for got, want in zip(maybe_jit(mapped)(x, i), jax.jit(looped)(x, i), strict=True):
            equal(got, np.stack(want))


def test_scan_checkpoint_and_while(maybe_jit):
    def walk(x, mode):
        def step(carry, i):
            return carry + pb.take(x, i, mode=mode) ** 2, carry

        return lax.scan(step, jnp.float32(0), jnp.array([0, 2, 2, 1]))[0]

    for mode in ("error", "clip"):
        for f in (walk, jax.checkpoint(walk, static_argnums=1)):
            equal(maybe_jit(jax.grad(f), static_argnums=1)(X, mode) if maybe_jit is jax.jit
                  else jax.grad(f)(X, mode), [2, 4, 12])  # fmt: skip
    found = maybe_jit(
        lambda x: lax.while_loop(lambda i: pb.take(x, i) < 3, lambda i: i + 1, jnp.int32(0))
    )
    equal(found(X), 2)


# ------------------------------------------------------------------------------- errors

OUTSIDE = jnp.array([[0, 1], [2, 5]])


def test_an_eager_error_names_index_axis_and_place():
    with pytest.raises(IndexError, match=r"from -4 to 3 on axis 2, got index 5 at position \(1, 1"):
        pb.take(A, OUTSIDE, axis=-1)
    with pytest.raises(pb.IndexOutOfBoundsError, match="on the flattened array, got index -25"):
        pb.take(A, -25)
    equal(pb.take(A, -24), 0.0)


def test_known_indices_are_checked_while_a_program_is_traced():
    with pytest.raises(pb.IndexOutOfBoundsError, match="got index 5"):
        jax.eval_shape(lambda x: pb.take(x, [0, 5]), X)
    with pytest.raises(pb.IndexOutOfBoundsError, match="got index 5"):
        jax.jit(lambda x: pb.take(x, OUTSIDE)).lower(X)


def sum_of(x, i):
    return pb.take(x, i).sum()


IN_PROGRAMS = {
    "value": jax.jit(pb.take),
    "gradient": jax.jit(jax.grad(sum_of)),
    "tangent": jax.jit(jax.jacfwd(sum_of)),
    "hessian": jax.jit(jax.hessian(lambda x, i: (pb.take(x, i) ** 3).sum())),
    "vmap": jax.jit(jax.vmap(pb.take, (None, 0))),
    "vmap of vmap": jax.jit(jax.vmap(jax.vmap(pb.take, (None, 0)), (None, 0))),
    "scan": jax.jit(lambda x, i: lax.scan(lambda c, i: (c + sum_of(x, i), None), 0.0, i)[0]),
    "gradient of scan": jax.jit(
        jax.grad(lambda x, i: lax.scan(lambda c, i: (c + sum_of(x, i), None), 0.0, i)[0])
    ),
    "checkpoint": jax.jit(jax.grad(jax.checkpoint(sum_of))),
    "scan outside of jit": lambda x, i: lax.map(lambda i: pb.take(x, i), i),
    "a zero": jax.jit(lambda x, i: pb.take(x, i) * 0),
    "a shape": jax.jit(lambda x, i: jnp.zeros_like(pb.take(x, i))),
    "nothing": jax.jit(lambda x, i: (pb.take(x, i), x)[1]),
    "pb.cond": jax.jit(lambda x, i: pb.cond(x[0] > 0, sum_of, lambda x, i: 0.0, x, i)),
    "checkify": jax.jit(lambda x, i: checkify.checkify(sum_of, checkify.index_checks)(x, i)[1]),
    "at": jax.jit(lambda x, i: pb.at(x)[i].get()),
}


@pytest.mark.parametrize("name", IN_PROGRAMS)
def test_a_compiled_program_raises_and_the_next_call_works(name):
    program = IN_PROGRAMS[name]
    inside = jnp.array([[0, 1], [2, -3]])
    before = jax.device_get(program(X, inside))
    for _ in range(2):
        with pytest.raises(RUNTIME, match=r"from -3 to 2 on (axis 0|the flattened.*), got index 5"):
            jax.block_until_ready(program(X, OUTSIDE))
        equal(program(X, inside), before)


def test_an_eager_vmap_raises_the_class_itself():
    with pytest.raises(pb.IndexOutOfBoundsError, match="got index 5"):
        jax.vmap(pb.take, (None, 0))(X, OUTSIDE)


def test_a_branch_of_cond_that_is_not_taken_raises_nothing(maybe_jit):
    def f(x, i):
        return pb.cond(i < 3, lambda i: pb.take(x, i), lambda i: jnp.float32(-1), i)

    equal(maybe_jit(f)(X, jnp.int32(5)), -1)
    equal(maybe_jit(jax.vmap(f, (None, 0)))(X, jnp.array([0, 5, 2])), [1, -1, 3])


@pytest.mark.parametrize("sharded", ["indices", "array", "none"])
def test_on_several_devices(sharded, mesh):
    x = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, P("i" if sharded == "array" else None)))
    put = NamedSharding(mesh, P("i" if sharded == "indices" else None))
    good, bad = (jax.device_put(jnp.array(i), put) for i in ([0, 3, 3, -1], [0, 3, 3, 4]))
    value = jax.jit(pb.take)
    gradient = jax.jit(jax.grad(lambda x, i: (pb.take(x, i) ** 2).sum()))
    for program, want in ((value, [0, 3, 3, 3]), (gradient, [0, 0, 0, 18])):
        equal(program(x, good), want)
        with pytest.raises(RUNTIME, match="got index 4"):
            jax.block_until_ready(program(x, bad))
        equal(program(x, good), want)


@pytest.mark.parametrize("check_vma", [True, False])
def test_inside_shard_map(check_vma, mesh):
    f = jax.jit(
        jax.shard_map(
            pb.take, mesh=mesh, in_specs=(P(), P("i")), out_specs=P("i"), check_vma=check_vma
        )
    )
    good = jnp.array([0, 2, 2, -1])
    equal(f(X, good), [1, 3, 3, 3])
    equal(jax.jit(jax.grad(lambda x: (f(x, good) ** 2).sum()))(X), [2, 0, 18])
    with pytest.raises(RUNTIME, match="got index 3"):
        jax.block_until_ready(f(X, good.at[2].set(3)))
    equal(f(X, good), [1, 3, 3, 3])


def test_a_check_is_no_part_of_the_other_modes():
    for mode in ("clip", "wrap", "fill"):
        text = jax.jit(lambda x, i, m=mode: pb.take(x, i, mode=m)).lower(X, OUTSIDE).as_text()
        assert "custom_call" not in text
    assert "custom_call" in jax.jit(pb.take).lower(X, OUTSIDE).as_text()


@pytest.mark.parametrize(
    ("args", "options", "error", "match"),
    [
        ((X, [True, False]), {}, pb.ArgumentTypeError, "dtype bool.*mask"),
        ((X, [0.0]), {}, pb.ArgumentTypeError, "dtype float64"),
        ((X, jnp.array([0.5])), {}, pb.ArgumentTypeError, "dtype float32"),
        ((X, "a"), {}, pb.ArgumentTypeError, "integers"),
        ((X, [[0], [1, 2]]), {}, pb.ArgumentTypeError, "one shape"),
        ((X, None), {}, pb.ArgumentTypeError, "integers"),
        ((X, 0), {"mode": "nearest"}, pb.ArgumentValueError, "error, clip, fill, wrap"),
        ((X, 0), {"mode": None}, pb.ArgumentValueError, "a mode of"),
        ((X, 0), {"axis": 1}, pb.ArgumentValueError, "axis from -1 to 0"),
        ((X, 0), {"axis": -2}, pb.ArgumentValueError, "axis=-2"),
        ((X, 0), {"axis": True}, pb.ArgumentValueError, "axis=True"),
        ((X, 0), {"axis": 0.0}, pb.ArgumentValueError, r"axis=0\.0"),
        ((1.0, 0), {"axis": 0}, pb.ArgumentValueError, "no axis for a scalar"),
        (("abc", 0), {}, pb.ArgumentTypeError, "an array, or lists of numbers, got a str"),
        ((X, 0), {"fill_value": 1.0}, pb.ArgumentValueError, 'mode="fill"'),
        ((X, 0), {"mode": "fill", "fill_value": [1.0]}, pb.ArgumentValueError, "single number"),
        ((X, 0), {"mode": "fill", "fill_value": 1j}, pb.ArgumentTypeError, "dtype float32"),
        ((jnp.arange(3), 0), {"mode": "fill", "fill_value": 0.5}, pb.ArgumentTypeError, "int32"),
        (
            (jnp.zeros(3, "int8"), 0),
            {"mode": "fill", "fill_value": 300},
            pb.ArgumentTypeError,
            "dtype int8, got 300",
        ),
    ],
)
def test_bad_input(args, options, error, match):
    with pytest.raises(error, match=match):
        pb.take(*args, **options)


def test_scalars_and_array_likes():
    equal(pb.take(5.0, [0, 0]), [5, 5])
    equal(pb.take([[1, 2], [3, 4]], [0], axis=0), [[1, 2]])
    assert pb.take(X, []).shape == (0,)
    equal(pb.take(X, (0, jnp.int32(2))), [1, 3])
    equal(pb.take(X, np.int64(1)), 2.0)


# ----------------------------------------------------------------------------------- at

NOTATION = [
    0,
    -1,
    (0, 2),
    (0, -1, 3),
    (slice(None), [0, 2]),
    ([1, 0], slice(None), [3, -4]),
    ([1, 0], [2, 0], slice(1, 3)),
    (slice(None), [1, 0], [2, 0]),
    (0, slice(None), [3, 1, 1]),
    (slice(None), 1, [3, 1]),
    (None, 0),
    (..., [0, 1]),
    (0, ..., [0, 1]),
    (..., None, 1),
    ([[0], [1]], [0, 2]),
    (slice(None, None, -1), 1),
    (slice(5, None), 0),
    (A > 5),
    (np.array([True, False]), 1),
    (0, np.array([True, False, True]), [1, 2]),
    (slice(None), np.array([[True] * 4] * 3)),
    (np.array([[True, False, True], [False] * 3]),),
    (np.zeros((2, 3, 4), bool)),
    ...,
    (),
    [],
    ([], 1),
    np.array([[1, 0]], np.uint8),
    (slice(None), None, [0, 1]),
    ([0], None, [1]),
]


@pytest.mark.parametrize("index", NOTATION, ids=lambda index: repr(index)[:40])
def test_at_is_numpys_notation(index, maybe_jit):
    want = A[index]
    f = lambda x: (pb.at(x)[index].get() ** 2).sum()  # noqa: E731

    def work(x):
        values = [pb.at(x)[index].get(mode=mode) for mode in ("error", "fill")]
        return values, jax.grad(f)(jnp.asarray(x))

    values, slopes = maybe_jit(work)(A)
    for value in values:
        equal(value, want)
    counts = np.zeros(A.shape)
    np.add.at(counts, index, 1)
    equal(slopes, 2 * A * counts)


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), [0, 7, -2]),
        (9, slice(None), [1, -9]),
        ([0, 5], slice(None), [9, 1]),
        (slice(None), [[5], [1]], [0, 11]),
        (-7, 8, -9),
        (..., None, 12),
    ],
    ids=repr,
)
@pytest.mark.parametrize("traced", [False, True])
def test_at_out_of_range(index, traced, maybe_jit):
    full = expanded(index)

    def mapped(rule):
        sizes = iter(A.shape)
        parts = [(part, 0 if part is None else next(sizes)) for part in full]
        return tuple(p if is_plain(p) else rule(np.asarray(p), n) for p, n in parts)

    def get(x, mode, **options):
        given = tuple(p if is_plain(p) or p is ... else jnp.asarray(p) for p in index)
        return pb.at(x)[given if traced else index].get(mode=mode, **options)

    clipped, wrapped, filled = maybe_jit(
        lambda x: (get(x, "clip"), get(x, "wrap"), get(x, "fill", fill_value=-1))
    )(A)
    equal(clipped, A[mapped(lambda i, n: np.clip(i, 0, n - 1))])
    equal(wrapped, A[mapped(lambda i, n: i % n)])
    # Where an index is out of range, it meets the zeros behind the end of a larger array.
    padded = np.pad(A + 1, [(0, 1)] * 3)
    outside = mapped(lambda i, n: np.where((i >= -n) & (i < n), i % n, n))
    inner = [slice(0, n) for n in A.shape]
    axes = np.cumsum([part is not None for part in full]) - 1
    pairs = zip(outside, axes, strict=True)
    want = padded[tuple(inner[k] if isinstance(p, slice) else p for p, k in pairs)] - 1
    equal(filled, want)
    if not traced or maybe_jit is not jax.jit:
        with pytest.raises(pb.IndexOutOfBoundsError, match="on axis"):
            get(A, "error")


def is_plain(part):
    return part is None or isinstance(part, slice)


def expanded(index):
    """Write slices for the ellipsis, and for axes at the end."""
    rest = [slice(None)] * (A.ndim - sum(p is not None and p is not ... for p in index))
    dot = index.index(...) if index[0] is ... else len(index)
    return [*index[:dot], *rest, *index[dot + 1 :]]


def test_at_names_the_axis_under_jit():
    f = jax.jit(lambda x, i, j: pb.at(x)[i, :, j].get())
    equal(f(A, 1, jnp.array([0, -1])), A[1, :, [0, -1]])
    with pytest.raises(RUNTIME, match="pb.at: .* from -4 to 3 on axis 2, got index 4"):
        jax.block_until_ready(f(A, 1, jnp.array([0, 4])))
    with pytest.raises(RUNTIME, match="from -2 to 1 on axis 0, got index -3"):
        jax.block_until_ready(f(A, -3, jnp.array([0, 1])))


def test_at_on_an_axis_of_size_zero():
    x = jnp.zeros((2, 0, 3))
    equal(pb.at(x)[:, [0, 4]].get(mode="fill", fill_value=1), np.ones((2, 2, 3)))
    equal(pb.at(x)[[0, 9]].get(mode="fill"), np.zeros((2, 0, 3)))
    equal(pb.at(x)[:, :, [0, 9]].get(mode="fill"), np.zeros((2, 0, 2)))
    with pytest.raises(pb.IndexOutOfBoundsError, match="axis 1, got a size of 0"):
        pb.at(x)[:, 0].get(mode="clip")


@pytest.mark.parametrize(
    ("index", "error", "match"),
    [
        ((0, 0, 0, 0), pb.ArgumentValueError, "indices for 4 axes"),
        ((..., 0, ...), pb.ArgumentValueError, r"2 of `\.\.\.`"),
        (True, pb.ArgumentTypeError, "single bool"),
        (np.array(True), pb.ArgumentTypeError, "single bool"),
        (0.5, pb.ArgumentTypeError, "float64"),
        ("a", pb.ArgumentTypeError, "integers"),
        (slice(0.5, 1), pb.ArgumentTypeError, "slices"),
        (slice(None, None, 0), pb.ArgumentValueError, "step"),
        (np.array([True] * 3), pb.IndexOutOfBoundsError, "mask of size 2 on axis 0, got one of"),
        (([0, 1], [0, 1, 2]), pb.ArgumentValueError, "broadcast"),
    ],
    ids=repr,
)
def test_at_bad_input(index, error, match):
    with pytest.raises(error, match=match):
        pb.at(A)[index].get()


def test_at_refuses_what_is_no_array():
    with pytest.raises(pb.ArgumentTypeError, match=r"pb\.at: .* got a str"):
        pb.at("abc")[0].get()


def test_at_refuses_what_is_traced_and_decides_about_the_shape():
    with pytest.raises(pb.ArgumentTypeError, match=r"jnp\.where"):
        jax.jit(lambda x: pb.at(x)[x > 1].get())(X)
    with pytest.raises(pb.ArgumentTypeError, match="dynamic_slice"):
        jax.jit(lambda x, i: pb.at(x)[:i].get())(X, 1)
