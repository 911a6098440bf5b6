"""The toolkit for JAX programs: families of primitives, data flow, the evaluator."""

import ast
import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pybridge import jaxprs

# What the sources of JAX call the parameters that hold programs.
_PROGRAM = re.compile(r"(.*_)?jaxprs?(_.*)?|branches|call|callee")

# Parsing all of JAX takes seconds: its files are parsed in parts, and only where a primitive is
# made or bound.
_BETWEEN_PARTS = re.compile(r"\n\n+(?=[\w@])")
_PRIMITIVE = re.compile(r"_p[\s)\\]*(=|\.[\s\\]*bind)")


def _trees(text: str) -> list[ast.Module]:
    """Parse the parts of a file that make or bind a primitive."""
    try:
        return [ast.parse(p) for p in _BETWEEN_PARTS.split(text) if _PRIMITIVE.search(p)]
    except SyntaxError:  # a part ended within a string, or before an `else`
        return [ast.parse(text)]


def _primitives_with_programs() -> dict[str, set[str]]:
    """Find, in JAX's sources, which primitives are bound with programs as parameters."""
    names: dict[str, str] = {}
    found: dict[str, set[str]] = {}
    for file in Path(jax.__file__).parent.rglob("*.py"):
        trees = _trees(file.read_text(encoding="utf-8"))
        for node in itertools.chain.from_iterable(map(ast.walk, trees)):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                texts = [a.value for a in node.value.args if isinstance(a, ast.Constant)]
                target = node.targets[0]
                if isinstance(target, ast.Name) and target.id.endswith("_p") and texts:
                    names[target.id] = str(texts[0])
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                name = getattr(owner, "id", None) or getattr(owner, "attr", "")
                if node.func.attr.startswith("bind") and name.endswith("_p"):
                    programs = {k.arg for k in node.keywords if k.arg and _PROGRAM.fullmatch(k.arg)}
                    if programs:
                        found.setdefault(name, set()).update(programs)
    return {names.get(name, name.removesuffix("_p")): found[name] for name in found}


def test_every_primitive_with_a_program_is_in_a_family():
    known = {*jaxprs.FOLLOWED, *jaxprs.SOLVERS, *jaxprs.OTHER_PROGRAMS}
    found = _primitives_with_programs()
    assert {"jit", "scan", "while", "cond"} <= set(found)  # the search finds what it should
    missing = set(found) - known
    assert not missing, f"put {missing} into pybridge/jaxprs/_families.py"


@jax.custom_jvp
def _ruled(x):
    return jnp.sin(x)


_ruled.defjvp(lambda xs, ts: (jnp.sin(xs[0]), ts[0]))


@jax.custom_vjp
def _pulled(x):
    return jnp.cos(x)


_pulled.defvjp(lambda x: (jnp.cos(x), None), lambda _, ct: (ct,))

_vmapped = jax.custom_batching.custom_vmap(lambda x: x * 3.0)
_vmapped.def_vmap(lambda size, batched, x: (x * 3.0, batched[0]))


PROGRAMS = {
    "jit": jax.jit(lambda x: x * 2.0),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(x) * x),
    "composite": lambda x: lax.composite(lambda x: jnp.sin(x) * 2, "a.b")(x),
    "custom_vmap_call": _vmapped,
    "custom_jvp_call": _ruled,
    "custom_vjp_call": _pulled,
    "cond": lambda x: lax.cond(x[0] > 0, lambda x: x * 2, lambda x: x * 3, x),
    "scan": lambda x: lax.scan(lambda c, y: (c * y, c + y), 2.0, x, reverse=True),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x), (0, x)),
    "linear solve": lambda x: lax.custom_linear_solve(lambda y: 2.0 * y, x, lambda _, b: b / 2.0),
}


class _OnNumbers(jaxprs.Evaluator):
    """Enters everything, and counts what it applies."""

    enters = jaxprs.FOLLOWED | jaxprs.SOLVERS

    def __init__(self):
        self.applied = []

    def apply(self, program, eqn, operands, here):
        self.applied.append(eqn.primitive.name)
        return super().apply(program, eqn, operands, here)

    def decide(self, value):
        return int(value)

    def rows(self, stack, length, here):
        return [stack[i] for i in range(length)]

    def stack(self, rows, here):
        return jnp.stack(rows)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_evaluator_enters_every_family(name):
    x = jnp.array([0.5, -0.25, 2.0])
    program, shape = jax.make_jaxpr(PROGRAMS[name], return_shape=True)(x)
    evaluator = _OnNumbers()
    outs = jax.tree.unflatten(jax.tree.structure(shape), evaluator.run(program, [x], None))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), outs, PROGRAMS[name](x))
    assert not {*jaxprs.FOLLOWED, *jaxprs.SOLVERS} & set(evaluator.applied)


class _Dependence(jaxprs.Flow):
    """Which inputs a value depends on."""

    def constant(self, atom):
        return frozenset()

    def join(self, first, second):
        return first | second

    def through(self, eqn, facts):
        return [frozenset().union(*facts)] * len(eqn.outvars)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b, c: (_vmapped(a), jax.checkpoint(jnp.sin)(b * c)), [{0}, {1, 2}]),
        (lambda a, b, c: lax.cond(True, lambda a, b: a, lambda a, b: b * 2, a, b), [{0, 1}]),
        # What `a` holds at the end was in `c` at first, or in `b` before that.
        (
            lambda a, b, c: lax.fori_loop(0, 9, lambda i, t: (t[1], t[2], t[2]), (a, b, c)),
            [{1, 2}, {2}, {2}],
        ),
        (
            lambda a, b, c: lax.while_loop(lambda t: t[0] < b, lambda t: (t[0] + c, t[1]), (a, b)),
            [{0, 2}, {1}],
        ),
    ],
    ids=["calls", "branches", "scan", "while"],
)
def test_data_flow_reaches_a_fixed_point(function, expected):
    program = jax.make_jaxpr(function)(1.0, 2.0, 3.0)
    assert _Dependence().run(program, [{0}, {1}, {2}]) == expected


def test_substitution_reaches_inner_programs():
    program = jax.make_jaxpr(PROGRAMS["scan"])(jnp.ones(3))
    replaced = jaxprs.substitute(program, "mul", lax.add_p)
    assert jaxprs.contains(program, {"mul"}) and not jaxprs.contains(replaced, {"mul"})
    (carry, *_) = jaxprs.jaxpr_as_fun(replaced)(jnp.ones(3))
    assert carry == 5.0  # 2 + 1 + 1 + 1


def test_the_program_of_an_operation_is_of_its_operands_shapes():
    """JAX 0.11 and later have two of `searchsorted` with other shapes as equal."""
    for shape in ((5,), (), (2, 3)):
        x, grid = jnp.full(shape, 0.5), jnp.arange(4.0)
        program = jax.make_jaxpr(jnp.searchsorted)(grid, x)
        (out,) = _OnNumbers().run(program, [grid, x], None)
        np.testing.assert_array_equal(out, jnp.full(shape, 1))
