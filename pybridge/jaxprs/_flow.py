"""Forward data flow: what follows for every value of a program from what holds for its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._families import BRANCHES, FOLLOWED
from ._programs import called_program, is_literal, scan_sizes

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

Fact = TypeVar("Fact")


class Flow(Generic[Fact]):
    """A forward data-flow analysis; a subclass says what its facts are and how they combine.

    Calls, branches and loops are entered. What holds for the carry of a loop is the fixed point:
    `join` has to be monotone, and to reach one.

    Attributes:
        enters: the primitives whose programs are followed; the others go to `through`.
    """

    enters: frozenset[str] = FOLLOWED

    def constant(self, atom: Any) -> Fact:
        """Say what holds for a literal or a constant of the program."""
        raise NotImplementedError

    def join(self, first: Fact, second: Fact) -> Fact:
        """Combine what holds on two ways to the same value."""
        raise NotImplementedError

    def through(self, eqn: Any, facts: list[Fact]) -> Sequence[Fact]:
        """Say what holds for the results of a primitive that is not entered."""
        raise NotImplementedError

    def kept(self, var: Any, fact: Fact) -> Fact:
        """Adapt what holds for a result to the variable that it is bound to."""
        return fact

    def chosen(self, eqn: Any, index: Fact, facts: list[Fact]) -> Sequence[Fact]:
        """Adapt what holds for the results of branches to the choice between them."""
        return facts

    def enter(self, eqn: Any, program: ClosedJaxpr, facts: Sequence[Fact]) -> list[Fact]:
        """Follow a program inside of an equation."""
        return self.run(program, facts)

    def facts(self, program: ClosedJaxpr, inputs: Sequence[Fact]) -> dict[Any, Fact]:
        """Find what holds for each variable of a program."""
        jaxpr = program.jaxpr
        known = {var: self.constant(var) for var in jaxpr.constvars}
        known.update(zip(jaxpr.invars, inputs, strict=True))
        for eqn in jaxpr.eqns:
            results = self.results(eqn, [self._read(known, atom) for atom in eqn.invars])
            for var, fact in zip(eqn.outvars, results, strict=True):
                known[var] = self.kept(var, fact)
        return known

    def run(self, program: ClosedJaxpr, inputs: Sequence[Fact]) -> list[Fact]:
        """Find what holds for the results of a program."""
        known = self.facts(program, inputs)
        return [self._read(known, atom) for atom in program.jaxpr.outvars]

    def _read(self, known: dict[Any, Fact], atom: Any) -> Fact:
        return self.constant(atom) if is_literal(atom) else known[atom]

    def results(self, eqn: Any, facts: list[Fact]) -> Sequence[Fact]:
        """Find what holds for the results of an equation."""
        name, params = eqn.primitive.name, eqn.params
        if name not in self.enters:
            return self.through(eqn, facts)
        inside = self.entering(eqn, facts)
        if name in BRANCHES:
            each = [self.enter(eqn, branch, inside) for branch in params["branches"]]
            joined = [reduce(self.join, column) for column in zip(*each, strict=True)]
            return self.chosen(eqn, facts[0], joined)
        if name == "while":
            asked = params["cond_nconsts"]
            carry = inside[params["body_nconsts"] :]
            self.enter(eqn, params["cond_jaxpr"], [*facts[:asked], *carry])
            after = self.enter(eqn, params["body_jaxpr"], inside)
            start = facts[asked + params["body_nconsts"] :]  # the loop may not run at all
            return list(map(self.join, start, after))
        program = params["jaxpr"] if name == "scan" else called_program(eqn)
        assert program is not None
        return self.enter(eqn, program, inside)

    def entering(self, eqn: Any, facts: Sequence[Fact]) -> list[Fact]:
        """Find what holds for the inputs of an equation's inner program: of a loop, its body."""
        name, params = eqn.primitive.name, eqn.params
        if name in BRANCHES:
            return list(facts[1:])
        if name == "scan":
            return self._fixed_point(eqn, params["jaxpr"], facts, *scan_sizes(params))
        if name == "while":
            inside = facts[params["cond_nconsts"] :]
            consts = params["body_nconsts"]
            return self._fixed_point(
                eqn, params["body_jaxpr"], inside, consts, len(inside) - consts
            )
        return list(facts)

    def _fixed_point(
        self, eqn: Any, body: ClosedJaxpr, facts: Sequence[Fact], consts: int, carries: int
    ) -> list[Fact]:
        """What holds for a carry after some iteration holds, in effect, from the start."""
        now = list(facts)
        while True:
            after = self.enter(eqn, body, now)[:carries]
            carry = map(self.join, now[consts : consts + carries], after)
            wider = [*now[:consts], *carry, *now[consts + carries :]]
            if wider == now:
                return now
            now = wider
