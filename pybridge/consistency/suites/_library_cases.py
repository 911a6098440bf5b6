"""What other libraries' functions are asked: the arguments for each of them.

Functions are found by looking into the library, so that a new one is seen: without arguments here
it is listed as not asked, never passed over.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._errors import BridgeError
from ...interop import from_julia

# The points where formulas change are at round numbers as a rule: these, and what is between them.
_LINE = [-800.0, -20.0, *np.arange(-6.0, 6.5, 0.5), 20.0, 800.0]
_NEAR = [*np.arange(-3.0, 3.25, 0.25), 5.5, -7.5]
_POSITIVE = [1e-3, 0.03, *np.arange(0.1, 2.05, 0.1).round(1), 2.5, 3.0, 4.7, 6.5, 8.0, 10.0, 40.0]
_UNIT = [0.01, 0.1, 0.3, 0.45, 0.5, 0.7, 0.9, 0.99]
_SCORES = [[1.0, -2.0, 0.5], [0.3, 0.2, 4.0]]
_OTHERS = [[0.5, -1.0, 2.0], [0.1, -0.2, 3.0]]
_SHARES = [[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]]
_LOGS = np.log(_SHARES).tolist()
_HOT = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
_LABELS = np.array([1, 0], np.int32)  # as wide with and without 64 bits
_SIGNS = [[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]]
_BITS = [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]


def _pairs(*axes: Sequence[float]) -> tuple[list[float], ...]:
    """Return all combinations of numbers, as one argument for each axis."""
    return tuple(map(list, zip(*itertools.product(*axes), strict=True)))


_FEW = [1e-3, 0.3, 0.5, 1.0, 1.7, 2.5, 10.0]
_FEWER = [0.1, 0.5, 1.0, 2.0, 3.0]
_POWERS = [-1.0, 0.0, 0.5, 1.0, 2.0]


@dataclass(frozen=True)
class LibraryCase:
    """A function of a library and its arguments.

    Attributes:
        name: its full name, such as `"jax.nn.relu"`.
        function: a function of the arguments that are differentiated.
        args: float64 arrays.
        reason: why it is not asked; empty where it is.
    """

    name: str
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    reason: str = ""

    @property
    def title(self) -> str:
        """Why it is not asked, or the shapes of its arguments."""
        shapes = ", ".join(str(np.shape(arg)) for arg in self.args)
        return f"not asked: {self.reason}" if self.reason else f"arguments of shape {shapes}"


@dataclass(frozen=True)
class _Ask:
    """The differentiated arguments, then those that are not, by position or by name."""

    args: tuple[Any, ...]
    fixed: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    first: tuple[Any, ...] = ()


def _ask(*args: Any, fixed: tuple[Any, ...] = (), first: tuple[Any, ...] = (), **named: Any) -> Any:
    return _Ask(args, fixed, tuple(named.items()), first)


_JAX_NN: dict[str, Any] = {
    "dot_product_attention": _ask(*np.sin(np.arange(72.0)).reshape(3, 1, 4, 2, 3)),
    "get_scaled_dot_general_config": "it makes a configuration",
    "glu": _ask([1.0, -2.0, 0.5, 3.0]),
    "log1mexp": _ask(_POSITIVE),
    "log_softmax": _ask(_SCORES),
    "logmeanexp": _ask(_SCORES),
    "logsumexp": _ask(_SCORES),
    "one_hot": "its argument is an integer",
    "scaled_dot_general": "it needs a GPU with scaled formats",
    "scaled_matmul": "it needs a GPU with scaled formats",
    "softmax": _ask(_SCORES),
    "standardize": _ask(_SCORES),
}

_SPECIAL: dict[str, Any] = {
    "bernoulli": "its argument is an integer",
    "bessel_jn": _ask(_POSITIVE, v=2),
    "beta": _ask(*_pairs(_FEW, _FEWER)),
    "betainc": _ask(*_pairs(_FEWER, [0.3, 1.0, 4.0], _UNIT)),
    "betaln": _ask(*_pairs(_FEW, _FEWER)),
    "boxcox": _ask(*_pairs(_FEW, _POWERS)),
    "boxcox1p": _ask(*_pairs(_FEW, _POWERS)),
    "comb": "its arguments are integers",
    "digamma": _ask(_POSITIVE),
    "entr": _ask(_POSITIVE),
    "erfinv": _ask([-0.999, -0.9, -0.5, -0.1, 0.0, 0.2, 0.5, 0.8, 0.95, 0.999]),
    "exp1": _ask(_FEW),
    "expi": _ask(_POSITIVE),
    "expn": _ask(_FEW, first=(2,)),
    "factorial": _ask(_POSITIVE),
    "gamma": _ask(_POSITIVE),
    "gammainc": _ask(*_pairs([0.5, 1.0, 2.0, 3.3, 7.0], _FEW)),
    "gammaincc": _ask(*_pairs([0.5, 1.0, 2.0, 3.3, 7.0], _FEW)),
    "gammaln": _ask(_POSITIVE),
    "gammasgn": _ask(_POSITIVE),
    "hyp1f1": _ask(*_pairs([0.5, 1.0, 2.3], [1.5, 2.0], [-2.0, 0.0, 0.3, 2.0])),
    "hyp2f1": _ask(*_pairs([0.5, 1.0], [1.5, 2.0], [2.7], [-0.4, 0.0, 0.3, 0.8])),
    "kl_div": _ask(*_pairs(_FEW, _FEWER)),
    "loggamma": _ask(_POSITIVE),
    "log_softmax": _ask(_SCORES),
    "logit": _ask(_UNIT),
    "logsumexp": _ask(_SCORES),
    "multigammaln": _ask([1.2, 2.5, 3.0, 10.0], fixed=(2,)),
    "ndtri": _ask(_UNIT),
    "owens_t": _ask(*_pairs([-3.0, -0.7, 0.0, 0.5, 1.8], _FEWER)),
    "poch": _ask(*_pairs(_FEW, _FEWER)),
    "polygamma": _ask(_POSITIVE, first=(2,)),
    "rel_entr": _ask(*_pairs(_FEW, _FEWER)),
    "softmax": _ask(_SCORES),
    "sici": _ask(_POSITIVE),
    "spence": _ask(_POSITIVE),
    "sph_harm_y": "its orders are integers and its value is complex",
    "wofz": "its argument and its value are complex",
    "xlog1py": _ask(*_pairs([0.0, 1.0, 2.0], _FEWER)),
    "xlogy": _ask(*_pairs([0.0, 1.0, 2.0], _FEWER)),
    "zeta": _ask(*_pairs([1.2, 1.5, 2.0, 4.0], _FEWER)),
}

_OPTAX: dict[str, Any] = {
    "binary_dice_loss": _ask(_SCORES, fixed=(_BITS,)),
    "convex_kl_divergence": _ask(_LOGS, _SHARES),
    "ctc_loss": _ask(
        np.sin(np.arange(40.0)).reshape(2, 5, 4),
        fixed=(np.zeros((2, 5)), np.array([[1, 2], [3, 1]]), np.zeros((2, 2))),
    ),
    "ctc_loss_with_forward_probs": "it is ctc_loss with more results",
    "dice_loss": _ask(_SCORES, fixed=(_HOT,)),
    "generalized_kl_divergence": _ask(_LOGS, _SHARES),
    "hinge_loss": _ask(_SCORES, fixed=(_SIGNS,)),
    "kl_divergence": _ask(_LOGS, _SHARES),
    "kl_divergence_with_log_targets": _ask(_LOGS, np.log([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])),
    "make_fenchel_young_loss": "it makes a loss of a function",
    "multiclass_generalized_dice_loss": _ask(_SCORES, fixed=(_HOT,)),
    "multiclass_hinge_loss": _ask(_SCORES, fixed=(_LABELS,)),
    "multiclass_perceptron_loss": _ask(_SCORES, fixed=(_LABELS,)),
    "multiclass_sparsemax_loss": _ask(_SCORES, fixed=(_LABELS,)),
    "ntxent": _ask(_SCORES + _OTHERS, fixed=(np.array([0, 1, 0, 1]),)),
    "perceptron_loss": _ask(_SCORES, fixed=(_SIGNS,)),
    "poly_loss_cross_entropy": _ask(_SCORES, fixed=(_HOT,)),
    "ranking_softmax_loss": _ask(_SCORES, fixed=(_BITS,)),
    "safe_softmax_cross_entropy": _ask(_SCORES, fixed=(_HOT,)),
    "sigmoid_binary_cross_entropy": _ask(_SCORES, fixed=(_BITS,)),
    "sigmoid_focal_loss": _ask(_SCORES, fixed=(_BITS,)),
    "smooth_labels": _ask(_SHARES, fixed=(0.1,)),
    "softmax_cross_entropy": _ask(_SCORES, fixed=(_HOT,)),
    "softmax_cross_entropy_with_integer_labels": _ask(_SCORES, fixed=(_LABELS,)),
    "sparsemax_loss": _ask(_SCORES, fixed=(_BITS,)),
    "triplet_margin_loss": _ask(_SCORES, _OTHERS, _SHARES),
}

# For each library: the module, what its functions take where nothing else is said, and the rest.
LIBRARIES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "jax.nn": ("jax.nn", _ask(_LINE), _JAX_NN),
    "jax.scipy.special": ("jax.scipy.special", _ask(_NEAR), _SPECIAL),
    "optax.losses": ("optax.losses", _ask(_SCORES, _OTHERS), _OPTAX),
}


def library_cases(library: str) -> Iterator[LibraryCase]:
    """List every function of a library with its arguments.

    Args:
        library: a key of `LIBRARIES`.

    Yields:
        A case for each public function, in the order of their names; a single one with the
        reason where the library is not installed.
    """
    path, default, special = LIBRARIES[library]
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        yield LibraryCase(library, reason=f"not installed ({error})")
        return
    for name in sorted(vars(module)):
        function = getattr(module, name)
        if name.startswith("_") or not callable(function) or inspect.isclass(function):
            continue
        ask = special.get(name, default)
        if isinstance(ask, str):
            yield LibraryCase(f"{library}.{name}", reason=ask)
            continue
        args = tuple(np.asarray(arg, float) for arg in ask.args)
        yield LibraryCase(f"{library}.{name}", partial(_called, function, ask), args)


def _called(function: Callable[..., Any], ask: _Ask, *args: Any) -> Any:
    """Put the arguments that are not differentiated around those that are."""
    fixed = tuple(np.asarray(x) if isinstance(x, list) else x for x in ask.fixed)
    return function(*ask.first, *args, *fixed, **dict(ask.named))


def nnlib_cases() -> Iterator[LibraryCase]:
    """List NNlib's activation functions, by its own list of them; starts Julia."""
    try:
        names = from_julia("() -> collect(codeunits(join(NNlib.ACTIVATIONS, ' ')))")()
    except BridgeError as error:
        yield LibraryCase("NNlib", reason=str(error).splitlines()[0])
        return
    for name in sorted(bytes(names).decode().split()):
        f = from_julia(f"x -> NNlib.{name}.(x)")
        yield LibraryCase(f"NNlib.{name}", f, (np.asarray(_LINE),))
