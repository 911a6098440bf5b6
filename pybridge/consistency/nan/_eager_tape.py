"""Record a function that only runs on concrete values: boolean masks, a Python `if`.

`jax.grad` differentiates such functions outside of `jit`, `jax.make_jaxpr` cannot trace them.
Here they run on tracers that know their value, as those of `jax.grad` do, and each operation
is traced on its own, which also keeps the user's line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.extend.core as extend_core
from jax.core import Trace, Tracer

from ...jaxprs import CallSite, calling_line
from ._tape import Tape


def _public(name: str) -> Any:
    """Find a name in `jax.extend.core`, where newer versions keep it, or in `jax.core`."""
    return getattr(extend_core if hasattr(extend_core, name) else jax.core, name)


_TAKES_AVAL = "aval" in inspect.signature(Tracer.__init__).parameters


class _Recorded(Tracer):
    """A value on the tape that depends on a differentiated input."""

    __slots__ = ("place", "value")

    def __init__(self, trace: Trace, value: Any, place: int):
        arguments: Any = (trace, jax.typeof(value)) if _TAKES_AVAL else (trace,)
        super().__init__(*arguments)
        self.value = value
        self.place = place

    def full_lower(self) -> Any:
        return self

    def is_concrete(self) -> bool:
        return True

    def to_concrete_value(self) -> Any:
        return self.value


if not _TAKES_AVAL:
    _Recorded.aval = property(lambda self: jax.typeof(self.value))  # type: ignore


class _RecordingTrace(Trace):
    """Runs each operation at once, and writes it onto a tape."""

    def __init__(self, parent: Trace, tape: Tape):
        super().__init__()
        self.parent = parent
        self.tape = tape

    def enter(self, place: int) -> Any:
        """Return what the function sees of a value: a tracer only where it is active."""
        value = self.tape.values[place]
        return _Recorded(self, value, place) if self.tape.active[place] else value

    def place(self, value: Any) -> int:
        """Return the place of what the function gives back."""
        return value.place if isinstance(value, _Recorded) else self.tape.keep(value)

    def _run(self, function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
        places, here = list(map(self.place, args)), CallSite(calling_line())
        with _public("set_current_trace")(self.parent):
            traced = jax.make_jaxpr(function)(*(self.tape.values[place] for place in places))
            return list(map(self.enter, self.tape.run(traced, places, here)))

    def process_primitive(self, primitive: Any, tracers: Any, params: Any) -> Any:
        outs = self._run(lambda *xs: primitive.bind(*xs, **params), tracers)
        return outs if primitive.multiple_results else outs[0]

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Any, **params: Any
    ) -> Any:
        def staged(*xs: Any) -> Any:
            with _public("take_current_trace")() as trace:
                return trace.process_custom_jvp_call(primitive, fun, jvp, xs, **params)

        return self._run(staged, tracers)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, **params: Any
    ) -> Any:
        def staged(*xs: Any) -> Any:
            with _public("take_current_trace")() as trace:
                return trace.process_custom_vjp_call(primitive, fun, fwd, bwd, xs, **params)

        return self._run(staged, tracers)


def record_eagerly(function: Callable[..., Any], args: Sequence[Any], is_finite: bool) -> Tape:
    """Run a function of arrays, all of them differentiated, and keep every step.

    Args:
        function: gives a list of arrays.
        args: its arguments.
        is_finite: whether its value is.
    """
    tape = Tape(args, is_finite)
    with _public("take_current_trace")() as parent:
        trace = _RecordingTrace(parent, tape)
    tracers = list(map(trace.enter, tape.inputs))
    with _public("set_current_trace")(trace):
        outs = function(*tracers)
    return tape.end(list(map(trace.place, outs)))
