"""The operations that random programs are made of: those on elements, and reductions.

See `lowering_programs.py`, and `lowering_operations_arrays.py` for the others.

An operation asks a draft for variables and gives the text of an expression and a bound on the
size of its numbers. Of integers the bound means nothing: they wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lowering_programs import UNSEEN, WILD, Draft, Variable

Operation = Callable[[Draft], tuple[str, float]]

OPERATIONS: list[Operation] = []


def operation(weight: int) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        OPERATIONS.extend([function] * weight)
        return function

    return register


# --- elementwise -----------------------------------------------------------------------------

# `x` is any variable, `s` numbers of at most 3, `p` numbers of at least 0.5, `i` of at most 1.
SMOOTH = {
    "lax.sin({x})": 1,
    "lax.cos({x})": 1,
    "lax.tanh({x})": 1,
    "lax.neg({x})": None,
    "lax.square({s})": 9,
    "lax.exp({s})": 21,
    "lax.exp2({s})": 8,
    "lax.expm1({s})": 21,
    "lax.log({p})": 20,
    "lax.log1p({p})": 20,
    "lax.sqrt({p})": 40,
    "lax.rsqrt({p})": 2,
    "lax.cbrt({p})": 20,
    "lax.logistic({x})": 1,
    "lax.tan({i})": 2,
    "lax.asin(0.9 * {i})": 2,
    "lax.acos(0.9 * {i})": 4,
    "lax.atan({x})": 2,
    "lax.sinh({s})": 11,
    "lax.cosh({s})": 11,
    "lax.asinh({x})": 20,
    "lax.acosh({p} + 1)": 20,
    "lax.atanh(0.9 * {i})": 2,
    "lax.erf({x})": 1,
    "lax.erfc({x})": 2,
    "lax.erf_inv(0.9 * {i})": 2,
    "lax.lgamma({p})": 4000,
    "lax.digamma({p})": 20,
    "lax.integer_pow({s}, 3)": 27,
    "lax.integer_pow({p}, -2)": 4,
    "({s}) ** 2": 9,
    "2 * {x} + 0.25": None,
    "jax.nn.softplus({x})": None,
    "jax.nn.gelu({x})": None,
    "jax.nn.silu({x})": None,
    "jax.checkpoint(lambda t: lax.sin(t) * t)({x})": None,
    "jax.jit(lambda t: lax.cos(t) * 2)({x})": 2,
    "jnp.sinc({x})": 1,
    "lax.real(lax.complex({x}, lax.sin({x})) * (2 + 1j))": None,
    "jnp.abs(lax.exp(lax.complex({i}, {x})))": 3,
}
KINKED = {
    "lax.abs({x})": None,
    "lax.floor({x})": None,
    "lax.ceil({x})": None,
    "lax.round({x})": None,
    "jnp.round({x})": None,
    "lax.sign({x})": 1,
    "lax.clamp(-1.0, {x}, 1.5)": 1.5,
    "jax.nn.relu({x})": None,
    "jax.nn.leaky_relu({x})": None,
    "pb.cond({x} > 0.5, lambda t: lax.log(t), lambda t: t * t, {s})": 9,
}
HIDDEN = {
    "lax.stop_gradient({x})": None,
    "{x}.astype(jnp.float16).astype(jnp.float32)": None,
    "lax.reduce_precision({x}, 8, 10)": None,
    "lax.nextafter(lax.stop_gradient({x}), lax.stop_gradient(-{x}))": None,
    "pb.cond(pb.within_gradient({x}), lambda t: t * 0.5, lambda t: t, {x})": None,
}


def filled(draft: Draft, table: dict[str, float | None]) -> tuple[str, float]:
    """Write one of the templates of an operand."""
    x = draft.pick("float")
    template = draft.one_of(list(table))
    positive = (
        f"jnp.abs({x.name}) + 0.5"
        if "{p}," in template or "{p})" in template
        else (f"(jnp.abs({x.name}) + 0.5)")
    )
    text = template.format(x=x.name, s=draft.small(x), p=positive, i=f"lax.sin({x.name})")
    bound = table[template]
    return text, 2 * x.bound + 1 if bound is None else bound


@operation(8)
def smooth(draft: Draft) -> tuple[str, float]:
    return filled(draft, SMOOTH)


FALLBACK = smooth


@operation(2)
def kinked(draft: Draft) -> tuple[str, float]:
    return filled(draft, KINKED)


@operation(1)
def hidden(draft: Draft) -> tuple[str, float]:
    draft.flag(UNSEEN)
    return filled(draft, HIDDEN)


@operation(1)
def wild(draft: Draft) -> tuple[str, float]:
    """Leave the domain: NaN and infinity come out."""
    draft.flag(WILD)
    x = draft.pick("float", lambda v: v.bound < 50)
    names = ("log", "sqrt", "rsqrt", "asin", "atanh", "log1p", "acosh")
    return f"lax.{draft.one_of(names)}({x.name})", math.inf


def pair(draft: Draft, kind: str) -> tuple[Variable, Variable]:
    """Two variables that broadcast."""
    x = draft.pick(kind)
    y = draft.pick(kind, lambda v: _broadcasts(x.shape, v.shape))
    return (x, y) if draft.number(0, 1) else (y, x)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


@operation(8)
def binary(draft: Draft) -> tuple[str, float]:
    x, y = pair(draft, "float")
    texts = {
        f"{x.name} + {y.name}": x.bound + y.bound,
        f"{x.name} - {y.name}": x.bound + y.bound,
        f"{draft.small(x)} * {draft.small(y)}": 9,
        f"{x.name} / (jnp.square({y.name}) + 0.5)": 2 * x.bound,
        f"jnp.arctan2({x.name}, {y.name})": 4,
        f"(jnp.abs({x.name}) + 0.5) ** lax.sin({y.name})": 50,
        f"jnp.maximum({x.name}, {y.name})": x.bound + y.bound,
        f"jnp.minimum({x.name}, {y.name})": x.bound + y.bound,
        f"jnp.fmod({x.name}, jnp.abs({y.name}) + 0.5)": x.bound + 1,
        f"jnp.logaddexp({x.name}, {y.name})": x.bound + y.bound + 1,
        f"jnp.hypot({x.name}, {y.name})": x.bound + y.bound + 1,
    }
    text = draft.one_of(list(texts))
    return text, texts[text]


# --- integers and Booleans -------------------------------------------------------------------


@operation(4)
def integers(draft: Draft) -> tuple[str, float]:
    x, y = pair(draft, "int")
    a, b = x.name, y.name
    return draft.one_of(
        [
            f"{a} + {b}",
            f"{a} - {b}",
            f"{a} * {b}",
            f"{a} // {b}",
            f"{a} % {b}",
            f"jnp.fmod({a}, {b})",
            f"{a} & {b}",
            f"{a} | {b}",
            f"{a} ^ {b}",
            f"jnp.maximum({a}, {b})",
            f"jnp.left_shift({a}, {b} & 63)",
            f"jnp.right_shift({a}, {b} & 63)",
            f"lax.shift_right_logical({a}, {a} & 63)",
            f"lax.population_count({a} + {b})",
            f"lax.clz({a} * {b})",
            f"lax.neg({a}) * {b}",
            f"~{a} - jnp.sign({b})",
            f"jnp.abs({a}) + {b}",
            f"{a} ** 2 - {b} ** 3",
            f"jnp.clip({a}, -3, 5) * {b}",
            f"({a} * {b}).astype(jnp.int8).astype(jnp.int32)",
            f"({a}.astype(jnp.uint8) // ({b}.astype(jnp.uint8))).astype(jnp.int32)",
            f"({a}.astype(jnp.uint32) + {b}.astype(jnp.uint32)).astype(jnp.int32)",
        ]
    ), 0


@operation(2)
def compared(draft: Draft) -> tuple[str, float]:
    sign = draft.one_of((">", "<", ">=", "<=", "==", "!="))
    if sign in ("==", "!="):  # of floats these are decided by an ulp
        x, y = pair(draft, "int")
        return f"{x.name} {sign} {y.name}", 0
    x, y = pair(draft, draft.one_of(("float", "int")))
    return f"{x.name} {sign} {y.name}", 0


@operation(1)
def logic(draft: Draft) -> tuple[str, float]:
    x, y = pair(draft, "bool")
    a, b = x.name, y.name
    return draft.one_of([f"{a} & {b}", f"{a} | ~{b}", f"{a} ^ {b}", f"~{a} & {b}"]), 0


@operation(2)
def converted(draft: Draft) -> tuple[str, float]:
    kind = draft.one_of(("int", "float", "bool"))
    x = draft.pick(kind)
    if kind == "int":
        text, bound = f"({x.name} % 7).astype(jnp.float32)", 7
        return draft.one_of([(text, bound), (f"{x.name}.astype(jnp.bool_)", 0)])
    if kind == "bool":
        to = draft.one_of(("float32", "int32"))
        return f"{x.name}.astype(jnp.{to})", 1
    text = draft.one_of([f"{x.name}.astype(jnp.int32)", f"lax.is_finite({x.name})"])
    return text, 0


@operation(3)
def chosen(draft: Draft) -> tuple[str, float]:
    x, y = pair(draft, "float")
    bound = x.bound + y.bound
    if draft.number(0, 2) == 2:
        i = draft.pick("int", lambda v: v.shape == x.shape)
        y = draft.pick("float", lambda v: v.shape == x.shape)
        text = f"lax.select_n(jnp.clip({i.name}, 0, 2), {x.name}, {y.name}, lax.sin({x.name}))"
        return text, bound + y.bound + 1
    c = draft.pick(
        "bool", lambda v: _broadcasts(v.shape, x.shape) and _broadcasts(v.shape, y.shape)
    )
    return f"jnp.where({c.name}, {x.name}, {y.name})", bound


# --- reductions and running reductions -------------------------------------------------------


@operation(4)
def reduced(draft: Draft) -> tuple[str, float]:
    x = draft.pick("float", lambda v: v.ndim > 0)
    axis = draft.one_of([*range(x.ndim), None])
    n = math.prod(x.shape)
    small = draft.small(x, 1.5)
    texts = {
        f"jnp.sum({x.name}, axis={axis})": x.bound * n,
        f"jnp.mean({x.name}, axis={axis})": x.bound,
        f"jnp.max({x.name}, axis={axis})": x.bound,
        f"jnp.min({x.name}, axis={axis})": x.bound,
        f"jnp.prod({small}, axis={axis})": 1.5 ** min(n, 16),
        f"jnp.var({draft.small(x)}, axis={axis})": 9,
        f"jax.nn.logsumexp({x.name}, axis={axis})": x.bound + n,
        f"jax.nn.softmax({x.name}, axis={axis})": 1,
    }
    text = draft.one_of(list(texts))
    return text, texts[text]


@operation(3)
def reduced_to_discrete(draft: Draft) -> tuple[str, float]:
    kind = draft.one_of(("int", "float", "bool"))
    x = draft.pick(kind, lambda v: v.ndim > 0)
    axis = draft.axis(x)
    names = {
        "int": ("sum", "prod", "max", "min"),
        "float": ("argmax", "argmin"),
        "bool": ("any", "all", "sum"),
    }[kind]
    name = draft.one_of(names)
    if name in ("argmax", "argmin"):
        return f"lax.{name}({x.name}, {axis}, jnp.int32)", 0
    typed = "" if name in ("any", "all", "max", "min") else ", dtype=jnp.int32"
    return f"jnp.{name}({x.name}, axis={axis}{typed})", 0


@operation(3)
def running(draft: Draft) -> tuple[str, float]:
    x = draft.pick("float", lambda v: v.ndim > 0)
    axis, n = draft.axis(x), math.prod(x.shape)
    name = draft.one_of(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"))
    operand = draft.small(x, 1.5) if name == "cumprod" else x.name
    bound = {"cumsum": x.bound * n, "cumprod": 1.5 ** min(n, 16)}.get(name, x.bound + n)
    back = draft.one_of((False, True))
    return f"lax.{name}({operand}, axis={axis}, reverse={back})", bound
