"""Ask whether a value carries a derivative: `within_gradient`, `is_differentiating`.

The question is a JAX primitive of its own. Lowered or evaluated it is the constant False;
its JVP rule, which JAX runs only where something is differentiated, looks at the
tangents: an operand without a symbolic zero for a tangent carries a derivative, and the
answer is the constant True. Nothing of the question is left in a compiled program.

A `jax.custom_jvp` function with `symbolic_zeros=True` gives the same answers except under
`vmap`, where its result becomes a batched array: a plain `if` fails there, and a `cond`
on it has to treat the answer as if it differed from lane to lane. The primitive's result
is never batched.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe
from jax.sharding import NamedSharding, PartitionSpec

from .._errors import DetectionError, explain
from ..jaxprs import Primitive

# Values of these packages are arrays, numbers, functions, names: JAX's tracers are among
# them and are asked; nothing else of theirs can carry a derivative.
_TRANSPARENT_PACKAGES = sys.stdlib_module_names | {"jax", "jaxlib", "ml_dtypes", "numpy"}


def within_gradient(x: Any) -> jax.Array | np.bool_:
    """Return True if a leaf of `x` carries a derivative here, else False.

    The answer is exact for each value: a function of `w` and `x` that is differentiated
    with respect to `w` alone sees True for `w` and False for `x`. It holds under every
    JAX transformation and any nesting of them. `jit`, `vmap`, `make_jaxpr` and
    `eval_shape` are no derivatives, and `stop_gradient(x)` carries none. Inside a
    `custom_jvp` or `custom_vjp` rule values are plain, and the answer is False. So it is in
    the condition of `jax.lax.while_loop`, which JAX does not differentiate: what the loop is
    to know, ask before it.

    Without `jit` the answer is a concrete bool, fit for a plain `if`. Under `jit` it is
    traced: choose with `pb.cond`, which costs nothing there.

    Args:
        x: a pytree of arrays, numbers and PRNG keys of any shape and dtype. Integers,
            bools, keys, strings and functions are leaves that never carry a derivative.

    Returns:
        A bool scalar, shape (). Never batched, also under `vmap`.

    Raises:
        DetectionError: a leaf belongs to something that cannot be seen into, for example
            a PyTorch tensor or a Julia value. The answer is never a silent False.
        jax.errors.TracerBoolConversionError: raised by `if within_gradient(x)` under
            `jit`; its message names `pb.cond`.

    Example:
        >>> import jax
        >>> import pybridge as pb
        >>> def f(x):
        ...     return 10.0 * x if pb.within_gradient(x) else x
        >>> f(2.0)
        2.0
        >>> float(jax.grad(f)(2.0))
        10.0

    The Julia twin is `PyBridge.within_gradient`, which agrees with
    `NNlib.within_gradient`, where the question was first asked in this form.
    """
    tracers = [leaf for leaf in jax.tree.leaves(x) for leaf in traced_leaf(leaf)]
    if not tracers:
        return np.False_
    answer = within_gradient_p.bind(*tracers)
    if isinstance(answer, Tracer):
        # Same layout, same behaviour: only the text of a failing `bool(answer)` changes.
        answer.__class__ = _explaining_class(type(answer))
    return answer


def is_differentiating(*xs: Any) -> jax.Array | np.bool_:
    """Return True if any of several values carries a derivative here, else False.

    Args:
        *xs: pytrees, as for `within_gradient`. With none the answer is False.

    Returns:
        A bool scalar, shape ().

    Raises:
        DetectionError: as `within_gradient`.

    Example:
        >>> import jax
        >>> import pybridge as pb
        >>> f = lambda w, x: w * x if pb.is_differentiating(w, x) else w
        >>> float(jax.grad(f)(2.0, 3.0))
        3.0

    The Julia twin is `PyBridge.is_differentiating`; it has a rule of its own there,
    because `any(within_gradient, xs)` is invisible to Zygote.
    """
    return within_gradient(xs)


def traced_leaf(leaf: Any, where: str = "pb.within_gradient") -> list[Tracer]:
    """Return `[leaf]` if it is a tracer that can carry a derivative, else `[]`.

    Only tracers carry derivatives in JAX, and only those of inexact dtype.

    Raises:
        DetectionError: the leaf is of a type that pybridge knows nothing about.
    """
    if isinstance(leaf, Tracer):
        dtype = getattr(leaf, "dtype", None)
        inexact = dtype is not None and jnp.issubdtype(dtype, np.inexact)
        return [leaf] if inexact else []
    if hasattr(leaf, "__jax_array__") and not isinstance(leaf, type):
        return traced_leaf(leaf.__jax_array__(), where)
    package = type(leaf).__module__.partition(".")[0]
    # An array of objects can hold another system's numbers.
    opaque = isinstance(leaf, np.ndarray) and leaf.dtype == np.dtype(object)
    if opaque or not (package in _TRANSPARENT_PACKAGES or isinstance(leaf, enum.Enum)):
        kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        raise DetectionError(
            explain(
                where,
                expected="a pytree of JAX or NumPy arrays, numbers and keys",
                got=f"a {kind}" + (" of dtype object" if opaque else ""),
                fix="JAX cannot see whether another system differentiates it. Ask that "
                "system, or convert the value to an array first.",
            )
        )
    return []


@functools.cache
def _explaining_class(tracer_class: Any) -> Any:
    """Return a subclass of a tracer class whose `bool` error names `pb.cond`.

    JAX's own message names the function being traced and the argument, but not the
    operation, and the conversion happens in the caller's frame: the class of the answer
    is the only place from which the message can be completed.
    """

    class WithinGradientTracer(tracer_class):
        __slots__ = ()

        def __bool__(self) -> bool:
            try:
                return super().__bool__()
            except jax.errors.TracerBoolConversionError as error:
                text = explain(
                    "pb.within_gradient",
                    expected="an answer that stays inside the traced program",
                    got="a Python `if` (or `and`, `or`, `not`, `while`) on it under `jit`",
                    fix="Choose with pb.cond(pb.within_gradient(x), f, g, x), which costs "
                    "nothing in the compiled program.",
                )
                error.args = (f"{text}\n\n{error}",)
                raise

    return WithinGradientTracer


within_gradient_p = Primitive("within_gradient")

# Of the thread, or the task, that listens.
_heard: ContextVar[list[bool] | None] = ContextVar("pybridge_heard", default=None)


@contextlib.contextmanager
def listen() -> Iterator[list[bool]]:
    """Collect a True for each question that is answered with True in this thread.

    A question is answered while a derivative is traced. What was traced and compiled before is
    not heard.

    Returns:
        A context manager that gives a list, which grows.

    Example:
        >>> import jax
        >>> from pybridge.primitives._detection import listen, within_gradient
        >>> with listen() as heard:
        ...     _ = jax.grad(lambda x: x if within_gradient(x) else -x)(2.0)
        >>> heard
        [True]
    """
    token = _heard.set([])
    try:
        found = _heard.get()
        assert found is not None
        yield found
    finally:
        _heard.reset(token)


def answer_aval(aval: Any, *others: Any, dtype: Any = np.bool_) -> ShapedArray:
    """Return the type of an answer about values of a type, a scalar.

    The mesh is part of a type. The answer is on it, and the same on all of its devices.
    """
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec())
    return ShapedArray((), np.dtype(dtype), sharding=sharding)


def _jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    carried = any(type(tangent) is not ad.Zero for tangent in tangents)
    # Without a tangent at this level an outer level may still differentiate.
    heard = _heard.get()
    if carried and heard is not None:
        heard.append(True)
    answer = np.True_ if carried else within_gradient_p.bind(*primals)
    return answer, ad.Zero(answer_aval(jax.typeof(primals[0])).to_tangent_aval())


def _batch(operands: Any, dims: Any) -> tuple[Any, None]:
    return within_gradient_p.bind(*operands), None


def _partial_eval(trace: Any, *tracers: Any) -> Any:
    """Answer for the values that are known: the others are inputs of a linear function.

    `jax.linear_transpose` keeps what it does not know for the transpose, and what is chosen by it,
    too. A conditional on the answer could not be transposed.
    """
    known = [x for x in (tracer.pval.get_known() for tracer in tracers) if x is not None]
    return within_gradient_p.bind(*known) if known else np.False_


within_gradient_p.def_impl(lambda *operands: np.False_)
within_gradient_p.def_abstract_eval(answer_aval)
mlir.register_lowering(
    within_gradient_p,
    mlir.lower_fun(lambda *operands: np.False_, multiple_results=False),
)
ad.primitive_jvps[within_gradient_p] = _jvp
batching.primitive_batchers[within_gradient_p] = _batch
pe.custom_partial_eval_rules[within_gradient_p] = _partial_eval
