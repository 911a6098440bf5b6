"""Flux models held from Python."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from typing import Any

from .._errors import ArgumentTypeError, explain
from ._functions import JuliaHandle
from ._session import session


class ModelHandle:
    """A Flux model, by its number in Julia's table. Released when nobody holds it.

    Attributes:
        text: what `model_text` in PyBridgeFluxExt.jl says of it.
        source: the Julia source that made it, or None for a juliacall value.
    """

    def __init__(self, model: Any, using: Sequence[str] = ()):
        """Evaluate Julia source, or take over a juliacall value.

        Args:
            model: the source or the value.
            using: packages that the source names; they are loaded first.

        Raises:
            JuliaUnavailableError: Julia cannot be started.
            BackendNotLoadedError: Flux or another package cannot be installed or loaded.
            JuliaError: the source does not parse or throws.
            ArgumentTypeError: the value is no model, or holds a Python object.
        """
        started = session()
        for package in ("Flux", *using):
            started.require(package)
        self.source = model if isinstance(model, str) else None
        if isinstance(model, str):
            fields = (model, ",".join(using))
            number = started.call(lambda library: library.request("define_model", *fields))
        else:
            number = started.call(lambda library: started.julia.admit_model(model))
            if isinstance(number, str):
                raise ArgumentTypeError(
                    explain(
                        "flux",
                        expected="a Flux model",
                        got=number,
                        fix="JAX layers go around the Flux model: pb.nn.Chain(pb.flux(...), ...).",
                    )
                )
        self._take(int(number))

    def _take(self, number: int) -> None:
        self._session = session()
        self._number = number
        weakref.finalize(self, _release, self._session, number)
        self.text = json.loads(
            self._session.call(lambda library: library.request("model_text", number))
        )

    def fresh(self, words: Sequence[int]) -> ModelHandle:
        """Evaluate the source anew, with Julia's default generator seeded by these words."""
        number = self._session.call(
            lambda library: library.request("fresh_model", self._number, *words)
        )
        made = ModelHandle.__new__(ModelHandle)
        made.source = self.source
        made._take(int(number))
        return made

    def function(self, name: str) -> JuliaHandle:
        """Return one of its functions: `"train"`, `"test"`, `"read"` or `"write"`."""
        return JuliaHandle.registered(
            int(
                self._session.call(
                    lambda library: library.request("model_function", self._number, name)
                )
            )
        )

    def value(self) -> Any:
        """Return the model as a juliacall value."""
        return self._session.call(lambda _: self._session.julia.model_value(self._number))


def _release(session_: Any, number: int) -> None:
    session_.post(lambda library: library.request("release_model", number))
