"""The part of a Julia function that traced programs refer to."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .._backends import row

if TYPE_CHECKING:
    from ..julia import JuliaHandle
    from ._executable import JuliaProgram
    from ._julia_program import Program


class BridgedFunction:
    """A Julia function as the primitives see it; see `Function` in `_julia_program.py`.

    JAX caches programs under the functions that were traced, and a program refers to this object.
    So this one must not refer to anything that was traced: the compiled calls are in the object
    that the user holds, and here is only a weak reference to their dictionary.
    """

    def __init__(
        self,
        handle: JuliaHandle,
        rules: tuple[JuliaHandle | None, JuliaHandle | None],
        *,
        name: str,
        ad: str,
        layout: str,
        batched: bool,
        jitted: Jitted,
    ):
        """Keep the parts; `rules` are the user's own jvp and vjp."""
        self.handle = handle
        self.layout = layout
        self.batched = batched
        self._ad = ad
        self._name = name
        self._rules = rules
        self._jitted = weakref.ref(jitted)
        self._executables: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()

    def __repr__(self) -> str:
        """Name the function that it is part of."""
        return self._name

    @property
    def jitted(self) -> Jitted:
        """Compiled calls by program; a new dictionary where nobody holds the function."""
        found = self._jitted()
        return Jitted() if found is None else found

    @property
    def has_reverse(self) -> bool:
        """Whether a gradient costs about as much as the value, in any dimension.

        Then it serves forward mode, too, unless the user has a rule of their own for that.
        """
        jvp, vjp = self._rules
        return jvp is None and (self._ad != "forwarddiff" or vjp is not None)

    def executable(self, program: Program) -> JuliaProgram:
        """Make a program ready to run, unless a compiled one has it already."""
        from ..julia import require
        from ._executable import JuliaProgram

        found = self._executables.get(program)
        if found is None:
            ad = self._ad
            if program.kind == "call" and not program.wrt:
                # It needs no system. Under one name it is compiled once for all of them, and for
                # this one a small call is compiled ahead.
                ad = "zygote"
            else:
                # ForwardDiff is every system's forward mode.
                for system in {ad, "forwarddiff"}:
                    require(row(system))
            found = JuliaProgram((self.handle, *self._rules), ad, program)
            self._executables[program] = found
        return found


class Jitted(dict):
    """A dictionary that can be referred to weakly."""
