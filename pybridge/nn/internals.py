"""What other packages here need of layers, besides the public names of `pybridge.nn`."""

from ._geometry import Window as Window
from ._layer import check_trees as check_trees
from ._mode import resolve_training as resolve_training
from ._tied import Path as Path
from ._tied import at as at
from ._tied import placed as placed
from ._tied import without as without
