"""Every way in which a bridged function can fail inside JAX, and that the next call works."""

from __future__ import annotations

import copy
import os
import pickle

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import julia
from jax import lax
from quick import LONG

import pybridge as pb
from pybridge.julia._session import session

X = np.array([1.0, 2.0], np.float32)
RUNTIME = (jax.errors.JaxRuntimeError, ValueError)  # XLA chooses by where it was noticed


@pytest.fixture(autouse=True)
def _works_afterwards():
    yield
    assert float(jax.jit(jax.grad(julia("x -> x^2")))(3.0)) == 6.0
    assert julia("x -> sum(x)")(X) == 3.0


def struct(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


# --- results other than expected ----------------------------------------------------------


def test_a_shape_that_depends_on_values():
    f = julia("x -> x[x .> 0.5]")
    np.testing.assert_array_equal(jax.jit(f)(X), X)
    with pytest.raises(RUNTIME, match=r"expected a result of size \(2,\).*got size \(1,\).*out="):
        jax.jit(f)(np.float32([0, 1]))
    np.testing.assert_array_equal(jax.jit(f)(X), X)


EMPTY = {
    "the value": lambda f: f,
    "its sum": lambda f: lambda x: jnp.sum(f(x)),
    "grad": lambda f: jax.grad(lambda x: jnp.sum(f(x))),
    "value_and_grad": lambda f: jax.value_and_grad(lambda x: jnp.sum(f(x))),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c, f(c)), x, None, length=2),
}


@pytest.mark.parametrize("program", EMPTY)
def test_a_value_that_was_found_to_be_empty(program):
    # XLA drops calls that give nothing but empty arrays, unless they are said to have an effect.
    run = jax.jit(EMPTY[program](julia("x -> x[x .> 1]")))
    jax.block_until_ready(run(0 * X))
    with pytest.raises(RUNTIME, match=r"size \(0,\).*got size \(1,\)"):
        jax.block_until_ready(run(X))
    throws = jax.jit(pb.from_julia('x -> error("planted")', out=struct(0)))
    with pytest.raises(RUNTIME, match="planted"):
        jax.block_until_ready(throws(X))


def test_a_gradient_alone_looks_at_the_size_of_the_value():
    f = julia("x -> x[x .> 0.5]", out=struct(1))
    with pytest.raises(RUNTIME, match=r"size \(1,\).*got size \(2,\)"):
        jax.block_until_ready(jax.jit(jax.grad(lambda x: jnp.sum(f(x))))(X))


def test_a_dtype_that_depends_on_values():
    f = julia("x -> x[1] > 0 ? sum(x) : 0")
    with pytest.raises(RUNTIME, match="expected a result of a Float32.*got .*Int64"):
        jax.jit(f)(-X)
    assert float(jax.jit(f)(X)) == 3.0


WRONG = {
    "shape": (struct(3), "size (3,)"),
    "rank": (struct(), "a Float32"),
    "structure": ((struct(2), struct()), "the structure (_, _)"),
    "names": ({"a": struct(2)}, "the structure (; a = _)"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_declarations(wrong):
    out, text = WRONG[wrong]
    with pytest.raises(RUNTIME, match="as declared by out=") as error:
        jax.block_until_ready(jax.jit(lambda x: (pb.from_julia("x -> 2 .* x", out=out)(x), x))(X))
    assert text in str(error.value)
    assert "OutputChangedError" in str(error.value)


@pytest.mark.parametrize("out", [3, "text", [struct(2), 1.0], lambda x: 3])
def test_declarations_that_are_no_shapes(out):
    with pytest.raises(pb.ArgumentTypeError, match=r"ShapeDtypeStruct.*out=lambda"):
        jax.jit(pb.from_julia("x -> x", out=out))(X)


def test_declarations_that_nothing_can_fill():
    with pytest.raises(pb.ArgumentValueError, match=r"integers from 0, got shape \(-1,\)"):
        pb.from_julia("x -> x", out=struct(-1))
    with pytest.raises(pb.ArgumentTypeError, match=r"bfloat16.*got float8"):
        pb.from_julia("x -> x", out=struct(2, dtype=jnp.float8_e4m3fn))
    f = pb.from_julia("x -> x", out=lambda x: struct(x.shape[0] - 3))
    with pytest.raises(pb.ArgumentValueError, match=r"got shape \(-1,\)"):
        jax.jit(f)(X)


def test_a_declared_dtype_that_cannot_hold_the_value():
    f = pb.from_julia("x -> x .+ 0.5f0", out=struct(2, dtype=jnp.int32))
    with pytest.raises(RUNTIME, match="InexactError"):
        jax.jit(f)(X)


@pytest.mark.parametrize("source", ['x -> "text"', "x -> :a", "x -> big.(x)", "x -> sin"])
def test_a_value_that_is_no_array(source):
    with pytest.raises(pb.ArgumentTypeError, match="convert the value"):
        jax.jit(julia(source))(X)


# --- exceptions in Julia ------------------------------------------------------------------

THROWS = 'begin\n  inner(x) = x[1] > 0 ? sum(x) : error("planted ", x[1])\n  x -> inner(x)\nend'
OUT = struct()
BACK_THROWS = """
begin
    g(x) = sum(x)
    ChainRulesCore.rrule(::typeof(g), x) = (g(x), ȳ -> error("planted ", x[1]))
    g
end
"""
PLACES = {
    "jit": lambda f: jax.jit(f),
    "vmap": lambda f: lambda x: jax.jit(jax.vmap(f))(jnp.stack([-x, x, x]))[0],
    "vmap, last lane": lambda f: lambda x: jax.jit(jax.vmap(f))(jnp.stack([-x, -x, x]))[2],
    "scan": lambda f: (
        lambda x: jax.jit(
            lambda x: lax.scan(
                lambda c, k: (c + f(k * x), None), 0.0, jnp.array([-1.0, -2.0, 1.0])
            )[0]
        )(x)
    ),
    "while_loop": lambda f: (
        lambda x: jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: c + f(x), 0.0))(x)
    ),
    "cond": lambda f: lambda x: jax.jit(lambda x: lax.cond(x[0] < 0, f, lambda x: 0.0, x))(x),
    "grad": lambda f: jax.jit(jax.grad(f)),
    "jvp": lambda f: jax.jit(lambda x: jax.jvp(f, (x,), (x,))[1]),
    "hessian": lambda f: jax.jit(jax.hessian(f)),
}


def zygote_keeps_lines():
    """On Julia 1.12 the code that Zygote makes of a function has no lines, and is inlined."""
    return tuple(map(int, session().julia_version.split(".")[:2])) < (1, 12)


@pytest.mark.parametrize("place", PLACES)
def test_exceptions_carry_type_message_and_line(place):
    run = PLACES[place](julia(THROWS))
    with pytest.raises(RUNTIME) as error:
        jax.block_until_ready(run(-X))
    assert "Julia threw ErrorException: planted " in str(error.value)
    if place not in ("grad", "jvp", "hessian") or zygote_keeps_lines():
        assert "inner at julia source:2" in str(error.value)
    if not place.startswith(("vmap", "scan")):  # those have lanes of both signs
        assert jnp.all(jnp.isfinite(run(X)))


@pytest.mark.parametrize("place", ["jit", "grad"])
def test_exceptions_of_every_system(place, system):
    with pytest.raises(RUNTIME, match=r"planted .*-1\.0") as error:
        jax.block_until_ready(PLACES[place](julia(THROWS, system))(-X))
    # Yota runs the function in its own interpreter: the lines are not on the stack.
    lost = {"yota"} if zygote_keeps_lines() else {"yota", "zygote"}
    if place == "grad" and system == "mooncake" and LONG in os.environ:
        # Of what Julia inlines, compiling, Mooncake has the line that calls it.
        assert "julia source:3" in str(error.value)
    elif place != "grad" or system not in lost:
        assert "julia source:2" in str(error.value)


@pytest.mark.parametrize("wrapped", [False, True], ids=["eager", "jit"])
def test_exceptions_in_a_pullback(wrapped, system):
    f = julia(BACK_THROWS, system)
    grad = jax.jit(jax.grad(f)) if wrapped else jax.grad(f)
    with pytest.raises(RUNTIME if wrapped else pb.JuliaError, match="planted 1.0") as error:
        jax.block_until_ready(grad(X))
    assert "julia source:4" in str(error.value)
    assert float(jax.jit(f)(X)) == 3.0


def test_without_jit_the_error_is_julias():
    f = julia(THROWS)
    for run in (jax.grad(f), jax.vmap(lambda x: f(x)), lambda x: jax.jvp(f, (x,), (x,))):
        with pytest.raises(pb.JuliaError, match="planted") as error:
            run(jnp.stack([-X, -X]) if "lambda" not in repr(run) and run != jax.grad else -X)
        assert error.value.julia_type == "ErrorException"


def test_errors_of_asynchronous_calls_come_with_the_value():
    f = jax.jit(julia('x -> (sum(sin, 1:10^6) > 9; error("planted later"))', out=OUT))
    with pytest.raises(RUNTIME, match="planted later"):
        for _ in range(3):
            jax.block_until_ready(f(X))
    values = [jax.jit(julia(THROWS))(sign * X) for sign in (1, 1)]
    assert [float(v) for v in values] == [3.0, 3.0]


def test_a_missing_method_says_for_which_types():
    for wrap in (jax.jit, jax.grad):
        with pytest.raises((*RUNTIME, pb.JuliaError), match=r"MethodError.*Vector\{Float32\}"):
            wrap(julia("(x::Int) -> x"))(X)
    with pytest.raises((*RUNTIME, pb.JuliaError), match="MethodError.*Float32.*Float32"):
        jax.jit(julia("x -> x"))(X[0], X[0])
    declared = julia("(x::Int) -> x", out=OUT)
    with pytest.raises(RUNTIME, match=r"MethodError.*Vector\{Float32\}"):
        jax.jit(declared)(X)


def test_a_message_that_cannot_be_shown():
    source = """
    begin
        struct Odd <: Exception end
        Base.showerror(io::IO, ::Odd) = error("no")
        x -> x > 0 ? x : throw(Odd())
    end
    """
    with pytest.raises(RUNTIME, match="Odd: its showerror method failed"):
        jax.block_until_ready(jax.jit(julia(source))(-1.0))


def test_a_message_with_odd_characters():
    f = julia('x -> x > 0 ? x : error("zero \\0, ünï, 100%s\\n{}")')
    with pytest.raises(RUNTIME, match="ünï, 100%s"):
        jax.block_until_ready(jax.jit(f)(-1.0))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("x -> div(1, Int(x) - 1)", "DivideError"),
        ("x -> [1, 2][Int(x) + 5]", "BoundsError"),
        ("x -> undefined_name", "UndefVarError"),
    ],
)
def test_exceptions_that_are_signals(source, kind):
    f = julia(source, out=lambda x: x)
    with pytest.raises(RUNTIME, match=kind):
        jax.block_until_ready(jax.jit(f)(jnp.float32(1)))


@pytest.mark.xfail(strict=True, reason="A stack overflow on XLA's thread ends the process")
def test_stack_overflow(run_python):
    run_python("""
        import jax, pybridge as pb
        f = pb.from_julia("x -> (g(x) = g(x) + 1; g(x))", out=lambda x: x)
        try:
            jax.block_until_ready(jax.jit(f)(1.0))
        except jax.errors.JaxRuntimeError as error:
            assert "StackOverflowError" in str(error)
        else:
            raise AssertionError("no error")
    """)


# --- what JAX itself refuses --------------------------------------------------------------


def test_integers_have_no_gradient_as_in_jax():
    f = julia("x -> sum(x)")
    for function in (f, jnp.sum):
        with pytest.raises(TypeError, match="real- or complex-valued inputs"):
            jax.grad(function)(jnp.arange(3))
    g = julia("x -> length(x) > 1")
    with pytest.raises(TypeError, match="real-valued outputs"):
        jax.grad(g)(jnp.ones(3))
    with pytest.raises(TypeError, match="scalar"):
        jax.grad(julia("x -> 2 .* x"))(X)
    _, tangent = jax.jvp(julia("x -> (x .> 1)"), (X,), (X,))
    assert tangent.dtype == jax.dtypes.float0


def test_complex_results_have_no_gradient_as_in_jax():
    with pytest.raises(TypeError, match="real-valued outputs"):
        jax.grad(julia("x -> x * im"))(1.0)


def test_reverse_mode_through_while_loop_is_refused_by_jax():
    f = julia("x -> sin(x)")
    with pytest.raises(ValueError, match="Reverse-mode"):
        jax.grad(lambda x: lax.while_loop(lambda c: c < 1, lambda c: c + f(x), x))(0.5)


def test_a_tracer_in_the_source():
    # `f"{x}"` of a tracer is its description: Julia cannot read it.
    with pytest.raises(pb.JuliaError, match="ParseError|UndefVarError"):
        jax.jit(lambda a: pb.from_julia(f"x -> {a} * x")(1.0))(2.0)


def test_a_tracer_as_the_function():
    with pytest.raises(pb.ArgumentTypeError, match="Julia source or a callable"):
        jax.jit(lambda a: pb.from_julia(a)(1.0))(2.0)


def test_a_tracer_that_a_juliacall_function_would_close_over():
    from juliacall import Main

    times = Main.seval("a -> (x -> a * x)")
    with pytest.raises(Exception, match=r"[Tt]racer|[Cc]oncrete|MethodError|convert"):
        jax.jit(lambda a: pb.from_julia(times(a))(X[0]))(2.0)


def test_a_tracer_that_has_escaped():
    kept = []
    f = julia("x -> 2x")
    jax.jit(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        f(kept[0])


def test_export_is_refused_with_a_reason():
    f = jax.jit(julia("x -> 2 .* x"))
    for platforms in (None, ("cpu", "cuda")):
        with pytest.raises(pb.UnsupportedModeError, match="another process.*in this process"):
            jax.export.export(f, platforms=platforms)(X)


def test_functions_are_copied_as_themselves_and_not_pickled():
    f = julia("x -> x")
    assert copy.deepcopy({"f": f})["f"] is f and copy.copy(f) is f
    with pytest.raises(pb.ArgumentTypeError, match=r"pickle: .*got from_julia\('x -> x'"):
        pickle.dumps(f)


def test_names_that_cannot_cross():
    with pytest.raises(pb.ArgumentTypeError, match='got "a=b". Rename it'):
        julia('x -> Dict("a=b" => x)')(X)


@pytest.mark.parametrize("system", ["tracker", "reversediff"])
def test_complex_results(system):
    f = julia("x -> (sum(x .* (1 + 2im)), sum(x))", system)
    with pytest.raises(Exception, match=r'cannot do this: .*complex results. Use "zygote"'):
        jax.jit(jax.grad(lambda x: jnp.abs(f(x)[0])))(X)
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: f(x)[1]))(X), np.ones(2))


def test_keys_are_refused():
    with pytest.raises(pb.ArgumentTypeError, match="key_data"):
        jax.jit(julia("x -> x"))(jax.random.key(0))
