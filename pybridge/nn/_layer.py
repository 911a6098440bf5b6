"""What every layer is: configuration without arrays, with explicit parameters and state."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..primitives import call_under_jet
from ._dtypes import input_array
from ._mode import Mode, resolve_training

_MISSING: Any = object()


class Layer:
    """The base of all layers.

    A layer holds configuration only: it is a frozen dataclass, hashable, equal to another
    one with the same fields, and a static node of pytrees. Its arrays live outside of it,
    in `params`, which are trained, and `state`, which is not.

    To write a layer, derive a frozen dataclass from `Layer` and define `forward`, and
    `init` if it has parameters or state.

    Example:
        >>> import dataclasses
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> @dataclasses.dataclass(frozen=True)
        ... class Scale(pb.nn.Layer):
        ...     size: int
        ...     def init(self, key, dtype=jnp.float32):
        ...         return {"scale": jnp.ones(self.size, dtype)}, {}
        ...     def forward(self, params, state, x, *, key, mode):
        ...         return params["scale"] * x, state
        >>> layer = Scale(2)
        >>> params, state = layer.init(jax.random.key(0))
        >>> y, state = layer.apply(params, state, jnp.array([[1.0, 2.0]]))
        >>> y.tolist()
        [[1.0, 2.0]]

    The twin in Julia is `PyBridge.Layer`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Make every kind of layer a static node of pytrees."""
        super().__init_subclass__(**options)
        jax.tree_util.register_static(cls)

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return fresh parameters and the state to start from.

        Args:
            key: a JAX key. A container gives its child number i the key
                `jax.random.fold_in(key, i)`.
            dtype: of the parameters, inexact. State is float32 for half precision.

        Returns:
            `(params, state)`, pytrees of arrays; `{}` where there is nothing.

        The twin in Julia is `PyBridge.init(key, layer; T=Float32)`.
        """
        return {}, {}

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Raise: a layer is applied to parameters, state and input; see `apply`.

        Raises:
            ArgumentTypeError: always.
        """
        raise ArgumentTypeError(
            explain(
                type(self).__name__,
                expected="`y, state = layer.apply(params, state, x)`",
                got="a call of the layer itself",
                fix="A layer holds no arrays: `params, state = layer.init(key)` makes them.",
            )
        )

    def apply(
        self,
        params: Any,
        state: Any = _MISSING,
        x: Any = _MISSING,
        key: Any = None,
        training: Any = "auto",
        **options: Any,
    ) -> tuple[Any, Any]:
        """Return the layer's output and its next state.

        Args:
            params: what `init` gave, or an update of it.
            state: the same.
            x: the input, of the shape that the layer names.
            key: a JAX key, needed where random numbers are drawn in training.
            training: True, False, or "auto": training where `params` or `x` carry a
                derivative (`pb.is_differentiating`), else test. A container asks once for
                all its layers. An explicit mode always wins.
            **options: of the kind of layer, for example `mask=` of the normalisations.

        Returns:
            `(y, state)`. In test mode the state is the one given.

        Raises:
            ArgumentTypeError: `params` or `state` have another tree than `init` gives, or are
                missing; the input is no array, `key` is no key, or the layer has no such
                option.
            ArgumentValueError: a shape does not fit, or training needs what is not there
                (a key, more than one value per channel).

        Warns:
            ModeWarning: `training` is explicit and contradicts the detection.

        The twin in Julia is `PyBridge.apply(layer, params, state, x; key, training)`.
        """
        self._check_call(x, key, options)
        check_trees(self, params, state)
        mode, (params, x) = resolve_training(training, params, x)

        def forward(params: Any, state: Any, x: Any, key: Any, options: dict[str, Any]) -> Any:
            return self.forward(params, state, x, key=key, mode=mode, **options)

        return call_under_jet(forward, params, state, x, key, options)

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return output and next state in a mode that is settled; for authors of layers.

        Args:
            params: as `apply` has checked them.
            state: the same.
            x: the input.
            key: a JAX key or None.
            mode: act on it with `mode.choose(train, test, *operands)`.

        Returns:
            `(y, state)`.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define `forward`")

    def accepts(self, option: str) -> bool:
        """Tell whether `apply` takes an option, such as "mask"; a container's if a child does."""
        return _takes(type(self).forward, option)

    def _check_call(self, x: Any, key: Any, options: dict[str, Any]) -> None:
        where = f"{type(self).__name__}.apply"
        if x is _MISSING:
            raise ArgumentTypeError(
                explain(
                    where,
                    expected="parameters, state and input, `apply(params, state, x)`",
                    got="fewer arguments",
                    fix="`params, state = layer.init(key)` makes the first two.",
                )
            )
        if key is not None:
            check_key(where, key)
        for option in options:
            if not self.accepts(option):
                raise ArgumentTypeError(
                    explain(
                        where,
                        expected="options that the layer has, or one of its children",
                        got=f"{option}=",
                        fix="`mask=` is one of normalisations, attention and recurrent layers, "
                        "`hidden=` of the latter.",
                    )
                )

    def __repr__(self) -> str:
        """Return the call that makes the layer, without what is left at its default."""
        parts = []
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                parts.append(shown(value))
            elif value != field.default:
                # A field that cannot have its option's name, as `init`, says so.
                name = field.metadata.get("option", field.name)
                parts.append(f"{name}={shown(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"


@functools.cache
def _takes(forward: Any, option: str) -> bool:
    parameters = inspect.signature(forward).parameters
    return option in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def check_key(where: str, key: Any) -> None:
    """Refuse what is not one key of JAX's, typed or as words.

    Raises:
        ArgumentTypeError: it is something else, or several keys.
    """
    one = key
    if not jnp.issubdtype(getattr(key, "dtype", np.dtype(object)), jax.dtypes.prng_key):
        try:
            one = jax.random.wrap_key_data(key)
        except (TypeError, ValueError):
            one = None
    if one is None or one.shape != ():
        shape = f" of the shape {key.shape}" if hasattr(key, "shape") else ""
        raise ArgumentTypeError(
            explain(
                where,
                expected="one key of JAX's as key",
                got=f"a {type(key).__name__}{shape}",
                fix="Pass `jax.random.key(0)`; where there is a key for each of several "
                "inputs, use jax.vmap.",
            )
        )


def child_key(key: Any, number: int) -> Any:
    """Return the key of child `number` of a layer, None for None."""
    if key is None:
        return None
    check_key("Layer.init", key)  # `apply` has checked its own
    return jax.random.fold_in(key, number)


def shown(value: Any) -> str:
    """Return a function's name, and the repr of anything else."""
    if isinstance(value, Layer):
        return repr(value)
    return getattr(value, "__name__", None) or repr(value)


def positive(where: str, name: str, value: Any) -> int:
    """Return a size as an int.

    Raises:
        ArgumentValueError: it is no positive integer.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise ArgumentValueError(
            explain(
                where,
                expected=f"a positive integer as {name}",
                got=repr(value),
                fix="Sizes are counted in elements.",
            )
        )
    return value.__index__()


def check_axis(where: str, x: Any, axis: int, size: int, meaning: str) -> None:
    """Refuse an input whose `axis` does not have `size` elements.

    Raises:
        ArgumentTypeError: it is no array.
        ArgumentValueError: it has not, or there is no such axis.
    """
    shape = jnp.shape(input_array(where, x))
    if not -len(shape) <= axis < len(shape) or shape[axis] != size:
        raise ArgumentValueError(
            explain(
                where,
                expected=f"an input with {size} {meaning} on axis {axis}",
                got=f"shape {shape}",
                fix="Arrays are (batch, channels, *spatial), the reverse of Flux's order.",
            )
        )


def check_trees(layer: Layer, params: Any, state: Any) -> None:
    """Refuse parameters or state of another tree or shape than `layer.init` gives.

    Raises:
        ArgumentTypeError: it is no layer, or cannot be hashed, or the tree differs; the message has
            both.
        ArgumentValueError: a leaf has another shape; the message has its path.
    """
    if not isinstance(layer, Layer):
        raise ArgumentTypeError(
            explain(
                "pybridge.nn",
                expected="a layer",
                got=f"a {type(layer).__name__}",
                fix="A Flux model becomes one by `from_flux`.",
            )
        )
    where = f"{type(layer).__name__}.apply"
    try:
        trees = _trees(layer)
    except TypeError:
        _require_hash(where, layer)
        raise
    for name, expected, got in zip(("params", "state"), trees, (params, state), strict=True):
        if jax.tree.structure(expected) != jax.tree.structure(got):
            raise ArgumentTypeError(
                explain(
                    where,
                    expected=f"{name} as `init` gives them, {_outline(expected)}",
                    got=_outline(got),
                    fix="`params, state = layer.init(key)` makes them; `apply` takes them in "
                    "this order.",
                )
            )
        for (path, leaf), value in zip(
            jax.tree.leaves_with_path(expected), jax.tree.leaves(got), strict=True
        ):
            if leaf.shape != jnp.shape(value):
                raise ArgumentValueError(
                    explain(
                        where,
                        expected=f"shape {leaf.shape} for {name}{jax.tree_util.keystr(path)}",
                        got=f"shape {jnp.shape(value)}",
                        fix=f"These {name} belong to another layer than {layer!r}.",
                    )
                )


def _require_hash(where: str, layer: Layer) -> None:
    try:
        hash(layer)
    except TypeError as error:
        raise ArgumentTypeError(
            explain(
                where,
                expected="a layer whose options can be hashed: they are constants of programs",
                got=f"{layer!r}: {error}",
                fix="Make a function of a class of one's own a `@dataclass(frozen=True)`. Arrays "
                "belong to the parameters.",
            )
        ) from error


@functools.lru_cache(maxsize=1024)
def _trees(layer: Layer) -> tuple[Any, Any]:
    """Return what `init` gives, with shapes in place of arrays."""
    return jax.eval_shape(layer.init, jax.eval_shape(lambda: jax.random.key(0)))


def _outline(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: jnp.shape(leaf), tree))
