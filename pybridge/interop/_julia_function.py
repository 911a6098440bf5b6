"""A Julia function that is called from JAX."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from .._errors import ArgumentTypeError, explain
from ..julia import are_arrays
from ..primitives import holds_nondifferentiable, plain
from ._julia_callee import BridgedFunction, Jitted
from ._keywords import keyword_source

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
        keywords: str = "",
    ):
        """Keep the parts."""
        self.handle = handle
        self.source = source
        self._keywords = keywords
        self.ad = ad
        self.layout = layout
        self.batched = batched
        self.out = out
        self._rules = (jvp, vjp)
        self.declared: dict[Any, Any] = {}
        self._others: dict[str, JuliaFunction] = {}
        self._bound: dict[str, JuliaFunction] = {}
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

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the Julia function with numbers, arrays and trees of them.

        Keyword arguments are Julia's, and static: numbers, strings, None, `slice(None)` for
        Julia's `:`, and tuples of them.

        Raises:
            ArgumentTypeError: an argument cannot cross, or a keyword's value is not static.
            JuliaError: what the function throws, for one that it has no such keyword.
        """
        if keywords:
            return self.with_keywords(keywords)(*args)
        if not are_arrays(args):
            args = plain(args) if holds_nondifferentiable(args) else args
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
        shown = f"from_julia({short!r}, ad={self.ad!r}, layout={self.layout!r})"
        return f"{shown} with keywords {self._keywords}" if self._keywords else shown

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
                keywords=self._keywords,
            )
        return self._others[ad]

    def with_keywords(self, keywords: dict[str, Any]) -> JuliaFunction:
        """Return the function with keyword arguments bound. The same for the same values.

        Rules of one's own and a function for `out` get the keywords, too.

        Raises:
            ArgumentTypeError: a value is not static.
            ArgumentValueError: an integer has more than 64 bits.
        """
        if not keywords:
            return self
        text = keyword_source(dict(sorted(keywords.items())))
        if text not in self._bound:
            jvp, vjp = (rule and rule.with_keywords(text) for rule in self._rules)
            self._bound[text] = JuliaFunction(
                self.handle.with_keywords(text),
                source=self.source,
                ad=self.ad,
                layout=self.layout,
                jvp=jvp,
                vjp=vjp,
                batched=self.batched,
                out=functools.partial(self.out, **keywords) if callable(self.out) else self.out,
                keywords=text,
            )
        return self._bound[text]

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
