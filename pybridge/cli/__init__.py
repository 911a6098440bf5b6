"""The `pybridge` command: check, doctor, provision."""

from ._main import main as main
