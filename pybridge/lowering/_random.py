"""Random numbers: JAX's own threefry programs, traced on the words of the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..jaxprs import FOLLOWED
from ._emit import is_key
from ._registry import EMITTERS, Many, emits, emits_on_keys, refuses
from ._special import random_gamma
from ._text import size, val

# From the public description of a key: two words, the last axis of the array.
_WORDS = 2


@emits("threefry2x32")
def _threefry(eqn: Any) -> str:
    return Many(eqn.call("threefry2x32"))


@emits("iota_2x32_shape")
def _iota_2x32_shape(eqn: Any) -> str:
    return Many(eqn.call("iota_2x32_shape", val(size(eqn.params["shape"]))))


@emits("random_clone", "random_wrap", "random_unwrap")
def _words(eqn: Any) -> str:
    return eqn.args[0]


@emits("random_bits")
def _bits(eqn: Any) -> str:
    width, shape = eqn.params["bit_width"], eqn.params["shape"]
    return _traced(eqn, lambda impl, key: impl.random_bits(key, width, shape), "random_bits")


@emits("random_split")
def _split(eqn: Any) -> str:
    shape = eqn.params["shape"]
    return _traced(eqn, lambda impl, key: impl.split(key, shape), "random_split")


@emits("random_fold_in")
def _fold_in(eqn: Any) -> str:
    return _traced(eqn, lambda impl, key, data: impl.fold_in(key, data), "random_fold_in", 1)


@emits("random_seed")
def _seed(eqn: Any) -> str:
    return _traced(eqn, lambda impl, seed: impl.seed(seed), "random_seed", keyed=False)


emits("random_gamma")(random_gamma)


def _traced(
    eqn: Any, work: Callable[..., Any], name: str, others: int = 0, keyed: bool = True
) -> str:
    from jax.extend.random import threefry_prng_impl

    def of_single_key(*args: Any) -> Any:
        return work(threefry_prng_impl, *args)

    avals = [v.aval for v in eqn.eqn.invars]
    batch = len(avals[0].shape)
    function = of_single_key
    for _ in range(batch):
        function = jax.vmap(function)
    first = (
        jax.ShapeDtypeStruct((*avals[0].shape, _WORDS), np.uint32)
        if keyed
        else jax.ShapeDtypeStruct(avals[0].shape, avals[0].dtype)
    )
    rest = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals[1:]]
    closed = jax.make_jaxpr(function)(first, *rest)
    return f"{eqn.function(closed, name)}({', '.join(eqn.args)})"


# What hands its operands on, or takes keys as such.
_OPAQUE = """copy copy_p device_put differentiation_order optimization_barrier pybridge_filler
pybridge_guard pvary random_bits random_clone random_fold_in random_gamma random_split random_unwrap
reshard sharding_constraint stop_gradient within_gradient""".split()


@emits_on_keys(*_OPAQUE, *FOLLOWED)
def _opaque(eqn: Any) -> str:
    return EMITTERS[eqn.name](eqn)


# What moves elements and looks at none: here it moves pairs of words.
@emits_on_keys(
    "broadcast_in_dim",
    "concatenate",
    "dynamic_slice",
    "dynamic_update_slice",
    "expand_dims",
    "gather",
    "reshape",
    "rev",
    "scatter",
    "select_n",
    "slice",
    "split",
    "squeeze",
    "stack",
    "transpose",
    "unstack",
)
def _moved(eqn: Any) -> str:
    def words(*args: Any) -> Any:
        return eqn.eqn.primitive.bind(*args, **eqn.params)

    avals = [atom.aval for atom in eqn.eqn.invars]
    keyed = [is_key(aval.dtype) for aval in avals]
    types = [
        jax.ShapeDtypeStruct((*a.shape, _WORDS), np.uint32)
        if key
        else jax.ShapeDtypeStruct(a.shape, a.dtype)
        for a, key in zip(avals, keyed, strict=True)
    ]
    spread = jax.vmap(words, in_axes=[-1 if key else None for key in keyed], out_axes=-1)
    closed = jax.make_jaxpr(spread)(*types)
    return f"{eqn.function(closed, f'{eqn.name}_keys')}({', '.join(eqn.args)})"


refuses("its bits depend on the device; use the default generator, threefry", "rng_bit_generator")
refuses("it is not reproducible", "rng_uniform")
