"""Every way to call wrongly, and that the next right call works."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from bridge_helpers import NO_FORWARD

import pybridge as pb

X = np.array([1.0, 2.0])


@pytest.fixture(autouse=True)
def _works_afterwards():
    yield
    assert pb.grad(pb.from_julia("x -> x^2"), backend="zygote")(3.0) == 6.0


def square(x):
    return x**2


def test_unknown_backend_lists_the_names():
    with pytest.raises(pb.UnknownBackendError, match="'zygote'.*'forwarddiff'.*got 'diffractor'"):
        pb.grad(square, backend="diffractor")
    with pytest.raises(ValueError, match="'tracker'.*got 'jax'"):
        pb.from_julia("sin", ad="jax")


@pytest.mark.parametrize("name", ["di:AutoFinitDiff()", "di:AutoForwardDiff(; chunksize=f(2))"])
def test_adtypes_is_asked_before_a_package_is_looked_for(name):
    with pytest.raises(pb.UnknownBackendError, match=rf"{re.escape(name)}.*AutoFiniteDiff, "):
        pb.grad(pb.from_julia("abs2"), backend=name)(1.0)
    with pytest.raises(pb.UnknownBackendError, match="ADTypes"):
        pb.check(jnp.sin, 1.0, backends=["jax", name])


def test_syntax_error_shows_julias_message_and_line():
    with pytest.raises(pb.JuliaError, match="ParseError") as error:
        pb.from_julia("begin\n  f(x) = x +\n  )\nend")
    assert "julia source:3" in str(error.value)


def test_source_that_throws():
    with pytest.raises(pb.JuliaError, match="UndefVarError.*nonsense"):
        pb.from_julia("nonsense")


@pytest.mark.parametrize("source", ["3", "[1, 2]", "", "nothing"])
def test_source_that_is_no_function(source):
    with pytest.raises(pb.ArgumentTypeError, match="a function"):
        pb.from_julia(source)


def test_python_function_needs_no_bridge():
    with pytest.raises(pb.ArgumentTypeError, match=r"pass it to pb\.grad"):
        pb.from_julia(square)


def test_python_function_on_a_julia_system():
    np.testing.assert_allclose(pb.grad(square, backend="zygote")(3.0), 6.0)


def test_layout():
    with pytest.raises(pb.ArgumentValueError, match="logical.*reversed"):
        pb.from_julia("sin", layout="fortran")


def test_julia_exception_has_type_message_and_the_users_lines(system):
    f = pb.from_julia("begin\n  inner(x) = sqrt(-x)\n  outer(x) = inner(x)\nend")
    with pytest.raises(pb.JuliaError) as error:
        f(4.0)
    assert error.value.julia_type == "DomainError"
    assert "sqrt" in error.value.julia_message
    assert "julia source:2" in error.value.julia_backtrace
    with pytest.raises(pb.JuliaError, match="DomainError") as error:
        pb.grad(f, backend=system)(4.0)
    assert system in "".join(error.value.__notes__)


def test_missing_method_says_for_which_types():
    with pytest.raises(pb.JuliaError, match=r"MethodError.*Vector\{Float64\}"):
        pb.from_julia("(x::Int) -> x")(X)


def test_not_differentiable_by_that_system():
    mutating = pb.from_julia("x -> (y = zeros(2); y[1] = x[1]; sum(y))")
    with pytest.raises(pb.JuliaError, match="Mutating arrays is not supported"):
        pb.grad(mutating, backend="zygote")(X)


def test_gradient_of_what_is_no_scalar(system):
    with pytest.raises(pb.ArgumentTypeError, match="array of size"):
        pb.grad(pb.from_julia("x -> 2 .* x"), backend=system)(X)


@pytest.mark.parametrize("backend", ["jax", "finite"])
def test_argnums_out_of_range_python(backend):
    with pytest.raises(pb.ArgumentValueError, match="from 0 to 0"):
        pb.grad(square, argnums=1, backend=backend)(2.0)


def test_argnums_out_of_range(system):
    with pytest.raises(pb.ArgumentValueError, match="from 0 to 0"):
        pb.grad(pb.from_julia("sin"), argnums=3, backend=system)(2.0)


def test_integers_have_no_gradient(system):
    with pytest.raises(pb.ArgumentTypeError, match="int64 in argument 0"):
        pb.grad(pb.from_julia("x -> sum(x)"), backend=system)(np.arange(3))


def test_the_advice_for_bfloat16_works(system):
    f, x = pb.from_julia("x -> sum(abs2, x)"), jnp.ones(2, jnp.bfloat16)
    with pytest.raises(pb.ArgumentTypeError, match=r"bfloat16 in argument 0.*jnp\.float32\(x\)"):
        pb.grad(f, backend=system)(x)
    np.testing.assert_allclose(pb.grad(f, backend=system)(jnp.float32(x)), [2, 2])


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, "U3", "M8[s]", object]
)
def test_dtype_without_an_equal_in_julia(dtype):
    with pytest.raises(pb.ArgumentTypeError, match="float16 to float64"):
        pb.from_julia("identity")(np.zeros(2).astype(dtype))


@pytest.mark.parametrize("value", ["text", object(), {1, 2}])
def test_argument_that_is_no_array(value):
    with pytest.raises(pb.ArgumentTypeError):
        pb.from_julia("identity")(value)


def test_dict_keys_have_to_be_names():
    with pytest.raises(pb.ArgumentTypeError, match="Rename the key"):
        pb.from_julia("identity")({"a b": 1.0})


@pytest.mark.parametrize("source", ['x -> "text"', "x -> :a", "x -> big(x)", "x -> sin"])
def test_result_that_is_no_array(source):
    with pytest.raises(pb.ArgumentTypeError, match="convert the value"):
        pb.from_julia(source)(1.0)


@pytest.mark.parametrize("backend", NO_FORWARD)
def test_no_forward_mode(backend):
    with pytest.raises(pb.UnsupportedModeError, match="forwarddiff"):
        pb.jvp(pb.from_julia("sin"), (1.0,), (1.0,), backend=backend)


@pytest.mark.parametrize("backend", ["forwarddiff", "finite"])
def test_no_reverse_mode(backend):
    with pytest.raises(pb.UnsupportedModeError):
        pb.vjp(pb.from_julia("sin"), 1.0, backend=backend)


def test_wrong_cotangent():
    _, pull = pb.vjp(pb.from_julia("x -> x .^ 2"), X, backend="zygote")
    with pytest.raises(pb.ArgumentValueError, match=r"shape \(2,\)"):
        pull(np.ones(3))
    with pytest.raises(pb.ArgumentTypeError, match="structure"):
        pull((np.ones(2), np.ones(2)))


def test_wrong_tangent():
    with pytest.raises(pb.ArgumentValueError, match=r"shape \(2,\)"):
        pb.jvp(pb.from_julia("x -> x"), (X,), (np.ones(3),), backend="forwarddiff")


def test_has_aux_without_aux(system):
    with pytest.raises(pb.ArgumentTypeError, match=r"\(value, aux\)"):
        pb.value_and_grad(pb.from_julia("x -> x"), has_aux=True, backend=system)(2.0)


def test_float64_result_for_jax_arrays_with_x64_off_is_no_silent_cast():
    f = pb.from_julia("x -> sum(x) / 2.0")
    with pytest.raises(pb.ArgumentTypeError, match="1f0"):
        pb.from_julia("x -> Float64.(x)")(jnp.ones(2))
    assert f(np.ones(2, np.float32)).dtype == np.float64


@pytest.mark.parametrize("source", ["sin", "(x; scale=1) -> scale * x"])
def test_a_keyword_that_the_function_does_not_have(source):
    known = "scale" if "scale" in source else ""
    with pytest.raises(pb.JuliaError, match=rf"has \({known}\), got y"):
        pb.grad(pb.from_julia(source), backend="zygote")(2.0, y=1)


def test_a_value_of_an_ad_system_that_cannot_be_seen():
    source = """
    module Nabla
        struct Unseen <: Real end
    end
    x -> PyBridge.within_gradient(Nabla.Unseen())
    """
    with pytest.raises(pb.DetectionError, match="Nabla"):
        pb.from_julia(source)(1.0)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bytes_", [r"caf\xe9", r"a\x1fb", r"\xff\xfe"])
def test_a_message_that_is_no_text(bytes_, compiled):
    f = pb.from_julia(f'x -> x > 0 ? error("latin: {bytes_}, the end") : x')
    with pytest.raises(Exception, match=r"latin: .*, the end") as error:
        (jax.jit(f) if compiled else f)(1.0)
    assert compiled or isinstance(error.value, pb.JuliaError)


def test_a_stack_overflow_is_named():
    f = pb.from_julia("begin\n  deeper(x) = 1 + deeper(x + 1)\n  x -> deeper(x)\nend")
    with pytest.raises(pb.JuliaError) as error:
        f(1.0)
    assert error.value.julia_type == "StackOverflowError"


@pytest.mark.parametrize("run", ["call", "gradient"])
def test_a_message_that_is_not_utf_8(run):
    f = pb.from_julia("x -> error(String(UInt8[0x61, 0xff, 0xfe]))")
    with pytest.raises(pb.JuliaError, match="threw ErrorException: a\ufffd\ufffd"):
        f(1.0) if run == "call" else pb.grad(f, backend="zygote")(1.0)
