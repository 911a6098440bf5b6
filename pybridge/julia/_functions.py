"""Julia functions held from Python, and the calls on them."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from .._backends import row
from .._errors import ArgumentTypeError, explain
from ._library import Prepared
from ._session import session
from ._systems import require
from ._wire import Structure, as_leaf, jax_array, spec, unholdable


class JuliaHandle:
    """A Julia callable, by its number in Julia's table. Released when nobody holds it.

    Attributes:
        number: its number.
        identity: a text that no other function has, in this process or another.
        signatures: what it returns for which types of arguments, as far as that is known.
    """

    def __init__(self, source: Any, using: Sequence[str] = ()):
        """Evaluate Julia source, or take over a juliacall value.

        Args:
            source: the source or the value.
            using: packages that the source names; they are loaded first.

        Raises:
            JuliaUnavailableError: Julia cannot be started.
            BackendNotLoadedError: a package cannot be installed or loaded.
            JuliaError: the source does not parse or throws.
            ArgumentTypeError: the value is not callable, or holds a Python object.
        """
        self._session = session()
        if isinstance(source, str):
            for package in using:
                self._session.require(package)
            fields = (source, ",".join(using))
            number = self._session.call(lambda library: library.request("define", *fields))
        else:
            number = self._session.call(lambda library: self._session.julia.admit(source))
            if isinstance(number, str):
                raise ArgumentTypeError(
                    explain(
                        "from_julia",
                        expected="a Julia function, or source of one",
                        got=number,
                        fix="Pass what the function depends on as an argument; a JAX function "
                        "that Julia is to call crosses by pb.to_julia.",
                    )
                )
        # The same source in another process is the same function; another value never is.
        is_source = isinstance(source, str)
        self._take(int(number), "\x1e".join((source, *using)) if is_source else uuid.uuid4().hex)

    @classmethod
    def registered(cls, number: int) -> JuliaHandle:
        """Take over a function that Julia has registered already."""
        handle = cls.__new__(cls)
        handle._session = session()
        handle._take(number, uuid.uuid4().hex)
        return handle

    def with_keywords(self, text: str) -> JuliaHandle:
        """Make the function with keyword arguments bound; `text` is source of a NamedTuple."""
        fields = (self.number, text)
        bound = JuliaHandle.registered(
            int(self._session.call(lambda library: library.request("with_keywords", *fields)))
        )
        bound.identity = f"{self.identity}\x1e{text}"
        return bound

    def _take(self, number: int, identity: str) -> None:
        self.number = number
        self.identity = identity
        self.signatures: dict[Any, Any] = {}
        self._prepared: dict[Any, Prepared] = {}
        weakref.finalize(self, _release, self._session, self.number, self._prepared)

    def outputs(self, text: str, extents: str, layout: str) -> tuple[Structure, list[int]]:
        """Find what the function returns for arguments of known types.

        Args:
            text: the spec of the arguments.
            extents: the sizes of their leaves.
            layout: `"logical"` or `"reversed"`.

        Returns:
            The structure of the value, and the extents of its leaves in Julia's order.
        """
        answer = self._session.call(
            lambda library: library.request("outputs", self.number, text, extents, layout)
        )
        found, sizes = answer.split("|")
        return Structure(found), [int(n) for n in sizes.split(",") if n]

    def run(
        self,
        operation: str,
        args: tuple[Any, ...],
        *,
        backend: str = "",
        argnums: Sequence[int] = (),
        layout: str = "logical",
    ) -> Result:
        """Do one of the operations of `boundary.jl`.

        Args:
            operation: `"call"`, `"value_and_grad"`, `"value_aux_and_grad"`, `"pullback"`,
                `"pushforward"`, `"jacobian"` or `"hessian"`.
            args: the arguments, trees of numbers and arrays.
            backend: the AD system; its packages are loaded where they are not.
            argnums: which arguments to differentiate, from 0.
            layout: `"logical"` or `"reversed"`.

        Returns:
            The result.

        Raises:
            BackendNotLoadedError: the system's package cannot be installed or loaded.
            BridgeError: what Julia threw.
        """
        leaves, treedef = jax.tree_util.tree_flatten(args)
        arrays = [as_leaf(leaf, i) for i, leaf in enumerate(leaves)]
        kinds = tuple([(a.dtype, a.ndim) for a in arrays])
        key = (operation, backend, tuple(argnums), layout, treedef, kinds)
        prepared = self._prepared.get(key) or self._prepare(key)
        structure, results = self._session.run(lambda library: library.run(prepared, arrays))
        others = [leaf for leaf, array in zip(leaves, arrays, strict=True) if leaf is not array]
        return Result(structure, results, any([isinstance(leaf, jax.Array) for leaf in others]))

    def _prepare(self, key: tuple[Any, ...]) -> Prepared:
        operation, backend, argnums, layout, treedef, kinds = key

        def prepare(library: Any) -> Prepared:
            if key not in self._prepared:
                numbers = ",".join(str(n + 1) for n in argnums)
                fields = (operation, self.number, backend, numbers, layout, spec(treedef, kinds))
                self._prepared[key] = Prepared(int(library.request("prepare", *fields)))
            return self._prepared[key]

        if backend:
            require(row(backend))
        return self._session.call(prepare)  # on the worker, so that two threads do not both do it


def lowered_handle(source: str, constants: Sequence[np.ndarray]) -> JuliaHandle:
    """Evaluate the source of a lowered program, with the arrays that it refers to.

    Args:
        source: Julia source; its last value is the function.
        constants: arrays, which cross as data.

    Returns:
        The handle. Without constants it is the same function in every process.
    """
    numbers = [str(int(_keeper().run("call", (c,), layout="reversed").raw())) for c in constants]
    fields = (source, ",".join(numbers))
    running = session()
    found = running.call(lambda library: library.request("define_lowered", *fields))
    handle = JuliaHandle.registered(int(found))
    if not constants:
        handle.identity = f"lowered\x1e{source}"
    return handle


@lru_cache(maxsize=1)
def _keeper() -> JuliaHandle:
    return JuliaHandle("PyBridge.Lowering.keep_constant")


def _release(session_: Any, number: int, prepared: dict[Any, Prepared]) -> None:
    def work(library: Any) -> None:
        for call in prepared.values():
            library.request("release_prepared", call.number)
        library.request("release_function", number)

    session_.post(work)


class Result:
    """What Julia returned: leaves, and the tree that they belong in.

    NumPy arguments give NumPy results with Julia's own dtypes. JAX arguments give JAX
    results, and a dtype that JAX cannot hold at the current x64 setting is an error.

    Attributes:
        leaves: the leaves as NumPy arrays, in order.
        wants_jax: whether a JAX array was among the arguments.
    """

    def __init__(self, structure: Structure, leaves: list[np.ndarray], wants_jax: bool):
        """Keep the parts."""
        self._structure = structure
        self.leaves = leaves
        self.wants_jax = wants_jax

    def tree(self) -> Any:
        """Build the result: tuples, named tuples, None, numbers and arrays."""
        return self._structure.build([public(leaf, self.wants_jax) for leaf in self.leaves])

    def raw(self) -> Any:
        """Build the result with plain NumPy arrays as leaves."""
        return self._structure.build(self.leaves)

    def check(self) -> None:
        """Refuse leaves that JAX cannot hold, if the caller uses JAX arrays."""
        for leaf in self.leaves if self.wants_jax else ():
            _check_holdable(leaf)


def public(leaf: np.ndarray, wants_jax: bool) -> Any:
    """Give an array the type that the caller works with.

    Raises:
        ArgumentTypeError: Julia returned 64 bits, the caller uses JAX arrays, and x64 is off.
    """
    if not wants_jax:
        return leaf[()] if leaf.ndim == 0 else leaf
    _check_holdable(leaf)
    return jax_array(leaf)


def _check_holdable(leaf: np.ndarray) -> None:
    if jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype:
        raise unholdable(leaf.dtype)


class PullbackHandle:
    """A pullback that Julia keeps: what `vjp` returns beside the value."""

    def __init__(self, handle: JuliaHandle, number: int, layout: str):
        """Keep the number; it is released with this object."""
        self._session = session()
        self._layout = layout
        self._handle = handle
        self._number = number
        weakref.finalize(self, _release_pullback, self._session, number)

    def pull(self, cotangent: Any) -> Result:
        """Pull a cotangent of the value's structure back to the arguments."""
        return self._handle.run("pull", (self._number, cotangent), layout=self._layout)


def _release_pullback(session_: Any, number: int) -> None:
    session_.post(lambda library: library.request("release_pullback", number))
