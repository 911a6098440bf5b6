"""The lines of source code that the equations of a JAX program come from."""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from ._programs import called_program

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


@dataclass(frozen=True)
class Location:
    """A line of the user's own code.

    Attributes:
        file: the path of the source file, as Python knows it (`"<stdin>"` for typed code).
        line: the number of the line, from 1.
        function: the name of the function that it stands in.
        source: the text of the line, without indentation; empty where it cannot be read.
        span: the expression on it: line, column, last line and last column, as `ast` counts them;
            None where it is not known. Two expressions on one line are the same location.
    """

    file: str
    line: int
    function: str
    source: str
    span: tuple[int, int, int, int] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Write `model.py:12 (loss)`."""
        return f"{os.path.basename(self.file)}:{self.line} ({self.function})"


def user_line(eqn: Any) -> Location | None:
    """Find the line of the user's code that an equation comes from.

    Lines of JAX, of pybridge and of Python's own library are passed over. An equation of a
    derivative has the line of the operation that was differentiated. Where no line of the user's
    calls a function, such as one that is given to the checker itself, it is that of its definition.

    Args:
        eqn: an equation of a jaxpr.

    Returns:
        The innermost line; None where the program holds none.
    """
    traceback = eqn.source_info.traceback
    for number, frame in enumerate(traceback.frames if traceback is not None else ()):
        if not frame.file_name.startswith(_passed_over()):
            span = _span(traceback, number)
            return _location(frame.file_name, frame.line_num, frame.function_name, span)
    called = called_program(eqn)
    return None if called is None else _definition_line(called)


def _definition_line(program: ClosedJaxpr) -> Location | None:
    """Find the line on which the function of a program begins, if it is one of the user's."""
    name, _, place = (program.jaxpr.debug_info.func_src_info or "").partition(" at ")
    file, _, line = place.rpartition(":")
    if not line.isdigit() or file.startswith(_passed_over()):
        return None
    return _location(file, int(line), name)


def calling_line() -> Location | None:
    """Find the line of the user's code that is being run, by the rule of `user_line`."""
    frame = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_passed_over()):
            return _location(code.co_filename, frame.f_lineno, code.co_qualname)
        frame = frame.f_back
    return None


def raising_line(error: BaseException) -> Location | None:
    """Find the innermost line of the user's code in the traceback of an exception."""
    found, trace = None, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_passed_over()):
            found = _location(code.co_filename, trace.tb_lineno, code.co_qualname)
        trace = trace.tb_next
    return found


def _location(file: str, line: int, function: str, span: Any = None) -> Location:
    return Location(file, line, function, linecache.getline(file, line).strip(), span)


def _span(traceback: Any, number: int) -> tuple[int, int, int, int] | None:
    """Find which expression a frame of an equation's traceback was running."""
    codes, instructions = traceback.raw_frames()
    positions = islice(codes[number].co_positions(), instructions[number] // 2, None)
    line, end_line, column, end_column = next(positions, (None,) * 4)
    if line is None or column is None or end_line is None or end_column is None:
        return None
    return line, column, end_line, end_column


@cache
def _passed_over() -> tuple[str, ...]:
    import jaxlib

    packages = [Path(module.__file__ or "").parent for module in (jax, jaxlib)]
    folders = [*packages, Path(__file__).parents[1], Path(os.__file__).parent]
    # Where packages stand inside the library's folder, those of users do as well.
    inside = [name for name in os.listdir(folders[-1]) if name != "site-packages"]
    library = [os.path.join(folders[-1], name) for name in inside]
    return (*(f"{folder}{os.sep}" for folder in folders[:-1]), *library, "<frozen", sys.executable)


def is_stopped_by_jax(eqn: Any) -> bool:
    """Tell whether a function of JAX's calls `stop_gradient` here, as `log_softmax` does."""
    traceback = eqn.source_info.traceback
    frames = traceback.frames if traceback is not None else ()
    of_jax = str(Path(jax.__file__ or "").parent) + os.sep
    for frame, caller in pairwise(frames):
        if frame.function_name == "stop_gradient" and frame.file_name.startswith(of_jax):
            return caller.file_name.startswith(of_jax)
    return False


def is_of_jax(closed: ClosedJaxpr) -> bool:
    """Tell whether a program is that of a function of JAX's own, such as `jnp.where`."""
    info = closed.jaxpr.debug_info
    source = info.func_src_info or ""
    file = getattr(info, "func_filename", None) or source.partition(" at ")[2]
    return file.startswith(_folder_of_jax())


# In these files of JAX's a function does more than one operation, and elsewhere these do.
_COMPOSED = ("nn/", "ops/", "scipy/", "image/", "random.py", "numpy/linalg.py", "numpy/fft.py",
             "numpy/polynomial.py", "numpy/window_functions.py")  # fmt: skip
_COMPOSED_ELSEWHERE = frozenset("""hypot logaddexp logaddexp2 nanstd nanvar sinc std var""".split())


def jax_function(eqn: Any) -> str:
    """Name the function of JAX's own that an equation is part of, such as `logsumexp`.

    Args:
        eqn: an equation of a jaxpr.

    Returns:
        The function that the user's code calls; empty where that is the operation itself.
    """
    traceback = eqn.source_info.traceback
    name, folder = "", _folder_of_jax()
    for frame in traceback.frames if traceback is not None else ():
        if not frame.file_name.startswith(folder):
            if not frame.file_name.startswith(_passed_over()):
                break
            continue
        file = frame.file_name.removeprefix(folder).removeprefix(f"_src{os.sep}")
        if file.startswith(_COMPOSED) or frame.function_name in _COMPOSED_ELSEWHERE:
            name = frame.function_name
    return name


@cache
def _folder_of_jax() -> str:
    return f"{Path(jax.__file__ or '').parent}{os.sep}"
