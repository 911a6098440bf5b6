"""Write a page to a file: as a whole or not at all, and refused before the work for it begins."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..._errors import ArgumentValueError, explain


def writable(path: str | os.PathLike[str], where: str) -> Path:
    """Refuse a path to which no file can be written, before the work for it begins.

    Args:
        path: where the file shall be.
        where: the public name that was called, for the error.

    Returns:
        The path.

    Raises:
        ArgumentValueError: the path is a folder, or its parent is missing or not writable.
    """
    found = Path(path)
    parent = found.parent
    if found.is_dir():
        got, fix = f"the folder {str(found)!r}", "Add a file name."
    elif not parent.is_dir():
        got = f"{str(found)!r}, but there is no folder {str(parent)!r}"
        fix = "Make the folder first."
    elif not os.access(parent, os.W_OK):
        got, fix = f"{str(found)!r}, whose folder is not writable", "Choose another folder."
    else:
        return found
    raise ArgumentValueError(explain(where, expected="the path of a file", got=got, fix=fix))


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)  # mkstemp makes private files
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
