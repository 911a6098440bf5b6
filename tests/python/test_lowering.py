"""JAX programs as Julia source: the text, the names, the errors. Nothing here starts Julia."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pybridge as pb
from pybridge.lowering import lower
from pybridge.lowering._registry import EMITTERS, REFUSED
from pybridge.lowering._text import Names, axes, letters, literal, order, val

X = jnp.ones((2, 3))


def body(source):
    """The lines of code, without comments and layout."""
    lines = (re.sub(r"\s*# .*", "", line).strip() for line in source.split("\n"))
    return [line for line in lines if line]


def test_one_line_an_equation_with_jaxs_letters_and_the_users_line():
    def loss(w, x):
        h = jnp.tanh(x @ w)
        return jnp.sum(h)

    source = lower(loss, jnp.ones((3, 4)), X).source
    assert body(source) == [
        "function loss(w, x)",
        "c = lax.dot_general(x, w, Val(((1,), (2,))), Val(((), ())), Val(Float32))",
        "d = lax.tanh(c)",
        "e = lax.reduce_sum(d, Val((1, 2)))",
        "return e",
        "end",
    ]
    assert "# test_lowering.py:" in source
    assert "(loss): h = jnp.tanh(x @ w)" in source
    assert "# f32[2,4]" in source


def test_arguments_are_named_after_parameters_and_their_paths():
    def f(params, x, *more):
        return params["w"] * x + params["inner"][0] + more[0]

    one = jnp.float32(1)
    source = lower(f, {"w": one, "inner": (one,)}, one, one).source
    assert body(source)[0] == "function f(params_inner_1, params_w, x, x3)"


def test_a_tree_without_names_has_numbers():
    class Pair(tuple): ...

    jax.tree_util.register_pytree_node(Pair, lambda p: (tuple(p), None), lambda _, p: Pair(p))
    source = lower(lambda pair: pair[0] - pair[1], Pair((X, X))).source
    assert body(source)[0] == "function f(pair_0, pair_1)"


def test_names_that_julia_reserves_are_changed():
    def end(function, begin):
        return function + begin

    assert body(lower(end, 1.0, 2.0).source)[0] == "function end2(function2, begin2)"


def test_unused_equations_are_left_out():
    def f(x):
        jnp.sin(x)
        return 2 * x

    assert "sin" not in lower(f, X).source


def test_arrays_are_data_and_numbers_are_text():
    table = np.arange(1000.0, dtype=np.float32)
    lowered = lower(lambda x: x * table + 2.5, jnp.ones(1000))
    assert len(lowered.source) < 500
    assert "constants[1]" in lowered.source
    assert "2.5f0" in lowered.source
    np.testing.assert_array_equal(lowered.constants[0], table)


def test_inner_programs_are_functions_and_equal_ones_are_one():
    @jax.jit
    def half(x):
        return jnp.sin(x) / 2

    source = lower(lambda x: half(half(x)), X).source
    assert source.count("function half(") == 1
    assert len(re.findall(r"= half\(", source)) == 2


def test_no_variable_hides_a_function():
    def b(x):
        return jnp.sin(x)

    def f(half):
        c = jax.jit(b)(half)
        return jax.jit(lambda half: half * c)(c)

    f.__name__ = "main"
    source = lower(f, X).source
    functions = set(re.findall(r"^function (\w+)\(", source, re.M)) - {"main"}
    variables = set(re.findall(r"^ +(\w+) = ", source, re.M))
    assert len(functions) == 2
    assert not functions & variables


def test_broadcasts_that_an_elementwise_call_makes_are_not_made_twice():
    source = lower(lambda x: jnp.where(x > 0, x, 0.0) + jnp.ones((2, 3)), X).source
    assert "broadcast_in_dim" not in source


def test_programs_are_kept_by_function_and_types():
    def f(x):
        return x + 1

    assert lower(f, X) is lower(f, X)
    assert lower(f, X) is not lower(f, jnp.ones(3))
    assert lower(f, X) is not lower(f, X.astype(jnp.float16))


def test_programs_of_one_text_differ_by_their_constants_trees_and_names():
    def times(table):
        return lambda x: x * table

    def f(x):
        return x

    tables = [np.arange(3, dtype=np.float32), 2 + np.arange(3, dtype=np.float32)]
    kept = [lower(times(table), X) for table in tables]
    for one, table in zip(kept, tables, strict=True):
        np.testing.assert_array_equal(one.constants[0].ravel(), table)
    pair, pairs = lower(lambda x: (x, x + 1), X), lower(lambda x: [x, x + 1], X)
    assert pair.source == pairs.source
    assert pair.out_tree != pairs.out_tree
    named, unnamed = lower(f, X), lower(lambda x: x, X)
    assert named.source == unnamed.source
    assert (repr(named), repr(unnamed)) == (
        "lower(f: float32[2,3])",
        "lower(<lambda>: float32[2,3])",
    )


def test_programs_differ_by_the_precision_and_the_kind_of_keys(x64):
    def constant(x):
        return jnp.ones(2).sum()

    double = lower(constant, X.astype(jnp.float32)).source
    jax.config.update("jax_enable_x64", False)
    assert double != lower(constant, X.astype(jnp.float32)).source

    def is_key(key):
        return jnp.float32(jnp.issubdtype(key.dtype, jax.dtypes.prng_key))

    key = jax.random.key(0)
    assert "1.0f0" in lower(is_key, key).source
    assert "0.0f0" in lower(is_key, jax.random.key_data(key)).source


def test_a_function_that_cannot_be_hashed_is_lowered():
    class Shift:
        __hash__ = None

        def __call__(self, x):
            return x + 1

    assert lower(Shift(), X).primitives == ("add",)


def test_primitives_of_inner_programs_are_named():
    found = lower(jax.checkpoint(lambda x: jnp.sin(x)), X).primitives
    assert "sin" in found and list(found) == sorted(found)


def test_other_arguments_than_those_it_was_lowered_for_are_refused():
    with pytest.raises(pb.ArgumentTypeError, match="Lower the function again"):
        lower(jnp.sin, X)((X, X))


def test_a_function_is_traced_once_for_arguments_of_a_type(count_traces):
    traced = count_traces(lambda x: x + 1)
    lower(traced, X)
    lower(traced, 2 * X)
    assert traced.traces == 1


@pytest.mark.parametrize("made", [float, lambda x: np.full(3, x, np.float32)])
def test_another_function_with_the_same_program_and_constants_is_the_same(made):
    def scaled(factor):
        return lambda x: factor * x

    one, again, other = (lower(scaled(made(factor)), X) for factor in (2, 2, 3))
    assert again is one
    assert other is not one


def test_keywords_are_constants_of_the_program():
    from pybridge.lowering._lower import lowered

    def f(x, *, scale):
        return scale * x

    two, three = (lowered(f, (X,), kwargs={"scale": scale}).source for scale in (2.0, 3.0))
    assert "2.0f0" in two
    assert "3.0f0" in three


def test_what_cannot_be_differentiated_is_never_within_a_gradient():
    from pybridge.lowering._lower import lowered

    def f(w, x):
        return pb.cond(pb.within_gradient(w), lambda x: 10 * x, lambda x: x, w) * pb.cond(
            pb.within_gradient(x), lambda x: 100 * x, lambda x: x, x
        )

    one = jnp.float32(1)
    source = lowered(f, (one, one), wrt=(0,)).source
    assert "lax.within_gradient(w)" in source
    assert "lax.within_gradient(x)" not in source
    assert "lax.cond(false, " in source
    other = lowered(f, (one, one), wrt=(1,)).source
    assert "lax.within_gradient(x)" in other
    assert "lax.within_gradient(w)" not in other


def test_what_is_made_of_an_integer_is_never_within_a_gradient():
    def f(n):
        half = n.astype(jnp.float32) / 2
        return pb.cond(pb.within_gradient(half), lambda x: 10 * x, lambda x: x, half)

    assert "lax.within_gradient" not in lower(f, np.int32(3)).source
    assert "lax.within_gradient" in lower(f, np.float32(3)).source


def test_aux_stands_beside_the_value():
    from pybridge.lowering._lower import lowered

    def f(x):
        return x.sum(), x

    source = lowered(f, (X,), has_aux=True).source
    assert lowered(f, (X,)).source != source
    assert lowered(lambda x: list(f(x)), (X,), has_aux=True).source == source
    for wrong in (lambda x: (x, x, x), lambda x: x):
        with pytest.raises(pb.ArgumentTypeError, match=r"to return a pair \(value, aux\)"):
            lowered(wrong, (X,), has_aux=True)


def test_the_order_of_what_cannot_be_differentiated_is_zero():
    from pybridge.lowering._lower import lowered

    one = jnp.float32(1)

    def f(w, x):
        return w * jnp.float32(pb.differentiation_order((w, x)))

    source = lowered(f, (one, one), wrt=(0,)).source
    assert "lax.differentiation_order(w)" in source
    assert "lax.differentiation_order(x)" not in source and "Int32(0)" in source


def test_a_custom_rule_becomes_julias_unless_it_is_inlined():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), 7.0 * tangents[0]))
    source = lower(f, 1.0).source
    assert "lax.ruled(" in source
    assert "7.0f0" in source
    inlined = lower(f, 1.0, custom_rules="inline").source
    assert not any("lax.ruled(" in line for line in body(inlined))
    with pytest.raises(pb.ArgumentValueError, match="custom_rules"):
        lower(f, 1.0, custom_rules="no")


def test_an_unknown_primitive_is_named_with_the_users_line():
    primitive = jax.extend.core.Primitive("strange")
    primitive.def_abstract_eval(lambda x: x)

    def f(x):
        return primitive.bind(x)

    with pytest.raises(NotImplementedError) as caught:
        lower(f, X)
    assert type(caught.value).__name__ == "LoweringError"
    assert isinstance(caught.value, pb.BridgeError)
    text = str(caught.value)
    assert "'strange'" in text
    assert "test_lowering.py:" in text
    assert "return primitive.bind(x)" in text
    assert "To add a primitive" in text


def test_what_is_refused_has_a_reason():
    with pytest.raises(NotImplementedError, match=r"'pure_callback', refused: "):
        lower(lambda x: jax.pure_callback(np.sin, x, x), X)
    with pytest.raises(NotImplementedError, match="key<rbg>"):
        lower(lambda key: jax.random.bits(key), jax.random.key(0, impl="rbg"))
    assert not set(REFUSED) & set(EMITTERS)


def test_effects_are_refused():
    def f(x):
        jax.debug.print("{}", x)
        return x

    with pytest.raises(NotImplementedError, match="pure function"):
        lower(f, X)


def test_a_function_that_cannot_be_traced_is_explained():
    with pytest.raises(NotImplementedError, match=r"jax\.jit.*TracerBoolConversionError"):
        lower(lambda x: x if x > 0 else -x, 1.0)
    with pytest.raises(NotImplementedError, match="shapes that do not depend on values"):
        lower(lambda x: x[x > 0], jnp.ones(3))
    with pytest.raises(NotImplementedError, match="tracing raised TypeError"):
        lower(lambda x: x + None, 1.0)
    with pytest.raises(NotImplementedError, match="to return arrays and numbers"):
        lower(lambda x: np.array("text"), 1.0)


def test_float64_without_x64_is_refused_and_python_numbers_are_not():
    assert not jax.config.jax_enable_x64
    with pytest.raises(pb.ArgumentTypeError, match="jax_enable_x64"):
        lower(jnp.sin, np.ones(3))
    assert "f32[]" in lower(jnp.sin, 1.0).source


def test_an_integer_that_does_not_fit_is_refused_and_x64_named_where_it_helps():
    for number in (2**31, 2**63 - 1, -(2**63)):
        with pytest.raises(pb.ArgumentValueError, match="since x64 is off.*jax_enable_x64"):
            lower(jnp.sin, number)
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(pb.ArgumentValueError, match="fits int32 .*Pass a float") as caught:
            lower(jnp.sin, number)
        assert "x64" not in str(caught.value)
    assert "i32[]" in lower(jnp.sin, 2**31 - 1).source


def test_types_that_julia_does_not_have_are_refused():
    with pytest.raises(NotImplementedError, match="bfloat16"):
        lower(jnp.sin, jnp.ones(3, jnp.bfloat16))


def test_leaves_that_are_no_arrays_are_refused():
    with pytest.raises(pb.ArgumentTypeError, match="builtins.str"):
        lower(lambda x: x, "text")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (2, np.float32, "2.0f0"),
        (0.1, np.float32, "0.1f0"),
        (1e-30, np.float32, "1.0f-30"),
        (3.4028235e38, np.float32, "3.4028235f38"),
        (-0.0, np.float32, "-0.0f0"),
        (np.inf, np.float32, "Inf32"),
        (-np.inf, np.float64, "-Inf"),
        (np.nan, np.float16, "NaN16"),
        (0.1, np.float64, "0.1"),
        (3, np.int32, "Int32(3)"),
        (-3, np.int64, "-3"),
        (255, np.uint8, "0xff"),
        (1, np.uint32, "0x00000001"),
        (True, np.bool_, "true"),
        (1 + 2j, np.complex64, "ComplexF32(1.0f0, 2.0f0)"),
    ],
)
def test_numbers_are_written_with_their_type(value, dtype, text):
    assert literal(np.asarray(value, dtype)[()], np.dtype(dtype)) == text


def test_axes_are_reversed():
    assert axes((0, 2), 3) == (1, 3)
    assert order((2, 0, 1)) == (2, 3, 1)
    assert val(()) == "Val(())"
    assert val((1,)) == "Val((1,))"
    assert val({"a": (1, 2), "b": True}) == "Val((; a=(1, 2), b=true))"


def test_letters_are_jaxs():
    assert [letters(n) for n in (0, 25, 26, 27, 26 * 26)] == ["a", "z", "ba", "bb", "baa"]
    names = Names(["a"])
    assert [names.fresh(n) for n in ("a", "a", "in", "1x", "é")] == ["a2", "a3", "in2", "x1x", "x"]


def test_a_gradient_of_no_number_is_refused_before_julia_starts():
    with pytest.raises(pb.ArgumentTypeError, match="one real number"):
        pb.grad(lambda x: x, backend="zygote")(X)
    with pytest.raises(pb.ArgumentTypeError, match="expected float16, .* got int64"):
        pb.grad(lambda x: x * 1.0, backend="zygote")(3)


def test_loops_and_branches_are_calls_with_functions():
    def f(x):
        y, _ = lax.scan(lambda c, _: (c * 2, None), x, None, length=3)
        y = lax.while_loop(lambda c: c < 100, lambda c: c * 3, y)
        return lax.cond(y > 150, jnp.sin, jnp.cos, y)

    source = lower(f, 1.0).source
    for name in ("lax.scan(step, Val(3)", "lax.while_loop(test, body", "lax.switch("):
        assert name in source
