"""The table of Flux's layers: what `pb.nn.from_flux` makes of each, against Flux itself.

python docs/update_tables.py flux-layers
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pybridge as pb
from pybridge import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "bridge"))

import flux_layers  # pyright: ignore[reportMissingImports]

DTYPES = ("float64", "float32")
KEY = jax.random.key(3)


def distance(ours: Any, fluxs: Any) -> float:
    """Return the largest difference of two trees, relative to the largest number of Flux's."""
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(fluxs), strict=True))
    gap = max((float(np.max(np.abs(a - b), initial=0)) for a, b in pairs), default=0.0)
    largest = max((float(np.max(np.abs(b), initial=0)) for _, b in pairs), default=0.0)
    return gap / largest if gap else 0.0


def errors(source: str, dtype: str) -> tuple[float, float, float]:
    """Compare output, gradient and next state of one layer in training with Flux's."""
    with jax.enable_x64(dtype == "float64"):
        flux = pb.flux(f"Flux.{dtype.replace('loat', '')}({source})")
        theirs, their_state = flux_layers.shaken(flux.init(), np.dtype(dtype))
        layer, ours, our_state = nn.from_flux(flux, theirs, their_state)
        x = flux_layers.layer_input(source, np.dtype(dtype))

        def run(apply: Any, params: Any, state: Any, x: Any) -> Any:
            def loss(params: Any, shift: Any) -> Any:
                moved = x if jnp.issubdtype(x.dtype, jnp.integer) else x + shift
                y, new = apply(params, state, moved, key=KEY, training=True)
                weighted = (jnp.sum(jnp.sin(leaf + 1)) for leaf in jax.tree.leaves(y))
                return sum(weighted), (y, new)

            return jax.grad(loss, argnums=(0, 1), has_aux=True)(params, jnp.zeros(x.shape, dtype))

        here = flux_layers.twin_input(layer, x)
        (gradient, of_x), (y, new) = run(layer.apply, ours, our_state, here)
        (wanted, wanted_of_x), (want, following) = run(flux.apply, theirs, their_state, x)
        # `from_flux` turns Flux's trees, of gradients as of weights, into ours.
        _, wanted, _ = nn.from_flux(flux, wanted, their_state)
        _, _, following = nn.from_flux(flux, theirs, following)
        return (
            distance(y, want),
            distance((gradient, of_x), (wanted, wanted_of_x)),
            distance(new, following),
        )


def row(source: str, name: str) -> str:
    """Write the row of one layer."""
    found = [number for dtype in DTYPES for number in errors(source, dtype)]
    return f"| {name} | `{source}` | " + " | ".join(f"{number:.0e}" for number in found) + " |"


def markdown() -> str:
    """Make the table: a row for each layer that Flux exports, more where options differ."""
    columns = [f"{dtype} {what}" for dtype in DTYPES for what in ("value", "gradient", "state")]
    lines = [f"| layer | example | {' | '.join(columns)} |", "| --- " * (2 + len(columns)) + "|"]
    for name in flux_layers.exported_layers():
        sources = [s for s in flux_layers.LAYERS if s.removeprefix("Flux.").startswith(f"{name}(")]
        if not sources:
            sources = [s for s in flux_layers.LAYERS if flux_layers.made_by(name, s)][:1]
        lines += [row(source, name) for source in sources] or [f"| {name} | no twin |"]
    return "\n".join(lines)
