"""Julia functions as Python functions, and JAX functions as Julia functions."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._later import imported_later as _imported_later
from ._from_julia import check_packages as check_packages
from ._from_julia import from_julia as from_julia
from ._julia_function import JuliaFunction as JuliaFunction
from ._to_julia import to_julia as to_julia

if _TYPE_CHECKING:
    from ._observation import Sighting as Sighting
    from ._observation import observe as observe
    from .julia_derivatives import representations as representations

# They load what speaks to Julia.
__getattr__, __dir__ = _imported_later(
    __name__,
    {
        "._observation": ("Sighting", "observe"),
        ".julia_derivatives": ("representations",),
    },
)
