"""Flux models in JAX, and layers of `pybridge.nn` in Flux."""

from ._flux_model import FluxModel as FluxModel
from ._flux_model import flux as flux
from ._from_flux import from_flux as from_flux
from ._from_flux import to_flux as to_flux
from ._registry import register_flux as register_flux
