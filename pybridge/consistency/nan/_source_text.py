"""What the user's line says: the text of an operation, of its operand, of the `where`.

Everything here reads the source as it is written and answers None where it is not sure: a
proposal in the user's own words must be one that can be pasted.
"""

from __future__ import annotations

import ast
import copy
import functools
import linecache
import re
from dataclasses import dataclass
from typing import TypeGuard

from ...jaxprs import Location

_OPERATORS: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "div": ast.Div,
    "dot_general": ast.MatMult,
    "integer_pow": ast.Pow,
    "mul": ast.Mult,
    "pow": ast.Pow,
    "rem": ast.Mod,
    "sqrt": ast.Pow,
    "square": ast.Pow,
    "sub": ast.Sub,
}
# Where the function that users write has another name than JAX's operation.
_FUNCTIONS = {
    "acos": ("arccos", "acos"),
    "acosh": ("arccosh", "acosh"),
    "asin": ("arcsin", "asin"),
    "atan": ("arctan", "atan"),
    "atan2": ("arctan2", "atan2"),
    "atanh": ("arctanh", "atanh"),
    "div": ("divide", "true_divide", "div"),
    "integer_pow": ("power", "pow", "integer_pow"),
    "mul": ("multiply", "mul"),
    "pow": ("power", "pow", "float_power"),
    "sub": ("subtract", "sub"),
}


@dataclass(frozen=True)
class Choice:
    """A `where`, `select` or mask in the user's source.

    Attributes:
        node: all of it.
        keep: the condition under which the dangerous part is used.
        part: the dangerous part.
        other: what is used elsewhere; None for a mask.
        condition: the condition as it is written; empty for a mask.
        flipped: whether the dangerous part is used where the condition is False.
    """

    node: ast.expr
    keep: str
    part: ast.expr
    other: ast.expr | None = None
    condition: str = ""
    flipped: bool = False

    @property
    def text(self) -> str:
        """All of it, as it is written."""
        return ast.unparse(self.node)

    @property
    def names(self) -> set[str]:
        """The variables of the condition."""
        return set(names_in(ast.parse(self.keep, mode="eval").body))

    def holds(self, location: Location | None) -> bool:
        """Tell whether a location is inside of the dangerous part."""
        if location is None or location.span is None:
            return location is not None and _reaches_over(self.part, location.line)
        first, last = _span(self.part)[:2], _span(self.part)[2:]
        return first <= location.span[:2] and location.span[2:] <= last


def operation_text(location: Location | None, primitive: str, operand: int = 0) -> tuple[str, str]:
    """Return how the user wrote an operation and one of its operands; empty if not sure."""
    node = _operation_node(location, primitive)
    if node is None:
        return "", ""
    operands = [node.left, node.right] if isinstance(node, ast.BinOp) else node.args
    return ast.unparse(node), ast.unparse(operands[operand]) if operand < len(operands) else ""


def operation_with(location: Location | None, primitive: str, operand: int, text: str) -> str:
    """Return how the user wrote an operation, with another operand; empty if not sure."""
    node = copy.deepcopy(_operation_node(location, primitive))
    if isinstance(node, ast.BinOp) and operand < 2:
        setattr(node, ("left", "right")[operand], ast.parse(text, mode="eval").body)
    elif isinstance(node, ast.Call) and operand < len(node.args):
        node.args[operand] = ast.parse(text, mode="eval").body
    else:
        return ""
    return ast.unparse(node)


def fresh_name(location: Location | None, *names: str) -> str:
    """Choose the first of some names that the user's file does not use; else one with a line."""
    lines = linecache.getlines(location.file) if location is not None else []
    used = set(re.findall(r"[^\W\d]\w*", "".join(lines)))
    return next((name for name in names if name not in used), f"{names[-1]}_")


def choice_at(location: Location | None, primitive: str, operand: int) -> Choice | None:
    """Find the `where`, the boolean index or the factor that an operation of JAX stands for.

    Args:
        location: the line.
        primitive: `"select_n"`, `"gather"` or `"mul"`; others give None.
        operand: which of the operation's inputs is dropped.
    """
    choices = [_choice(node, primitive, operand) for node in _nodes_at(location)]
    choices = [choice for choice in choices if choice is not None]
    return choices[0] if len(choices) == 1 else None


def _choice(node: ast.expr, primitive: str, operand: int) -> Choice | None:
    match primitive, node:
        case "select_n", ast.Call(args=[condition, taken, otherwise]):
            if _name(node.func) not in ("where", "select") or operand not in (1, 2):
                return None
            if isinstance(condition, ast.List | ast.Tuple):
                return None  # jnp.select has a condition for each of several values
            # JAX's operation has the value for False first.
            written = ast.unparse(condition)
            if operand == 2:
                return Choice(node, written, taken, otherwise, written)
            return Choice(node, _negated(condition), otherwise, taken, written, flipped=True)
        case "gather", ast.Subscript(value=value, slice=ast.Compare() as mask):
            return Choice(node, ast.unparse(mask), value)
        case "mul", ast.BinOp(left=left, op=ast.Mult(), right=right):
            part, factor = (left, right) if operand == 0 else (right, left)
            return Choice(node, _as_condition(factor), part)
    return None


def branch_text(expression: ast.expr, names: list[str]) -> str:
    """Write an expression as a function of names: `jnp.log`, `lambda x: x * jnp.log(x)`."""
    if isinstance(expression, ast.Call) and not expression.keywords:
        if [ast.unparse(arg) for arg in expression.args] == names:
            return ast.unparse(expression.func)
    if isinstance(expression, ast.Constant) and len(names) == 1:
        if expression.value == 0:
            return "jnp.zeros_like"
        return f"lambda {names[0]}: jnp.full_like({names[0]}, {expression.value!r})"
    return f"lambda {', '.join(names)}: {ast.unparse(expression)}"


def names_in(expression: ast.expr) -> list[str]:
    """List the variables of an expression, in order, without functions and modules."""
    skipped = set()
    for node in ast.walk(expression):
        if isinstance(node, ast.Call):
            skipped |= {id(part) for part in ast.walk(node.func)}
        if isinstance(node, ast.Attribute):
            skipped.add(id(node.value))
    names = [n for n in ast.walk(expression) if isinstance(n, ast.Name) and id(n) not in skipped]
    names.sort(key=lambda name: (name.lineno, name.col_offset))
    return list(dict.fromkeys(name.id for name in names))


def _as_condition(expression: ast.expr) -> str:
    text = ast.unparse(expression)
    if isinstance(expression, ast.Compare):
        return text
    simple = isinstance(expression, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
    return f"{text} != 0" if simple else f"({text}) != 0"


def _negated(expression: ast.expr) -> str:
    text = ast.unparse(expression)
    opposite = {ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq()}
    if isinstance(expression, ast.Compare) and len(expression.ops) == 1:
        op = opposite.get(type(expression.ops[0]))
        if op is not None:
            return ast.unparse(ast.Compare(expression.left, [op], expression.comparators))
    simple = isinstance(expression, ast.Name | ast.Call | ast.Attribute)
    return f"~{text}" if simple else f"~({text})"


def _operation_node(location: Location | None, primitive: str) -> ast.BinOp | ast.Call | None:
    nodes = [node for node in _nodes_at(location) if _is_operation(node, primitive)]
    # `jnp.sqrt(x**2)` has one square root, although `x**0.5` would be one as well.
    nodes = [node for node in nodes if isinstance(node, ast.Call)] or nodes
    return nodes[0] if len({ast.unparse(node) for node in nodes}) == 1 else None


def _is_operation(node: ast.expr, primitive: str) -> TypeGuard[ast.BinOp | ast.Call]:
    if isinstance(node, ast.BinOp):
        return type(node.op) is _OPERATORS.get(primitive)
    names = _FUNCTIONS.get(primitive, (primitive,))
    return isinstance(node, ast.Call) and _name(node.func) in names


def _name(function: ast.expr) -> str:
    """Return `where` for `jnp.where` and `where`."""
    return getattr(function, "attr", getattr(function, "id", ""))


def assigned_at(location: Location | None) -> set[str]:
    """Name the variables that a line assigns."""
    targets = (node for node in _nodes_on(location) if isinstance(node, ast.Name))
    return {name.id for name in targets if isinstance(name.ctx, ast.Store)}


def _nodes_at(location: Location | None) -> list[ast.expr]:
    """List the expressions at a location: the one that was run, or all that reach over the line."""
    nodes = _nodes_on(location)
    run = [node for node in nodes if location is not None and _span(node) == location.span]
    return run or nodes


def _span(node: ast.expr) -> tuple[int, int, int, int]:
    """Give the place of an expression as `Location.span` does."""
    return (
        node.lineno,
        node.col_offset,
        node.end_lineno or node.lineno,
        node.end_col_offset or node.col_offset,
    )


def _nodes_on(location: Location | None) -> list[ast.expr]:
    if location is None:
        return []
    nodes = _expressions("".join(linecache.getlines(location.file)))
    return [node for node in nodes if _reaches_over(node, location.line)]


# One explanation asks for many lines of the same few files.
@functools.lru_cache(maxsize=8)
def _expressions(source: str) -> list[ast.expr]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.expr)]


def _reaches_over(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
