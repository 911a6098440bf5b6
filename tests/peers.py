"""Other packages that results are compared with."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import julia_state
import pytest


def import_torch() -> Any:
    """Import torch or skip; after Julia has started, where there is one.

    In one process juliacall has to come first: the other order can crash.
    """
    if find_spec("torch") is not None:
        julia_state.why_not()
    return pytest.importorskip("torch")
