"""Layers in JAX with the numbers of Flux: explicit parameters and state, no hidden mode."""

from ._layer import Layer as Layer
from ._mode import Mode as Mode
from ._mode import ModeWarning as ModeWarning
