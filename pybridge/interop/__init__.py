"""Julia functions as Python functions, and JAX functions as Julia functions."""

from ._from_julia import JuliaFunction as JuliaFunction
from ._from_julia import from_julia as from_julia
from ._to_julia import to_julia as to_julia
