"""What the user's line says: the text of an operation, of its operand, of the `where`.

Everything here reads the source as it is written and answers None where it is not sure: a
proposal in the user's own words must be one that can be pasted.
"""

from __future__ import annotations

import ast
import copy
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass

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
        text: all of it.
        keep: the condition under which the dangerous part is used.
        part: the dangerous part.
        other: what is used elsewhere; empty for a mask.
        lines: the first and the last line of the dangerous part.
        condition: the condition as it is written; empty for a mask.
        flipped: whether the dangerous part is used where the condition is False.
    """

    text: str
    keep: str
    part: ast.expr
    other: ast.expr | None
    condition: str = ""
    flipped: bool = False

    def holds(self, location: Location | None) -> bool:
        """Tell whether a line is inside of the dangerous part."""
        last = self.part.end_lineno or self.part.lineno
        return location is not None and self.part.lineno <= location.line <= last


def operation_text(location: Location | None, primitive: str, operand: int = 0) -> tuple[str, str]:
    """Return how the user wrote an operation and one of its operands; empty if not sure."""
    node = _operation_node(location, primitive)
    operands = _operands(node)
    if node is None:
        return "", ""
    return ast.unparse(node), ast.unparse(operands[operand]) if operand < len(operands) else ""


def operation_with(location: Location | None, primitive: str, operand: int, text: str) -> str:
    """Return how the user wrote an operation, with another operand; empty if not sure."""
    node = copy.deepcopy(_operation_node(location, primitive))
    if node is None or operand >= len(_operands(node)):
        return ""
    new = ast.parse(text, mode="eval").body
    if isinstance(node, ast.Call):
        node.args[operand] = new
    elif isinstance(node, ast.BinOp):
        setattr(node, ("left", "right")[operand], new)
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
    found = {
        "select_n": _where_calls,
        "gather": _boolean_indices,
        "mul": _factors,
    }.get(primitive, _nothing)(location, operand)
    return found[0] if len(found) == 1 else None


def branch_text(expression: ast.expr, names: list[str]) -> str:
    """Write an expression as a function of names: `jnp.log`, `lambda x: x * jnp.log(x)`."""
    if isinstance(expression, ast.Call) and not expression.keywords:
        if [ast.unparse(arg) for arg in expression.args] == names:
            return ast.unparse(expression.func)
    if isinstance(expression, ast.Constant) and len(names) == 1:
        zero = expression.value == 0
        return (
            "jnp.zeros_like"
            if zero
            else f"lambda {names[0]}: jnp.full_like({names[0]}, {expression.value!r})"
        )
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


def _where_calls(location: Location | None, operand: int) -> list[Choice]:
    calls = []
    for node in _nodes_at(location):
        if isinstance(node, ast.Call) and _name(node.func) in ("where", "select"):
            if len(node.args) == 3 and operand in (1, 2):
                condition, taken, otherwise = node.args
                text = ast.unparse(condition)
                # JAX's operation has the value for False first.
                part, other = (taken, otherwise) if operand == 2 else (otherwise, taken)
                keep = text if operand == 2 else _negated(condition)
                calls.append(Choice(ast.unparse(node), keep, part, other, text, operand == 1))
    return calls


def _boolean_indices(location: Location | None, operand: int) -> list[Choice]:
    return [
        Choice(ast.unparse(node), ast.unparse(node.slice), node.value, None)
        for node in _nodes_at(location)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Compare)
    ]


def _factors(location: Location | None, operand: int) -> list[Choice]:
    return [
        Choice(
            ast.unparse(node),
            _as_condition((node.right, node.left)[operand]),
            (node.left, node.right)[operand],
            None,
        )
        for node in _nodes_at(location)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    ]


def _nothing(location: Location | None, operand: int) -> list[Choice]:
    return []


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


def _operation_node(location: Location | None, primitive: str) -> ast.expr | None:
    nodes = [node for node in _nodes_at(location) if _is_operation(node, primitive)]
    # `jnp.sqrt(x**2)` has one square root, although `x**0.5` would be one as well.
    nodes = [node for node in nodes if isinstance(node, ast.Call)] or nodes
    return nodes[0] if len({ast.unparse(node) for node in nodes}) == 1 else None


def _operands(node: ast.expr | None) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    return node.args if isinstance(node, ast.Call) else []


def _is_operation(node: ast.AST, primitive: str) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) is _OPERATORS.get(primitive)
    if isinstance(node, ast.Call):
        return _name(node.func) in _FUNCTIONS.get(primitive, (primitive,))
    return False


def _name(function: ast.expr) -> str:
    """Return `where` for `jnp.where` and `where`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _nodes_at(location: Location | None) -> Iterator[ast.expr]:
    """Yield the expressions that reach over a line."""
    if location is None:
        return
    try:
        tree = ast.parse("".join(linecache.getlines(location.file)))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.lineno <= location.line <= (node.end_lineno or 0):
            yield node
