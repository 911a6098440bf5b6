"""What the HTML reports share: the frame, the style sheets, and how they are written."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from ..._errors import ArgumentValueError, explain
from .._wording import join
from ._vocabulary import Status


def page(title: str, body: str, styles: Sequence[str] = ("report.css",)) -> str:
    """Write a page that loads nothing.

    Args:
        title: plain text.
        body: HTML.
        styles: the names of style sheets beside this file.
    """
    folder = resources.files("pybridge.consistency.report")
    css = "".join(folder.joinpath(name).read_text("utf-8") for name in styles)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>{escape(title)}</title>
<style>
{css}</style>
</head>
<body>
{body}
</body>
</html>
"""


def prose(text: str) -> str:
    """Escape text, with code in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def mark_html(status: Status) -> str:
    """Write the symbol of a status in its colour."""
    return f'<span class="mark {status.look}">{status.symbol}</span>'


def legend_html(statuses: Iterable[Status]) -> str:
    """Say what symbols mean."""
    items = "".join(f"<li>{mark_html(status)} {status.meaning}</li>" for status in statuses)
    return f'<ul class="legend">{items}</ul>'


def heat_map_html(
    look: str, columns: Sequence[str], groups: Iterable[tuple[str, Iterable[tuple[str, str]]]]
) -> str:
    """Write a table of systems, whose rows stand in groups.

    Args:
        look: classes of the style sheet.
        columns: the heads, HTML.
        groups: headings, each with its rows: a label and cells by `heat_cell_html`, HTML.
    """
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    lines = []
    for heading, rows in groups:
        lines.append(
            f'<tr class="group"><th scope="colgroup" colspan="{len(columns) + 1}">'
            f"<span>{heading}</span></th></tr>"
        )
        lines += [f'<tr><th scope="row">{label}</th>{cells}</tr>' for label, cells in rows]
    body = "\n".join(lines)
    return (
        f'<div class="scroll"><table class="{look}">\n<thead><tr><td></td>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def heat_cell_html(look: str, text: str, hints: Iterable[str]) -> str:
    """Write a cell: its colour, HTML, and plain text that is shown beside the pointer."""
    return f'<td class="{look}" title="{escape(chr(10).join(filter(None, hints)))}">{text}</td>'


def reasons_html(absences: Iterable[tuple[list[str], str]]) -> list[str]:
    """Write why systems are absent, to be opened."""
    return [
        f"<details><summary>{escape(join(names))} {'is' if len(names) == 1 else 'are'} "
        f"absent: why, and what to do</summary><pre>{escape(reason)}</pre></details>"
        for names, reason in absences
    ]


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
