"""A Flux model as a JAX layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._backends import JULIA_NAMES, row
from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..interop import JuliaFunction, check_packages
from ..nn import Layer, Mode
from ..nn.internals import resolve_training
from ._model_arrays import ModelArrays

if TYPE_CHECKING:
    from ..julia import ModelHandle


class FluxModel(Layer):
    """A Flux model that is called and trained from JAX; `flux` makes it.

    It is a layer like those of `pybridge.nn`, and may stand in a `pybridge.nn.Chain`. `len` is
    Flux's, and `repr` shows the model as Flux does.

    Attributes:
        ad: the AD system that differentiates it.
        source: the Julia source, or None for a model object.
    """

    def __init__(self, handle: ModelHandle, ad: str):
        """Keep the parts."""
        self.ad = ad
        self.source = handle.source
        self._handle = handle
        self._params = ModelArrays("params", handle.text["params"])
        self._state = ModelArrays("state", handle.text["state"])
        self._read, self._write = handle.function("read"), handle.function("write")
        shown = self.source or "Flux model"
        self._train, self._test = (
            JuliaFunction(
                handle.function(mode), source=f"{shown} [{mode}]", ad=ad, layout="reversed"
            )
            for mode in ("train", "test")
        )

    def init(self, key: Any = None, dtype: Any = None) -> tuple[Any, Any]:
        """Return the model's weights as JAX arrays.

        Args:
            key: without one, the weights that the Flux model has now. With one, a model that
                was made from source is made anew, with Julia's generator seeded by the key; a
                model object keeps its weights.
            dtype: of the parameters; by default each has its own. State is at least float32.

        Returns:
            `(params, state)`: what Flux trains, and the other arrays, such as running statistics.
            Dicts have Flux's field names, tuples of layers are tuples, and layers with names
            dicts. Axes are Julia's, reversed. Integers, functions and the like stay in Julia.

        Raises:
            ArgumentTypeError: an array is of 64 bits, x64 is off, and there is no `dtype`.
        """
        arrays = self._drawn(key) if key is not None and self.source else self._present()
        wider = None if dtype is None else jnp.promote_types(dtype, np.float32)
        params, state = arrays
        return self._params.tree(params, dtype), self._state.tree(state, wider)

    def _present(self) -> Any:
        return self._read.run("call", (), layout="reversed").raw()

    def _drawn(self, key: Any) -> Any:
        """Return the arrays that the source draws from a key, which may be traced."""
        words = key_words("FluxModel.init", key)
        if not isinstance(words, Tracer):
            return self._redraw(words)
        types = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self._present()
        )
        return jax.pure_callback(self._redraw, types, words, vmap_method="sequential")

    def _redraw(self, words: Any) -> Any:
        assert self.source is not None
        fresh = FluxModel(self._handle.fresh([int(word) for word in words]), self.ad)
        arrays = fresh._present()
        for mine, other, found in zip(
            (self._params, self._state), (fresh._params, fresh._state), arrays, strict=True
        ):
            mine.check("FluxModel.init", other.tree(found, None))
        return arrays

    def apply(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        params: Any,
        state: Any,
        x: Any,
        key: Any = None,
        training: Any = "auto",
        **options: Any,
    ) -> tuple[Any, Any]:
        """Call the model.

        Args:
            params: what `init` gave, or an update of it.
            state: the same.
            x: the input, an array or what else the model takes: a tuple of arrays for
                `Parallel`. A JAX array of shape (N, C, H, W) is Julia's (W, H, C, N).
            key: a JAX key for the masks of Dropout and AlphaDropout: those that
                `pybridge.nn` draws.
            training: True, False, or "auto": training where `params` or `x` carry a derivative.
                A layer that the model itself holds in a mode stays in it.
            **options: none.

        Returns:
            `(y, state)`. In test mode the state is the one given; in training the arrays that
            Flux's layers wrote. No derivative goes through state.

        Raises:
            ArgumentTypeError: `params` or `state` have another tree than `init` gives, with
                the path of what differs.
            ArgumentValueError: a shape does not fit, with its path; there is no key in training
                and the model draws masks.
            JuliaError: the model throws; inside `jit` it is a `jax.errors.JaxRuntimeError`.

        Warns:
            ModeWarning: `training` is explicit and contradicts the detection.
        """
        self._params.check("FluxModel.apply", params)
        self._state.check("FluxModel.apply", state)
        mode, (params, x) = resolve_training(training, params, x)
        return self.forward(params, state, x, key=key, mode=mode, **options)

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Call the train or the test version of the model; see `apply`."""
        x = jax.tree.map(jnp.asarray, x)
        words = None if key is None else key_words("FluxModel.apply", key)
        if words is None:
            mode = self._without_key(mode)

        def train(params: Any, state: Any, x: Any) -> Any:
            y, arrays = self._train(*self._arrays(params, state), x, words)
            return y, jax.lax.stop_gradient(self._state.tree(arrays, None))

        def test(params: Any, state: Any, x: Any) -> Any:
            return self._test(*self._arrays(params, state), x, words), state

        if not self._handle.text["has_mode"]:
            return test(params, state, x)
        return mode.choose(train, test, params, state, x)

    def _arrays(self, params: Any, state: Any) -> tuple[Any, Any]:
        return self._params.arrays(params), jax.lax.stop_gradient(self._state.arrays(state))

    def _without_key(self, mode: Mode) -> Mode:
        test_needs_key, train_needs_key = self._handle.text["needs_key"]
        error = ArgumentValueError(
            explain(
                "FluxModel.apply",
                expected="a key, since the model has Dropout that is active",
                got="key=None",
                fix="Pass `key=jax.random.key(...)`, a new one for every step, or "
                "`training=False`.",
            )
        )
        if test_needs_key:  # the model itself keeps its Dropout active
            raise error
        return mode.refuse_training(error) if train_needs_key else mode

    def load(self, params: Any, state: Any) -> None:
        """Write weights into the Flux model, exactly.

        Args:
            params: what `init` gave, or an update of it, of the model's own dtypes.
            state: the same.

        Raises:
            ArgumentTypeError: the tree or a dtype differs, with the path. Nothing is written.
            ArgumentValueError: a shape differs, with the path. Nothing is written.
            JuliaError: an array of the model cannot be written to. Nothing is written.
        """
        self._params.check("FluxModel.load", params, dtypes=True)
        self._state.check("FluxModel.load", state, dtypes=True)
        # NumPy keeps 64 bits also where JAX does not.
        arrays = (self._params.arrays(params, np.asarray), self._state.arrays(state, np.asarray))
        self._write.run("call", arrays, layout="reversed")

    def check(self, params: Any, state: Any) -> None:
        """Refuse arrays of another tree or of other shapes than `init` gives.

        Raises:
            ArgumentTypeError: the tree differs, with the path.
            ArgumentValueError: a shape differs, with the path.
        """
        self._params.check("from_flux", params)
        self._state.check("from_flux", state)

    @property
    def structure(self) -> Any:
        """The model field by field, as `outline` in flux_text.jl writes it."""
        return self._handle.text["structure"]

    @property
    def model(self) -> Any:
        """The Flux model, a juliacall value."""
        return self._handle.value()

    def __len__(self) -> int:
        """Return the number of layers of a Chain, or of what else has a length in Julia."""
        length = self._handle.text["length"]
        if length is None:
            raise ArgumentTypeError(
                explain(
                    "len",
                    expected="a Flux model that has a length, such as a Chain",
                    got=self._handle.text["shown"].splitlines()[0],
                    fix="Wrap it: Chain(model).",
                )
            )
        return length

    def __bool__(self) -> bool:
        """Return True, whatever the length."""
        return True

    def __repr__(self) -> str:
        """Show the model as Flux does."""
        return f"flux: {self._handle.text['shown']}"


def key_words(where: str, key: Any) -> Any:
    """Return the two words of a JAX key, typed or raw.

    Raises:
        ArgumentTypeError: it is no key of the threefry generator.
    """
    typed = jnp.issubdtype(getattr(key, "dtype", np.dtype(object)), jax.dtypes.prng_key)
    words = jax.random.key_data(key) if typed else key
    if getattr(words, "dtype", None) != np.uint32 or np.shape(words) != (2,):
        raise ArgumentTypeError(
            explain(
                where,
                expected="one JAX key of the generator threefry2x32, the default",
                got=f"{jax.typeof(key)}" if hasattr(key, "dtype") else f"a {type(key).__name__}",
                fix="Make it with jax.random.key(0).",
            )
        )
    return words


def flux(model: Any, *, ad: str = "zygote", using: str | Sequence[str] = ()) -> FluxModel:
    """Make a JAX layer of a Flux model.

    The layer works inside `jax.jit`, `vmap`, `grad`, `scan` and their nestings by the bridge of
    `from_julia`, is trained by optax, and gives its weights back to Flux. Flux runs; for the same
    network in JAX, without Julia, see `pybridge.nn.from_flux`.

    Source is evaluated at once, in a Julia module of its own where Flux (all that it exports),
    PyBridge and NNlib are imported. The model is never changed by a call: its layers are made
    anew around the arrays of the call, with their mode set. An array that stands in two places
    (tied weights) is in params once, at the first, and its gradient is the sum.

    Args:
        model: Julia source whose value is a Flux model, or a juliacall value that is one.
        ad: the AD system for reverse mode: `"zygote"`, `"forwarddiff"`, `"tracker"`, `"yota"`,
            `"mooncake"`, `"reversediff"`, `"enzyme"`, or an expression of ADTypes such as
            `"di:AutoFiniteDiff()"`.
        using: other Julia packages that the source names.

    Returns:
        The layer.

    Raises:
        UnknownBackendError: `ad` names no Julia AD system.
        ArgumentTypeError: `model` is neither source of a model nor a model.
        JuliaError: the source does not parse, or throws.
        JuliaUnavailableError: Julia cannot be started.
        BackendNotLoadedError: Flux cannot be installed or loaded.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> model = pb.flux("Chain(Dense(2 => 3, tanh), Dense(3 => 1; bias=false))")
        >>> params, state = model.init(jax.random.key(0))
        >>> jax.tree.map(jnp.shape, params)
        {'layers': ({'bias': (3,), 'weight': (2, 3)}, {'weight': (3, 1)})}
        >>> loss = lambda params: model.apply(params, state, jnp.ones((5, 2)))[0].sum()
        >>> gradient = jax.jit(jax.grad(loss))(params)
        >>> params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
        >>> model.load(params, state)

    The twin for single functions is `from_julia`.
    """
    row(ad, argument="ad", names=JULIA_NAMES)
    packages = (using,) if isinstance(using, str) else tuple(using)
    check_packages("flux", packages)
    if not isinstance(model, str) and not type(model).__module__.startswith("juliacall"):
        raise ArgumentTypeError(
            explain(
                "flux",
                expected="Julia source of a Flux model, or a juliacall value that is one",
                got=f"a {type(model).__name__}",
                fix='For example pb.flux("Chain(Dense(2 => 3, relu), Dense(3 => 1))").',
            )
        )
    # Not needed by those who only import pybridge.
    from ..julia import ModelHandle

    return FluxModel(ModelHandle(model, packages), ad)
