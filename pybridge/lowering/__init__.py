"""JAX programs as Julia functions."""

from ._lower import Lowered as Lowered
from ._lower import lower as lower
