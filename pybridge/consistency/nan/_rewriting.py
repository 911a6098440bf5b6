"""Write a change into a copy of the user's function and run it: a proposal that was tried."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Callable
from typing import Any

from ...jaxprs import Location


def rewritten(
    f: Callable[..., Any], location: Location | None, old: str, new: str
) -> Callable[..., Any] | None:
    """Return a copy of a function in which one expression is another one.

    Args:
        f: a function that was written in Python; wrappers such as `jax.jit` are looked through.
        location: a line of the expression; it may be in a function inside of `f`.
        old: the expression, as `ast.unparse` writes it.
        new: what stands in its place; it may use the names `pb` and `jnp`.

    Returns:
        The copy; None where the source is not to be found, or the line is not in `f`.
    """
    code = getattr(inspect.unwrap(f), "__code__", None)
    if code is None or location is None or code.co_filename != location.file:
        return None
    try:
        tree = ast.parse("".join(linecache.getlines(location.file)))
        node = _definition(tree, code.co_firstlineno, location.line)
        if node is None:
            return None
        swap = _Swap(old, ast.parse(new, mode="eval").body, location.line)
        changed = swap.visit(node)
        return _compile(changed, inspect.unwrap(f)) if swap.done == 1 else None
    except (SyntaxError, ValueError, NameError):
        return None


class _Swap(ast.NodeTransformer):
    """Replaces an expression on a line."""

    def __init__(self, old: str, new: ast.expr, line: int):
        self.old, self.new, self.line = old, new, line
        self.done = 0

    def visit(self, node: ast.AST) -> Any:
        """Replace the node if it is the one, else go on inside of it."""
        if isinstance(node, ast.expr) and node.lineno <= self.line <= (node.end_lineno or 0):
            if ast.unparse(node) == self.old:
                self.done += 1
                return ast.copy_location(self.new, node)
        return super().generic_visit(node)


def _definition(tree: ast.AST, first: int, line: int) -> ast.FunctionDef | ast.Lambda | None:
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda)
        and first in (node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ())))
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    # Two lambdas on one line cannot be told apart.
    outer = [node for node in found if isinstance(node, ast.FunctionDef)] or found
    return outer[0] if len(outer) == 1 else None


def _compile(node: ast.FunctionDef | ast.Lambda, f: Any) -> Callable[..., Any]:
    import jax.numpy as jnp

    closure = inspect.getclosurevars(f).nonlocals
    names = {"pb": sys.modules["pybridge"], "jnp": jnp, **f.__globals__, **closure}
    if isinstance(node, ast.Lambda):
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "<cure>", "eval")
        return eval(code, names)
    node.decorator_list = []
    module = ast.fix_missing_locations(ast.Module([node], []))
    exec(compile(module, "<cure>", "exec"), names)
    return names[node.name]
