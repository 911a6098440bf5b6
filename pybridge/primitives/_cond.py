"""Choose between functions without letting the other one's derivative leak: `cond`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._branches import flatten_operands, trace_branches
from ._elementwise import broadcast_operands, switch_elementwise
from ._masking import concrete_index, vary_with
from ._nondifferentiable import arrays_shown
from ._switch_primitive import bind_switch


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Return `true_fun(*operands)` where `pred` holds, else `false_fun(*operands)`.

    Exactly the branch that is taken contributes value and derivative. Under `vmap` and
    with an array for a predicate, a branch only ever sees operands of lanes that take it
    (other lanes are filled with those of the first that does), and a branch that no lane
    takes is not evaluated. So no NaN or Inf comes out of the branch not taken, in any
    order of derivative and in either mode. (Where the branch taken has an infinite
    derivative of its own, that of a value shared by all lanes can become NaN.)

    Both branches are traced, and their outputs must have the same tree and shapes; dtypes
    are promoted as JAX promotes them. A predicate that is known while tracing, such as
    `within_gradient(x)` under a gradient, leaves no conditional in the program.

    With an array predicate the branches must be elementwise. They are evaluated on whole
    arrays: operands are broadcast against `pred`, and so is the result. A constant that a
    branch returns, `lambda x: 0.0`, is broadcast too. Values that a branch closes over are
    treated alike where the branch uses them elementwise.

    Args:
        pred: bool, a scalar or an array of any shape. A scalar number holds where it is not 0,
            as in JAX.
        true_fun: called as `true_fun(*operands)`; may close over any value.
        false_fun: the same for where `pred` is False.
        *operands: pytrees of arrays, numbers and PRNG keys.

    Returns:
        The pytree that the branches return. With an array predicate every leaf has the
        shape to which `pred` and the operands broadcast.

    Raises:
        ArgumentTypeError: `pred` is neither bool nor a scalar number, a branch is not callable,
            or a leaf is neither an array nor a number nor a key; or `pred` is an array, and a
            branch reads or writes a `jax.new_ref`.
        ArgumentValueError: an operand does not broadcast against an array predicate, or a
            branch is not elementwise; or the predicate differs between the lanes (devices) of
            a named axis over which a branch has a collective, such as `lax.psum`.
        BranchMismatchError: the branches differ in tree, shape, or in dtypes without a
            common one; the message has the path of the leaf.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> x = jnp.array([4.0, 0.0, -1.0])
        >>> f = lambda x: pb.cond(x > 0, jnp.sqrt, jnp.zeros_like, x)
        >>> f(x).tolist()
        [2.0, 0.0, 0.0]
        >>> jax.grad(lambda x: f(x).sum())(x).tolist()
        [0.25, 0.0, 0.0]

    The Julia twin is `PyBridge.cond`. JAX's `lax.cond` has the same signature; replacing
    the operands of lanes not taken is the "double where" of JAX's FAQ, done for the user.
    """
    pred = _checked_pred(pred)
    names = ("true_fun", "false_fun")
    _check_callable("pb.cond", names, (true_fun, false_fun))
    return _dispatch("pb.cond", pred, names[::-1], (false_fun, true_fun), operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Return `branches[index](*operands)`, with the guarantees of `cond`.

    Args:
        index: integer, a scalar or an array of any shape, clamped to
            `0 ... len(branches) - 1` as `jax.lax.switch` does.
        branches: at least one function, called as `branch(*operands)`. With an array for
            an index they must be elementwise, see `cond`.
        *operands: pytrees of arrays, numbers and PRNG keys.

    Returns:
        The pytree that the branches return.

    Raises:
        ArgumentTypeError: `index` is not an integer, a branch is not callable, or a leaf
            is neither an array nor a number nor a key.
        ArgumentValueError: there is no branch, or as for `cond`.
        BranchMismatchError: as for `cond`.

    Example:
        >>> import pybridge as pb
        >>> branches = [lambda x: x, lambda x: x**2, lambda x: x**3]
        >>> [float(pb.switch(i, branches, 2.0)) for i in (0, 1, 2, 7)]
        [2.0, 4.0, 8.0, 8.0]

    The Julia twin is `PyBridge.switch`, whose index counts from 1.
    """
    index = _checked_index(index)
    if not isinstance(branches, Iterable):
        raise ArgumentTypeError(
            explain(
                "pb.switch",
                expected="a sequence of functions",
                got=f"a {type(branches).__name__}",
                fix="Put them into a list: `pb.switch(index, [f, g], *operands)`.",
            )
        )
    branches = tuple(branches)
    if not branches:
        raise ArgumentValueError(
            explain(
                "pb.switch",
                expected="at least one branch",
                got="none",
                fix="Pass a sequence of functions.",
            )
        )
    names = [f"branches[{i}]" for i in range(len(branches))]
    _check_callable("pb.switch", names, branches)
    return _dispatch("pb.switch", index, names, branches, operands)


def _dispatch(
    where: str,
    index: Any,
    names: Sequence[str],
    functions: Sequence[Callable[..., Any]],
    operands: tuple[Any, ...],
) -> Any:
    leaves, in_tree = flatten_operands(where, operands)
    shape = None
    if jnp.ndim(index) > 0:
        with arrays_shown():
            paths = [path for path, _ in jax.tree.leaves_with_path(operands)]
        leaves = broadcast_operands(where, index, leaves, paths)
        shape = jnp.broadcast_shapes(jnp.shape(index), *map(jnp.shape, leaves))
    leaves = vary_with(index, leaves)
    branches = trace_branches(where, names, functions, leaves, in_tree, shape)
    if jnp.ndim(index) > 0:
        outs = switch_elementwise(where, names, index, branches)
    elif (known := concrete_index(index)) is not None:
        outs = branches.evaluate(max(0, min(known, len(functions) - 1)))
    else:
        jaxprs, hoisted = branches.hoist()
        outs = bind_switch(index, jaxprs, [*hoisted, *leaves])
    return branches.unflatten(outs)


def _checked_pred(pred: Any) -> Any:
    dtype = _array_dtype(pred)
    if dtype is not None and jnp.ndim(pred) == 0 and _is_real_number(dtype):
        # Of an array of numbers it is not clear whether it chooses or counts.
        return pred != np.zeros((), dtype)
    if dtype != np.dtype(np.bool_):
        raise ArgumentTypeError(
            explain(
                "pb.cond",
                expected="a bool scalar or array, or a scalar number, as `pred`",
                got=_described(pred, dtype),
                fix="Compare it, for example `pred != 0`.",
            )
        )
    return pred if hasattr(pred, "dtype") else np.bool_(pred)


def _checked_index(index: Any) -> Any:
    dtype = _array_dtype(index)
    if dtype is None or not jnp.issubdtype(dtype, np.integer):
        raise ArgumentTypeError(
            explain(
                "pb.switch",
                expected="an integer scalar or array as `index`",
                got=_described(index, dtype),
                fix="Convert it, for example `index.astype(int)`, or use pb.cond.",
            )
        )
    return index if hasattr(index, "dtype") else np.asarray(index)


def _is_real_number(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, np.integer) or jnp.issubdtype(dtype, np.floating)


def _array_dtype(x: Any) -> Any:
    """Return the dtype of an array or number, None for anything else."""
    try:
        return jax.typeof(x).dtype
    except (TypeError, AttributeError):
        return None


def _described(x: Any, dtype: Any) -> str:
    if dtype is None:
        return f"a {type(x).__module__}.{type(x).__qualname__}"
    return f"{dtype} of shape {jnp.shape(x)}"


def _check_callable(where: str, names: Sequence[str], functions: Sequence[Any]) -> None:
    for name, function in zip(names, functions, strict=True):
        if not callable(function):
            raise ArgumentTypeError(
                explain(
                    where,
                    expected=f"a function as {name}",
                    got=_described(function, _array_dtype(function)),
                    fix="Branches come before the operands and are not called yet.",
                )
            )
