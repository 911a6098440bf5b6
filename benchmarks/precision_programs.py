"""Formulas that lose their digits in the caller's precision, and stable forms of the same.

Each is drawn at random: the formula, its point, and a smooth function around it that keeps what
the precision leaves. `lossy` programs overflow, underflow or cancel, `stable` ones do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

FAULTS = ("softplus", "softmax", "logsumexp", "log sigmoid", "norm", "deviation", "likelihood",
          "expm1", "log1p", "roots")  # fmt: skip


@dataclass(frozen=True)
class Formula:
    """A formula at a point.

    Attributes:
        name: one of `FAULTS`.
        args: the point.
        function: the formula.
        kind: its name where it loses digits; empty for a stable form.
    """

    name: str
    args: tuple[np.ndarray, ...]
    function: Callable[..., Any]
    kind: str = ""

    def __call__(self, *args: Any) -> Any:
        """Compute it."""
        return self.function(*args)

    def __str__(self) -> str:
        """Write the name and the point."""
        point = ", ".join(f"{x.dtype}({x.tolist()})" for x in self.args)
        return f"{'stable' if not self.kind else 'lossy'} {self.name} at {point}"


def lossy(seed: int, number: int) -> Formula:
    """Make a formula that loses its digits, of the kinds in turn.

    Args:
        seed: the seed of the whole set.
        number: which program of the set.
    """
    name = FAULTS[number % len(FAULTS)]
    naive, _, x = _draw(name, np.random.default_rng([seed, 2, number]))
    return Formula(name, (x,), naive, name)


def stable(seed: int, number: int) -> Formula:
    """Make the stable form of such a formula, at such a point.

    Args:
        seed: the seed of the whole set.
        number: which program of the set.
    """
    name = FAULTS[number % len(FAULTS)]
    _, form, x = _draw(name, np.random.default_rng([seed, 2, number]))
    return Formula(name, (x,), form)


def _draw(name: str, rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
    """Draw the naive form, the stable one and a point at which the naive one fails."""
    scale = np.float32(rng.uniform(0.5, 2.0))
    naive, form, x = _FORMULAS[name](rng)

    def scaled(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: jnp.asarray(scale, x.dtype) * f(x)

    return scaled(naive), scaled(form), np.asarray(x, np.float32)


def _softplus(rng: np.random.Generator) -> Any:
    return lambda x: jnp.log(1 + jnp.exp(x)), jax.nn.softplus, rng.uniform(90, 2000)


def _softmax(rng: np.random.Generator) -> Any:
    weights = np.asarray(rng.uniform(0.5, 1.5, 3), np.float32)
    return (
        lambda x: (jnp.exp(x) / jnp.exp(x).sum()) @ weights.astype(x.dtype),
        lambda x: jax.nn.softmax(x) @ weights.astype(x.dtype),
        rng.uniform(90, 800) - rng.uniform(0, 3, 3),
    )


def _logsumexp(rng: np.random.Generator) -> Any:
    x = rng.choice([-1, 1]) * rng.uniform(120, 2000) + rng.uniform(-3, 3, int(rng.integers(2, 6)))
    return lambda x: jnp.log(jnp.exp(x).sum()), jax.nn.logsumexp, x


def _log_sigmoid(rng: np.random.Generator) -> Any:
    return lambda x: jnp.log(jax.nn.sigmoid(x)), jax.nn.log_sigmoid, -rng.uniform(95, 2000)


def _norm(rng: np.random.Generator) -> Any:
    def form(x: Any) -> Any:
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x)))
        return largest * jnp.sqrt(((x / largest) ** 2).sum())

    exponent = rng.choice([-1, 1]) * rng.uniform(22, 30)
    x = rng.uniform(0.5, 2.0, int(rng.integers(2, 6))) * 10.0**exponent
    return lambda x: jnp.sqrt((x * x).sum()), form, x


def _deviation(rng: np.random.Generator) -> Any:
    mean, count = rng.uniform(2e4, 2e6), int(rng.integers(4, 9))
    return (
        lambda x: jnp.sqrt(jnp.abs((x**2).mean() - x.mean() ** 2) + 1e-5),
        lambda x: jnp.sqrt(jnp.var(x) + 1e-5),
        mean + np.linspace(-1.0, 1.0, count) * rng.uniform(2, 5),
    )


def _likelihood(rng: np.random.Generator) -> Any:
    data = np.asarray(rng.uniform(-6, 6, 24), np.float32)
    return (
        lambda m: jnp.log(jnp.prod(jnp.exp(-((data.astype(m.dtype) - m) ** 2)))),
        lambda m: -((data.astype(m.dtype) - m) ** 2).sum(),
        rng.uniform(1, 3),
    )


def _expm1(rng: np.random.Generator) -> Any:
    x = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-12, -8)
    return lambda x: jnp.exp(x) - 1, jnp.expm1, x


def _log1p(rng: np.random.Generator) -> Any:
    x = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-12, -8)
    return lambda x: jnp.log(1 + x), jnp.log1p, x


def _roots(rng: np.random.Generator) -> Any:
    return (
        lambda x: jnp.sqrt(x + 1) - jnp.sqrt(x),
        lambda x: 1 / (jnp.sqrt(x + 1) + jnp.sqrt(x)),
        10.0 ** rng.uniform(7.5, 9.0),
    )


_FORMULAS = {
    "softplus": _softplus,
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "log sigmoid": _log_sigmoid,
    "norm": _norm,
    "deviation": _deviation,
    "likelihood": _likelihood,
    "expm1": _expm1,
    "log1p": _log1p,
    "roots": _roots,
}
