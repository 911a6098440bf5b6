"""Operations of random programs that move, index, multiply and loop; see `lowering_programs.py`.

They are registered where they are defined, after those of `lowering_operations.py`; `OPERATIONS`
is whole when this module has been imported.
"""

from __future__ import annotations

import math

from lowering_operations import OPERATIONS, operation
from lowering_programs import FORWARD, UNLIKE, Draft, Variable

# --- shapes ----------------------------------------------------------------------------------


@operation(6)
def moved(draft: Draft) -> tuple[str, float]:
    x = draft.pick(draft.one_of(("float", "int")), lambda v: v.ndim > 0)
    axis, n = draft.axis(x), math.prod(x.shape)
    order = draft.one_of([tuple(range(x.ndim))[::-1], (*range(1, x.ndim), 0)])
    texts = [
        f"lax.transpose({x.name}, {order})",
        f"jnp.flip({x.name}, {axis})",
        f"jnp.roll({x.name}, 1, {axis})",
        f"{x.name}.reshape({(n,)})",
        f"{x.name}[None]",
        f"jnp.squeeze({x.name}[:1], 0)",
        f"{x.name}[1:]",
        f"{x.name}[::-2]",
        f"{x.name}[..., :2]",
        f"{x.name}[-1]",
        f"jnp.concatenate([{x.name}, {x.name}[:1]], 0)",
        f"jnp.stack([{x.name}, {x.name}], {axis})",
        f"jnp.tile({x.name}, 2)",
        f"jnp.repeat({x.name}, 2, axis={axis})",
        f"jnp.broadcast_to({x.name}, {(2, *x.shape)})",
        f"jnp.pad({x.name}, 1)",
    ]
    return draft.one_of(texts), x.bound


@operation(2)
def padded(draft: Draft) -> tuple[str, float]:
    x = draft.pick("float", lambda v: v.ndim > 0)
    widths = tuple(draft.one_of([(0, 0, 0), (-1, 1, 0), (1, -2, 1), (1, 0, 0)]) for _ in x.shape)
    return f"lax.pad({x.name}, lax.max({x.name}.ravel()[0], 0.5), {widths})", x.bound + 1


@operation(2)
def joined(draft: Draft) -> tuple[str, float]:
    x = draft.pick("float", lambda v: v.ndim > 0)
    axis = draft.axis(x)

    def fits(v: Variable) -> bool:
        return v.ndim == x.ndim and all(
            d == axis or m == n for d, (m, n) in enumerate(zip(x.shape, v.shape, strict=True))
        )

    y = draft.pick("float", fits)
    return f"jnp.concatenate([{x.name}, {y.name}], {axis})[:{x.shape[0]}]", x.bound + y.bound


# --- indexing and sorting --------------------------------------------------------------------


@operation(5)
def indexed(draft: Draft) -> tuple[str, float]:
    x = draft.pick(draft.one_of(("float", "float", "int")), lambda v: v.ndim > 0)
    i = draft.pick("int", lambda v: v.ndim < 2)
    axis = draft.axis(x)
    promised = (f"{x.name}[{i.name}]", f"{x.name}[..., {i.name}]")
    texts = [
        *promised,
        f"jnp.take({x.name}, {i.name}, axis={axis}, mode='clip')",
        f"jnp.take({x.name}, {i.name}, axis={axis}, mode='wrap')",
        f"jnp.take_along_axis({x.name}, jnp.argsort({x.name}, {axis}), {axis})",
        f"{x.name}[jnp.array([1, 0, 1])]",
    ]
    if x.kind == "float":
        texts.append(f"{x.name}.at[{i.name}].get(mode='fill', fill_value=0.5)")
    if i.ndim == 0:
        # JAX wants indices of one type, and where finite differences are taken a 0 has 64 bits.
        rest = ", ".join([f"jnp.zeros_like({i.name})"] * (x.ndim - 1))
        texts += [
            f"lax.dynamic_slice({x.name}, ({i.name}, {rest}), {x.shape})",
            f"lax.dynamic_slice_in_dim({x.name}, {i.name}, 1, {axis})",
            f"lax.dynamic_index_in_dim({x.name}, {i.name}, {axis}, keepdims=False)",
        ]
    text = draft.one_of(texts)
    if x.kind == "float" and text in promised:
        # Out of bounds JAX reads the nearest element, of which its reverse mode knows nothing:
        # the transpose drops what is out of bounds. Forward mode has the derivative of the value.
        draft.flag(FORWARD)
    return text, x.bound


@operation(4)
def written(draft: Draft) -> tuple[str, float]:
    x = draft.pick(draft.one_of(("float", "float", "int")), lambda v: v.ndim > 0)
    i = draft.pick("int", lambda v: v.ndim < 2)
    wanted = (*i.shape, *x.shape[1:])
    y = draft.pick(x.kind, lambda v: v.shape in ((), wanted))
    if i.ndim == 0:
        texts = [f"{x.name}.at[{i.name}].set({y.name})"]
        if y.shape == wanted:
            texts.append(f"lax.dynamic_update_slice_in_dim({x.name}, {y.name}[None], {i.name}, 0)")
    else:
        # Where two write to one place, which one stays is not JAX's to say.
        texts = [f"{x.name}.at[jnp.array([1, 7])].set({y.name})"] if y.ndim == 0 else []
    clipped = f"{x.name}.at[{i.name}].min({y.name}, mode='clip')"
    texts += [
        f"{x.name}.at[{i.name}].add({y.name})",
        f"{x.name}.at[{i.name}].max({y.name})",
        clipped,
    ]
    if i.ndim == 0:
        small = (draft.small(x), draft.small(y)) if x.kind == "float" else (x.name, y.name)
        texts.append(f"({small[0]}).at[{i.name}].mul({small[1]}, unique_indices=True)")
    text = draft.one_of(texts)
    if x.kind == "float" and text == clipped:
        # Where several write to one place JAX's rule counts them without clipping.
        draft.flag(UNLIKE)
    return text, 3 * (x.bound + y.bound) + 9


@operation(3)
def ordered(draft: Draft) -> tuple[str, float]:
    x = draft.pick(draft.one_of(("float", "int")), lambda v: v.ndim > 0)
    y = draft.pick("float", lambda v: v.shape == x.shape)
    axis, k = draft.axis(x), min(2, x.shape[-1])
    texts = [
        f"jnp.sort({x.name}, axis={axis})",
        f"jnp.argsort({x.name}, axis={axis}).astype(jnp.int32)",
        f"jnp.sort({x.name}, axis={axis}, descending=True)",
        f"lax.sort(({x.name}, {y.name}), dimension={axis}, num_keys=1)[1]",
        f"lax.sort((jnp.sign({x.name}), {y.name}), dimension={axis}, num_keys=2)[0]",
    ]
    if x.bound < math.inf:  # top_k goes by the sign of a NaN, which no two compilers agree on
        texts += [f"lax.top_k({x.name}, {k})[0]", f"lax.top_k({x.name}, {k})[1]"]
    return draft.one_of(texts), x.bound + y.bound


# --- products --------------------------------------------------------------------------------


@operation(4)
def product(draft: Draft) -> tuple[str, float]:
    kind = draft.one_of(("float", "float", "int"))
    x = draft.pick(kind, lambda v: v.ndim > 0)
    y = draft.pick(kind, lambda v: v.ndim > 0)
    a, b = (draft.small(x), draft.small(y)) if kind == "float" else (x.name, y.name)
    texts = []
    if y.shape[max(-2, -y.ndim)] == x.shape[-1]:
        texts.append(f"jnp.matmul({a}, {b})")
    for d in range(x.ndim):
        for e in range(y.ndim):
            if x.shape[d] == y.shape[e]:
                texts.append(f"lax.dot_general({a}, {b}, ((({d},), ({e},)), ((), ())))")
                if kind == "float" and x.ndim > 1 and y.ndim > 1:
                    texts.append(
                        f"jnp.sum(lax.dot_general({a}, {b}, (((), ()), (({d},), ({e},)))), -1)"
                    )
    if x.ndim == y.ndim == 1:
        texts.append(f"jnp.outer({a}, {b})")
    if x.shape == y.shape:
        letters = "ijkl"[: x.ndim]
        texts.append(f"jnp.einsum('{letters},{letters}->{letters[:1]}', {a}, {b})")
    return draft.one_of(texts), 9 * max(x.shape)


@operation(2)
def convolved(draft: Draft) -> tuple[str, float]:
    # Nobody says whether the zeros of the padding meet a NaN of the kernel.
    x = draft.pick("float", lambda v: v.ndim in (1, 2) and v.bound < math.inf)
    w = draft.pick("float", lambda v: v.ndim == x.ndim and v.bound < math.inf)
    a, b = draft.small(x), draft.small(w)
    if x.ndim == 1 and draft.number(0, 1):
        return f"jnp.convolve({a}, {b}, mode='same')", 9 * math.prod(w.shape)
    ones = ", ".join(["None", "None"])
    stride, dilation = draft.one_of(((1, 1), (2, 1), (1, 2)))
    n = x.ndim
    text = (
        f"lax.conv_general_dilated(({a})[{ones}], ({b})[{ones}], {(stride,) * n}, "
        f"{((1, 2),) * n}, {(dilation,) * n})[0, 0]"
    )
    return text, 9 * math.prod(w.shape)


# --- control flow ----------------------------------------------------------------------------

BODIES = ("lax.sin(t)", "t * 0.5 + 0.25", "lax.tanh(t) * t", "-t", "lax.max(t, 0.5)")


@operation(3)
def branched(draft: Draft) -> tuple[str, float]:
    x = draft.pick("float")
    one, two, three = (draft.one_of(BODIES) for _ in range(3))
    if draft.number(0, 1):
        i = draft.pick("int", lambda v: v.ndim == 0)
        branches = f"[lambda t: {one}, lambda t: {two}, lambda t: {three}]"
        return f"lax.switch({i.name}, {branches}, {x.name})", 2 * x.bound + 1
    c = draft.pick("bool", lambda v: v.shape in ((), x.shape))
    which = draft.one_of((f"jnp.any({c.name})", f"jnp.all({c.name})"))
    where = "lax.cond"
    if c.shape == x.shape and draft.number(0, 1):
        which, where = c.name, "pb.cond"
    return f"{where}({which}, lambda t: {one}, lambda t: {two}, {x.name})", 2 * x.bound + 1


@operation(4)
def looped(draft: Draft) -> tuple[str, float]:
    x = draft.pick("float", lambda v: v.bound < 100)
    y = draft.pick("float", lambda v: v.shape == x.shape)
    n = draft.number(0, 4)
    turn = f"lambda n, t: lax.sin({y.name}) * t * 0.5 + n"
    texts = {f"lax.fori_loop(0, {n}, {turn}, {x.name})": 2 * x.bound + n + 1}
    for over in (v for v in draft.variables if v.kind == "float" and v.shape[1:] == x.shape):
        if over.ndim == x.ndim + 1:
            for back in (False, True):
                call = f"lax.scan(lambda t, n: (lax.tanh(t * {y.name} + n), t * n), "
                texts[f"{call}{x.name}, {over.name}, reverse={back})[0]"] = 1
                texts[f"{call}lax.sin({x.name}), {over.name}, reverse={back})[1]"] = over.bound
            break
    texts[
        f"lax.while_loop(lambda t: t[0] < {n}, "
        f"lambda t: (t[0] + 1, lax.cos(t[1]) * {draft.small(y)}), (0, {x.name}))[1]"
    ] = x.bound + 3
    text = draft.one_of(list(texts))
    if "while_loop" in text:
        draft.flag(FORWARD)
    return text, texts[text]


__all__ = ["OPERATIONS"]
