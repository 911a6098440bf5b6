"""How data finds who writes it.

Findings and results know nothing of their rendering: the package `report` stands above them and
registers here what it makes of each type.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

Renderer = TypeVar("Renderer", bound=Callable[..., Any])

_RENDERERS: dict[tuple[type, str], Callable[..., Any]] = {}


def renders(kind: type, form: str) -> Callable[[Renderer], Renderer]:
    """Let a function write data of a type in a form: `"terminal"`, `"html"`, `"json"`, ..."""

    def register(renderer: Renderer) -> Renderer:
        _RENDERERS[kind, form] = renderer
        return renderer

    return register


def render(data: Any, form: str, *args: Any, **options: Any) -> Any:
    """Write data in a form."""
    return _RENDERERS[type(data), form](data, *args, **options)


class Rendered:
    """What is found; it can be written in four ways."""

    @property
    def ok(self) -> bool:
        """Whether no answer is wrong."""
        raise NotImplementedError

    @property
    def absent(self) -> bool:
        """Whether a system is absent that was asked."""
        raise NotImplementedError

    def print(self, console: Console, *, verbose: bool = False) -> None:
        """Print tables and explanations on a terminal.

        Args:
            console: a rich console.
            verbose: everything that is known, the sources of programs as well.
        """
        for part in render(self, "terminal", console.width, verbose=verbose):
            console.print(part, highlight=False)

    def to_json(self) -> str:
        """Write all of it as a JSON object."""
        return render(self, "json")

    def to_markdown(self) -> str:
        """Write table and explanations as Markdown without headings."""
        return render(self, "markdown")

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a page that explains itself.

        The page needs no other file and loads nothing. A file of that name is replaced, as a
        whole or not at all.

        Args:
            path: where; the folder has to be there.

        Returns:
            The path.

        Raises:
            ArgumentValueError: at once, if no file can be written there.
        """
        return render(self, "page", path)
