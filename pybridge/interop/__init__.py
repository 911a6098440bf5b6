"""Julia functions as Python functions."""

from ._from_julia import JuliaFunction as JuliaFunction
from ._from_julia import from_julia as from_julia
