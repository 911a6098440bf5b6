"""A Julia function that is called from JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from .._errors import ArgumentTypeError, explain
from ..primitives import holds_nondifferentiable, plain
from ._julia_callee import BridgedFunction, Jitted

if TYPE_CHECKING:
    from ..julia import JuliaHandle


class JuliaFunction:
    """A Julia callable that is called like a JAX function; `from_julia` makes it.

    Attributes:
        ad: the AD system that differentiates it unless a call names another.
        layout: how array axes map, `"logical"` or `"reversed"`.
        batched: whether it takes a batch as its last Julia dimension.
        out: the declared shapes and dtypes of its value, or None.
        source: the Julia source, or None for a juliacall value.
        bridged: what traced programs refer to.
        declared: calls on arrays of the host whose value `out` declares, ready to run.
    """

    def __init__(
        self,
        handle: JuliaHandle,
        *,
        source: str | None,
        ad: str,
        layout: str,
        jvp: JuliaHandle | None = None,
        vjp: JuliaHandle | None = None,
        batched: bool = False,
        out: Any = None,
    ):
        """Keep the parts."""
        self.handle = handle
        self.source = source
        self.ad = ad
        self.layout = layout
        self.batched = batched
        self.out = out
        self._rules = (jvp, vjp)
        self.declared: dict[Any, Any] = {}
        self._others: dict[str, JuliaFunction] = {}
        self._jitted = Jitted()
        self.bridged = BridgedFunction(
            handle,
            self._rules,
            name=repr(self),
            ad=ad,
            layout=layout,
            batched=batched,
            jitted=self._jitted,
        )

    def __call__(self, *args: Any) -> Any:
        """Call the Julia function with numbers, arrays and trees of them."""
        if holds_nondifferentiable(args):
            args = plain(args)
        if any(map(_wants_program, jax.tree_util.tree_leaves(args))):
            from ._call import call_traced

            return call_traced(self, args)
        if self.out is not None:
            from ._call import call_declared

            return call_declared(self, args)
        return self.handle.run("call", args, layout=self.layout).tree()

    def leaves(self, arrays: list[Any]) -> list[Any]:
        """Call it with arrays, one for each argument, and return the value's leaves.

        They are NumPy arrays, unless JAX is tracing or the arrays are on a GPU. Nothing is
        flattened and built that the caller would take apart again.

        Raises:
            ArgumentTypeError: there are JAX arrays among them, and JAX cannot hold the value.
        """
        if any(map(_wants_program, arrays)):
            return jax.tree_util.tree_leaves(self(*arrays))
        result = self.handle.run("call", tuple(arrays), layout=self.layout)
        result.check()
        return result.leaves

    def __repr__(self) -> str:
        """Show the source, shortened."""
        source = self.source if self.source is not None else "juliacall value"
        short = source if len(source) <= 60 else source[:57] + "..."
        return f"from_julia({short!r}, ad={self.ad!r}, layout={self.layout!r})"

    def with_ad(self, ad: str) -> JuliaFunction:
        """Return the same function, differentiated by another system. The same each time."""
        if ad == self.ad:
            return self
        if ad not in self._others:
            jvp, vjp = self._rules
            self._others[ad] = JuliaFunction(
                self.handle,
                source=self.source,
                ad=ad,
                layout=self.layout,
                jvp=jvp,
                vjp=vjp,
                batched=self.batched,
                out=self.out,
            )
        return self._others[ad]

    def __copy__(self) -> JuliaFunction:
        """Return itself: nothing about it changes."""
        return self

    def __deepcopy__(self, memo: Any) -> JuliaFunction:
        """Return itself: nothing about it changes."""
        return self

    def __reduce__(self) -> Any:
        """Refuse to be pickled.

        Raises:
            ArgumentTypeError: always.
        """
        raise ArgumentTypeError(
            explain(
                "pickle",
                expected="values that can leave this process",
                got=f"{self!r}, which lives in this process's Julia",
                fix="Pickle the source, and call pb.from_julia where it is read.",
            )
        )


def _wants_program(leaf: Any) -> bool:
    """Tell what does not, or need not, cross by itself.

    Tracers, bfloat16, arrays on a GPU, and arrays of which other processes hold a part.
    """
    if isinstance(leaf, Tracer):
        return True
    return isinstance(leaf, jax.Array) and (
        leaf.dtype == jnp.bfloat16
        or any(d.platform != "cpu" for d in leaf.devices())
        or not leaf.is_fully_addressable
    )
