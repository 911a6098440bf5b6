"""Ask how many derivatives a value carries: `differentiation_order`.

The question of `within_gradient`, counted. The primitive is the constant 0, and its JVP rule adds
one where the operand has a tangent at its level and asks the next level.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from ..jaxprs import Primitive
from ._detection import answer_aval, traced_leaf


def differentiation_order(x: Any) -> jax.Array | np.int32:
    """Return how many derivatives `x` carries here: 0 outside of all.

    1 inside of `jax.grad` or `jax.jvp`, 2 inside of two that are nested, as in `jax.hessian`. As
    with `within_gradient` the answer is exact for each value: a derivative by another value, a
    `jit` or a `vmap` does not count. Inside a `custom_jvp` or `custom_vjp` rule values are plain,
    and the answer is 0.

    Without `jit` the answer is concrete. Under `jit` it is traced, and a constant of the compiled
    program.

    Args:
        x: a pytree of arrays, numbers and PRNG keys of any shape and dtype, as for
            `within_gradient`.

    Returns:
        An int32 scalar, shape (): the largest order of a leaf. Never batched, also under `vmap`.

    Raises:
        DetectionError: a leaf belongs to something that cannot be seen into, for example a
            PyTorch tensor or a Julia value. The answer is never a silent 0.

    Example:
        >>> import jax
        >>> import pybridge as pb
        >>> def f(x):
        ...     print(pb.differentiation_order(x))
        ...     return x**3
        >>> _ = f(2.0)
        0
        >>> _ = jax.grad(f)(2.0)
        1
        >>> _ = jax.grad(jax.grad(f))(2.0)
        2
    """
    tracers = [leaf for leaf in jax.tree.leaves(x) for leaf in traced_leaf(leaf, _WHERE)]
    orders: list[Any] = [np.int32(0), *map(order_p.bind, tracers)]
    if any(isinstance(order, Tracer) for order in orders):
        return functools.reduce(jnp.maximum, orders)
    return max(orders)


_WHERE = "pb.differentiation_order"

order_p = Primitive("differentiation_order")


_aval = functools.partial(answer_aval, dtype=np.int32)


def _jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    order = order_p.bind(*primals)
    if type(tangents[0]) is not ad.Zero:
        order = order + np.int32(1)
    return order, ad.Zero(_aval(jax.typeof(primals[0])).to_tangent_aval())


def _partial_eval(trace: Any, tracer: Any) -> Any:
    """Answer as for `within_gradient`: an input of a linear function carries no derivative."""
    known = tracer.pval.get_known()
    return np.int32(0) if known is None else order_p.bind(known)


order_p.def_impl(lambda x: np.int32(0))
order_p.def_abstract_eval(_aval)
mlir.register_lowering(order_p, mlir.lower_fun(lambda x: np.int32(0), multiple_results=False))
ad.primitive_jvps[order_p] = _jvp
batching.primitive_batchers[order_p] = lambda operands, dims: (order_p.bind(*operands), None)
pe.custom_partial_eval_rules[order_p] = _partial_eval
