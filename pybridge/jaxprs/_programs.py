"""JAX programs (jaxprs) as data: their equations, the programs inside, parts cut out of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

import jax
from jax import lax
from jax.core import eval_jaxpr
from jax.interpreters import partial_eval as pe

from ._families import CALLS, EXPANDED, RULED_CALLS

# `jax.extend` loads Pallas, which takes longer than all of pybridge's own import: what is
# imported with pybridge takes the names of `jax.extend.core` from here, or in its functions.
if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Primitive
else:
    Primitive = type(lax.add_p)

try:
    from jax.ref import AbstractRef as AbstractRef
except ModuleNotFoundError:
    # The oldest versions of JAX have no refs: nothing is an instance of this.
    AbstractRef = ()

_CALLS = CALLS | RULED_CALLS


def jaxpr_as_fun(program: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Return a jaxpr as a function of its inputs: `jax.extend.core.jaxpr_as_fun`."""
    from jax.extend.core import jaxpr_as_fun

    return jaxpr_as_fun(program)


def register_dead_code_rule(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Set the rule by which equations lose results that nobody uses.

    Args:
        primitive: of the equations.
        rule: from flags, which results are used, and an equation to flags, which operands still
            are, and the equation that is left, or None.

    JAX 0.12 also tells which references are read later, so that writes to the others may go. A
    rule that is not told keeps them.
    """

    def rule_of_any_version(used: list[bool], *reads_and_equation: Any) -> Any:
        return rule(used, reads_and_equation[-1])

    pe.dce_rules[primitive] = rule_of_any_version


def is_literal(atom: Any) -> bool:
    """Tell whether an operand is a number in the program itself, not a variable."""
    from jax.extend.core import Literal

    return isinstance(atom, Literal)


def closed(jaxpr: Any) -> ClosedJaxpr:
    """Close a program that has no constants; one that is closed is returned."""
    from jax.extend.core import ClosedJaxpr

    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def inner_jaxprs(eqn: Any) -> Iterator[ClosedJaxpr]:
    """Yield the programs inside of an equation: of pjit, scan, cond, custom_jvp and the like."""
    from jax.extend.core import ClosedJaxpr, Jaxpr

    if eqn.primitive.name in EXPANDED:
        yield _expanded(eqn.primitive, eqn.params["_prim"])
    for value in eqn.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr):
                yield part
            elif isinstance(part, Jaxpr) and not part.constvars:
                yield ClosedJaxpr(part, ())


def called_program(eqn: Any) -> ClosedJaxpr | None:
    """Return the program that an equation calls with its operands; None where it is no call.

    Functions with a derivative rule of their own are calls: of the program of their value.
    """
    if eqn.primitive.name in EXPANDED:
        return _expanded(eqn.primitive, eqn.params["_prim"])
    if eqn.primitive.name not in _CALLS:
        return None
    return closed(eqn.params[program_parameter(eqn.params)])


def program_parameter(params: Mapping[str, Any]) -> str:
    """Return the name of the parameter in which a call has its program; JAX changes it at times."""
    return next(name for name in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call") if name in params)


def called_name(eqn: Any) -> str:
    """Return the name of the function that an equation calls; empty where that is not known."""
    if eqn.primitive.name in EXPANDED:
        return type(eqn.params["_prim"]).__name__
    program = called_program(eqn)
    return program.jaxpr.debug_info.func_name if program is not None else ""


def _expanded(primitive: Any, function: Any) -> ClosedJaxpr:
    """Return the program of an operation that JAX keeps as a function until it is compiled."""
    # Functions of other types of operands are equal where their settings are.
    types = tuple(function.in_avals_flat), function.in_tree
    try:
        hash(function)
    except TypeError:  # of JAX 0.11, some have lists in them
        return _expand(primitive, function, *types)
    return _expand_once(primitive, function, *types)


def _expand(primitive: Any, function: Any, avals: tuple[Any, ...], _tree: Any) -> ClosedJaxpr:
    @wraps(type(function).expand)  # whose file is that of the program
    def expand(*operands: Any) -> Any:
        return primitive.to_lojax(*operands, _prim=function)

    return jax.make_jaxpr(expand)(*avals)


_expand_once = lru_cache(256)(_expand)


def equations(program: ClosedJaxpr) -> Iterator[Any]:
    """Yield all equations of a program, those of inner programs included."""
    for eqn in program.jaxpr.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations(inner)


def contains(program: ClosedJaxpr, names: Collection[str]) -> bool:
    """Tell whether a primitive of one of these names is anywhere in a program."""
    return any(eqn.primitive.name in names for eqn in equations(program))


def closed_over(eqn: Any) -> int:
    """Count the first operands of a function with a custom rule that are not its arguments.

    They are what the function closes over. Its rule has no derivative by them.
    """
    return eqn.params.get("num_consts", 0) if eqn.primitive.name in RULED_CALLS else 0


def scan_sizes(params: Mapping[str, Any]) -> tuple[int, int]:
    """Count the operands of a scan that are the same in every step, and those that it carries."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # From JAX 0.12 on, a tree: the operands of each kind.
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def evaluate_equation(program: ClosedJaxpr, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """Evaluate one equation of a program.

    Args:
        program: that it stands in.
        eqn: the equation.
        operands: a value for each of its inputs.

    Returns:
        A value for each of its outputs.
    """
    pairs = zip(eqn.invars, operands, strict=True)
    given = {atom: value for atom, value in pairs if not is_literal(atom)}
    fields = {"invars": [], "outvars": eqn.outvars, "eqns": [eqn], "effects": eqn.effects}
    single = program.jaxpr.replace(constvars=[*given], **fields)
    return eval_jaxpr(single, [*given.values()])


def bound_equation(eqn: Any) -> Callable[..., list[Any]]:
    """Return an equation as a function of all of its operands, literals included."""
    # Older versions of JAX pass the functions of a custom rule apart.
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple | list) else ((), bound)

    def operation(*values: Any) -> list[Any]:
        outs = eqn.primitive.bind(*functions, *values, **params)
        return list(outs) if eqn.primitive.multiple_results else [outs]

    return operation


def cut_program(
    program: ClosedJaxpr, eqns: list[Any], invars: list[Any], outvars: list[Any]
) -> ClosedJaxpr:
    """Make a program of some equations of another one.

    Args:
        program: the other one.
        eqns: its equations to keep.
        invars: the variables that become the inputs.
        outvars: those that become the outputs.
    """
    info = program.jaxpr.debug_info._replace(
        arg_names=("",) * len(invars), result_paths=("",) * len(outvars)
    )
    return closed(
        program.jaxpr.replace(
            constvars=[], invars=invars, outvars=outvars, eqns=eqns, debug_info=info
        )
    )


def last_uses(jaxpr: Any) -> dict[Any, int]:
    """Find the last equation that reads each variable; the results are read at the end."""
    uses = {
        atom: position
        for position, eqn in enumerate(jaxpr.eqns)
        for atom in eqn.invars
        if not is_literal(atom)
    }
    uses.update({atom: len(jaxpr.eqns) for atom in jaxpr.outvars if not is_literal(atom)})
    return uses


def substitute(program: ClosedJaxpr, name: str, primitive: Any) -> ClosedJaxpr:
    """Put another primitive, of the same types, in the place of one, everywhere."""
    from jax.extend.core import ClosedJaxpr, Jaxpr
    from jax.extend.core.primitives import closed_call_p

    def substituted(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return substitute(value, name, primitive)
        if isinstance(value, Jaxpr):
            return substitute(ClosedJaxpr(value, ()), name, primitive).jaxpr
        return type(value)(map(substituted, value)) if type(value) in (tuple, list) else value

    def replaced(eqn: Any) -> Any:
        if eqn.primitive.name == name:
            return eqn.replace(primitive=primitive)
        if not any(True for _ in inner_jaxprs(eqn)):
            return eqn
        if eqn.primitive.name in EXPANDED:
            inner = substitute(_expanded(eqn.primitive, eqn.params["_prim"]), name, primitive)
            return eqn.replace(primitive=closed_call_p, params={"call_jaxpr": inner})
        return eqn.replace(params={key: substituted(value) for key, value in eqn.params.items()})

    jaxpr = program.jaxpr.replace(eqns=[replaced(eqn) for eqn in program.jaxpr.eqns])
    return ClosedJaxpr(jaxpr, program.consts)
