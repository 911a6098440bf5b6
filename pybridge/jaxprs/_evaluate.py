"""One evaluator of JAX programs, with hooks: equation by equation, into calls, branches, loops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._families import BRANCHES, FOLLOWED, SOLVERS
from ._programs import called_program, evaluate_equation, is_literal, scan_sizes

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

Value = TypeVar("Value")
Around = TypeVar("Around")


class Evaluator(Generic[Value, Around]):
    """Runs programs on values of any kind: arrays, tracers, or places on a tape.

    As it stands it evaluates on arrays and tracers, without what needs concrete numbers: loops and
    branches. A subclass that can `decide` enters those too.

    Attributes:
        enters: the primitives whose inner programs are run equation by equation; the others are
            applied as they are.
    """

    enters: frozenset[str] = FOLLOWED

    # --- hooks ----------------------------------------------------------------------------------

    def constant(self, value: Any) -> Value:
        """Make a value of a constant of a program."""
        return value

    def literal(self, atom: Any) -> Value:
        """Make a value of a literal operand."""
        return self.constant(atom.val)

    def at(self, eqn: Any, around: Around) -> Around:
        """Say what an equation stands in, from what its program stands in."""
        return around

    def inside(self, program: ClosedJaxpr, around: Around) -> Around:
        """Say what stands around a program that is called here."""
        return around

    def deeper(self, around: Around, part: str, what: str) -> Around:
        """Say what stands around one branch or iteration."""
        return around

    def apply(
        self, program: ClosedJaxpr, eqn: Any, operands: list[Value], here: Around
    ) -> list[Value]:
        """Apply a primitive as it is."""
        return evaluate_equation(program, eqn, operands)

    def decide(self, value: Value) -> int | None:
        """Return the number that a predicate or an index is; None where it is not a single one."""
        return None

    def rows(self, stack: Value, length: int, here: Around) -> Sequence[Value]:
        """Cut what a scan runs over into one value for each iteration."""
        raise NotImplementedError

    def stack(self, rows: Sequence[Value], here: Around) -> Value:
        """Join what the iterations of a scan give."""
        raise NotImplementedError

    def goes_on(self, eqn: Any, iterations: int) -> bool:
        """Tell whether a loop may run for another iteration; for a scan, for so many."""
        return True

    # --- evaluation -----------------------------------------------------------------------------

    def run(self, program: ClosedJaxpr, args: Sequence[Value], around: Around) -> list[Value]:
        """Run a program.

        Args:
            program: the program.
            args: its arguments.
            around: what stands around it.

        Returns:
            Its results.
        """
        jaxpr = program.jaxpr
        values = dict(zip(jaxpr.constvars, map(self.constant, program.consts), strict=True))
        values.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Value:
            return self.literal(atom) if is_literal(atom) else values[atom]

        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            outs = self.equation(program, eqn, operands, self.at(eqn, around))
            values.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(
        self, program: ClosedJaxpr, eqn: Any, operands: list[Value], here: Around
    ) -> list[Value]:
        """Evaluate an equation: enter its programs, or apply its primitive."""
        outs = self.enter(eqn, operands, here) if eqn.primitive.name in self.enters else None
        return self.apply(program, eqn, operands, here) if outs is None else outs

    def enter(self, eqn: Any, operands: list[Value], here: Around) -> list[Value] | None:
        """Run the programs inside of an equation; None where they cannot be run by steps."""
        name = eqn.primitive.name
        if name in BRANCHES:
            return self.branch(eqn, operands, here)
        if name == "scan":
            return self.scan(eqn, operands, here)
        if name == "while":
            return self.while_loop(eqn, operands, here)
        if name in SOLVERS:
            return self.solve(eqn, operands, here)
        called = called_program(eqn)
        return None if called is None else self.open(called, operands, here)

    def open(self, program: ClosedJaxpr, args: Sequence[Value], here: Around) -> list[Value]:
        """Run a program that is called here."""
        return self.run(program, args, self.inside(program, here))

    def branch(self, eqn: Any, operands: list[Value], here: Around) -> list[Value] | None:
        """Run the branch that is taken."""
        branches, index = eqn.params["branches"], self.decide(operands[0])
        if index is None:
            return None
        index = max(0, min(index, len(branches) - 1))
        taken = self.deeper(here, f"branch {index}", "cond")
        return self.open(branches[index], operands[1:], taken)

    def scan(self, eqn: Any, operands: list[Value], here: Around) -> list[Value] | None:
        """Run a scan iteration by iteration."""
        params, length = eqn.params, eqn.params["length"]
        if not length or not self.goes_on(eqn, length):
            return None
        consts, carries = scan_sizes(params)
        fixed, carry = operands[:consts], operands[consts : consts + carries]
        columns = [self.rows(stack, length, here) for stack in operands[consts + carries :]]
        results: list[Any] = [None] * length
        for i in range(length)[::-1] if params["reverse"] else range(length):
            iteration = self.deeper(here, f"iteration {i}", "scan")
            xs = [column[i] for column in columns]
            outs = self.open(params["jaxpr"], [*fixed, *carry, *xs], iteration)
            carry, results[i] = outs[:carries], outs[carries:]
        return [*carry, *(self.stack(column, here) for column in zip(*results, strict=True))]

    def while_loop(self, eqn: Any, operands: list[Value], here: Around) -> list[Value] | None:
        """Run a while loop iteration by iteration."""
        params = eqn.params
        asked = params["cond_nconsts"]
        fixed = asked + params["body_nconsts"]
        carry = operands[fixed:]
        for i in count():
            iteration = self.deeper(here, f"iteration {i}", "while loop")
            test = self.test(params["cond_jaxpr"], [*operands[:asked], *carry], iteration)
            going = self.decide(test)
            if going is None:
                return None
            if not going:
                return carry
            if not self.goes_on(eqn, i):
                return None
            carry = self.open(params["body_jaxpr"], [*operands[asked:fixed], *carry], iteration)
        return None

    def test(self, program: ClosedJaxpr, args: Sequence[Value], here: Around) -> Value:
        """Run the condition of a while loop."""
        return self.open(program, args, here)[0]

    def solve(self, eqn: Any, operands: list[Value], here: Around) -> list[Value]:
        """Run the program that solves a linear system."""
        lengths = eqn.params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        total = first + lengths.solve + lengths.transpose_solve
        args = [*operands[first : first + lengths.solve], *operands[total:]]
        return self.open(eqn.params["jaxprs"].solve, args, here)
