"""Who asks for the leaves of a tree: the question that decides what a `NonDifferentiable` shows.

JAX has one registry of tree nodes for everything. `jit`, `vmap` and `scan` must find the arrays
in a node, or they could not move them; `grad` and an optimiser must not, or there would be a
gradient and a step. Both ask the same function, and it is told nothing about them: what a leaf
is for can only be seen from who called.

What JAX and its packages offer without looking at the caller, and what of
docs/how-to/non-differentiable-parts.md it cannot keep (tried with JAX 0.10):

* A node that always shows its arrays is a part of every gradient and every step: `jax.grad` refuses
  integers in it, gives floats a zero, and weight decay moves them. One that never does is compiled
  anew for each array, and `vmap` and `scan` do not map it.
* Extended dtypes, as those of random keys: leaves that `jit` and `vmap` move, with tangents of
  `float0`. `jax.grad` refuses them without `allow_int=True`, `jax.tree.map` of a step raises on
  them, and there is no public way to define one.
* `float0` is the tangent type of integers; floats cannot ask for it.
* `custom_vjp` with `symbolic_zeros` stops a derivative inside of a program, as `stop_gradient`
  does. The leaf stays a leaf of the gradient, with zeros.
* A partition as in Equinox, and the masks of optax, work on the tree from outside: the caller has
  to use `eqx.filter_grad`, and to give each optimiser the mask. (`optax.masked` hands gradients of
  masked leaves on, and `apply_updates` adds them.)

So `jax.grad(f)(tree)` and an optimiser that know nothing, beside `jit` and `vmap` that move the
arrays, want different leaves of the same node, and JAX's registry has one answer. The caller it is,
until JAX tells a node who asks.

Nothing here depends on a private name of JAX. The functions to look for are found from the public
ones, and the first question tries the answers out: under a version of JAX that calls in another way
nothing is shown, so that nothing is differentiated or moved by an optimiser, and a warning says so.
"""

from __future__ import annotations

import enum
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import jax
import numpy as np

from .._errors import explain


class Asker(enum.Enum):
    """Who flattens a tree.

    Attributes:
        MOVES: a transformation that moves values: the arrays are leaves.
        DERIVES: one that differentiates, or maps trees leaf by leaf: no leaves, and the payload
            does not count when structures are compared.
        TREE: a function of trees, such as `jax.tree.flatten`: no leaves; the structure is the
            caller's, perhaps to find a compiled program, and the payload counts.
    """

    MOVES = enum.auto()
    DERIVES = enum.auto()
    TREE = enum.auto()


def asker(depth: int) -> Asker:
    """Find out who flattens; always `TREE` where that cannot be told.

    Args:
        depth: how many Python functions are between this one and JAX.

    Warns:
        UserWarning: at the first question, where this JAX calls in a way that is not known.
    """
    known = _known()
    return Asker.TREE if known is None else _asker(known, sys._getframe(1 + depth))


def _asker(known: _Known, first: FrameType) -> Asker:
    frame, maps = first, False
    while frame is not None and frame.f_code.co_filename in known.tree_files:
        maps = maps or frame.f_code in known.maps
        frame = frame.f_back
    # Compiled functions flatten in C++, without a frame of their own, and may be called by a
    # function of trees on its leaves.
    if frame is first or first.f_code.co_name in ("<genexpr>", "<lambda>", "__call__"):
        return Asker.MOVES
    if frame is None or not _is_internal(frame, known):
        return Asker.DERIVES if maps else Asker.TREE
    return Asker.DERIVES if _differentiates(frame, known) else Asker.MOVES


def _differentiates(frame: FrameType | None, known: _Known) -> bool:
    """Tell whether a function of JAX that flattens works for one that differentiates.

    Its own arguments and derivatives are meant. The function that it differentiates is traced
    through other files of JAX, and what is flattened there moves.
    """
    own = True
    while frame is not None and _is_internal(frame, known):
        code = frame.f_code
        if code in known.derives:
            return own
        if code in known.batches:
            caller = frame.f_back
            while caller is not None and caller.f_code in known.wrappers:
                caller = caller.f_back
            # A Jacobian is one pullback or pushforward, batched.
            return caller is not None and caller.f_code in known.derives
        ordinary = code in known.wrappers or code.co_filename in known.tree_files
        own = own and (ordinary or code.co_filename == known.api_file)
        frame = frame.f_back
    return False


def _is_internal(frame: FrameType, known: _Known) -> bool:
    return frame.f_code.co_filename.startswith(known.folder)


class _Known:
    """The functions of JAX that are looked for, as code objects and files."""

    def __init__(self) -> None:
        """Find them from the public ones."""
        import jax.flatten_util

        def probe(x: Any) -> Any:
            return x

        def codes(*functions: Callable[..., Any]) -> set[CodeType]:
            return {code for f in functions for code in _codes(f, probe)}

        makers = (jax.grad, jax.value_and_grad, jax.jacfwd, jax.jacrev)
        derives = codes(*(make(probe) for make in makers), jax.vjp, jax.jvp)
        batches = codes(jax.vmap(probe))
        # Those around several public functions only tidy up tracebacks.
        self.wrappers = derives & batches
        self.derives = derives - self.wrappers
        self.batches = batches - self.wrappers
        trees = (jax.tree.map, jax.tree_util.tree_map, jax.flatten_util.ravel_pytree)
        self.tree_files = {code.co_filename for code in codes(*trees)}
        self.maps = codes(jax.tree_util.tree_map)
        (self.api_file,) = {code.co_filename for code in self.batches}  # as that of `grad`
        self.tree_files |= {_first_flattening(jax.jvp)} - {self.api_file}
        self.folder = os.path.dirname(self.api_file) + os.sep


@functools.cache
def _known() -> _Known | None:
    """Find JAX's functions and try the answers out, once; None where they are wrong."""
    try:
        known = _Known()
        wrong = _misheard(known)
    except Exception as error:
        known, wrong = None, [f"{type(error).__name__}: {error}"]
    if not wrong:
        return known
    warnings.warn(
        explain(
            "NonDifferentiable",
            expected="a version of JAX that flattens trees in a way that pybridge knows",
            got=f"jax {jax.__version__}, not recognised in {', '.join(wrong)}",
            fix="Install a version of JAX that this pybridge was tested with, or a newer pybridge. "
            "Until then every NonDifferentiable is a constant: never differentiated and never "
            "changed by an optimiser, but jit compiles anew for every value, and vmap and scan "
            "do not map over it.",
        ),
        UserWarning,
        stacklevel=2,
    )
    return None


class _Canary:
    """A node with one array that tells who flattens it."""

    def __init__(self, tell: Callable[[FrameType], None], array: Any):
        """Keep the array, and whom to tell as structure."""
        self.tell, self.array = tell, array


def _flatten_canary(canary: _Canary) -> tuple[Any, Any]:
    canary.tell(sys._getframe(1))
    return (canary.array,), canary.tell


jax.tree_util.register_pytree_node(
    _Canary, _flatten_canary, lambda tell, children: _Canary(tell, *children)
)


def _first_flattening(derive: Callable[..., Any]) -> str:
    """Return the file of JAX in which a function that differentiates flattens what it is given."""
    files: list[str] = []
    one = _Canary(lambda frame: files.append(frame.f_code.co_filename), np.ones(1, np.float32))
    derive(lambda canary: canary.array, (one,), (one,))
    return files[0]


def _note(known: _Known, heard: set[Asker], frame: FrameType) -> None:
    heard.add(_asker(known, frame))


def _misheard(known: _Known) -> list[str]:
    """Flatten in each way and name those that were taken for another. Nothing is compiled."""

    def value(canary: _Canary) -> Any:
        return canary.array

    trials: tuple[tuple[str, Asker, Callable[[_Canary], Any]], ...] = (
        ("jax.tree.flatten", Asker.TREE, lambda one: jax.tree.flatten(one)),
        ("jax.tree.map", Asker.DERIVES, lambda one: jax.tree.map(lambda x: x, one)),
        ("jax.jvp", Asker.DERIVES, lambda one: jax.jvp(value, (one,), (one,))),
        ("jax.vjp", Asker.DERIVES, lambda one: jax.vjp(value, one)),
        ("jax.vmap", Asker.MOVES, lambda one: jax.vmap(value)(one)),
    )
    wrong = []
    for name, expected, run in trials:
        heard: set[Asker] = set()
        tell = functools.partial(_note, known, heard)
        run(_Canary(tell, np.ones(1, np.float32)))
        # Some versions of JAX flatten once more, for the names of arguments in messages.
        harmless = {Asker.MOVES} if expected is Asker.DERIVES else set()
        if heard - harmless != {expected}:
            wrong.append(name)
    return wrong


def _codes(f: Any, probe: Any) -> Iterator[CodeType]:
    """Yield the code of a function and of those that it wraps, but not of `probe`."""
    if not isinstance(f, FunctionType) or f is probe:
        return
    yield f.__code__
    inner = [f.__dict__.get("__wrapped__"), *map(_content, f.__closure__ or ())]
    folder = os.path.dirname(jax.vmap.__code__.co_filename)
    for g in inner:
        if isinstance(g, FunctionType) and g.__code__.co_filename.startswith(folder):
            yield from _codes(g, probe)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name has no value yet
        return None
