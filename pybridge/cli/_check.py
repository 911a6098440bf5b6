"""`pybridge check`: a function, a suite of cases, or the table of layers."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._backends import NAMES, row
from .._errors import ArgumentValueError, UnknownBackendError, explain

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, ABSENT = 0, 1, 2

_OPTIONS = (
    *("args", "probe", "rtol", "atol", "suite", "scenario", "layers", "list"),
    *("backend", "json", "markdown", "html", "verbose"),
)
_OF_TARGET = ("args", "probe", "rtol", "atol", "backend", "json", "markdown", "html", "verbose")

_DESCRIPTION = """\
Check one function (TARGET), or run the known hard cases on every AD system present and show
what each one answers. Exit status: 0 when every answer is right or documented, 1 when one is
wrong, 2 when a system asked for with --backend is absent or the command line makes no sense.
"""


def add_check(commands: Any) -> None:
    """Add the command to the parser's commands."""
    check = commands.add_parser(
        "check",
        help="check a function, or run the known hard cases, on every AD system present",
        description=_DESCRIPTION,
    )
    check.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="the function to check: module:name or file.py:name; its code is run",
    )
    check.add_argument(
        "--args",
        nargs="+",
        action="extend",
        metavar="EXPR",
        help="the target's arguments, one Python expression each, in which np, jnp, jax and pb "
        'are known: 1.0 "[1.0, 2.0]" "jnp.ones((3,))"',
    )
    check.add_argument(
        "--probe",
        action="append",
        metavar="NAME",
        help="check the target at these points (may be repeated): given, zeros, ties, ...",
    )
    for name, what in (("rtol", "by this part of their size"), ("atol", "by this much")):
        check.add_argument(
            f"--{name}",
            type=float,
            metavar="NUMBER",
            help=f"let the target's derivatives differ {what}",
        )
    check.add_argument(
        "--suite",
        nargs="?",
        const="",
        metavar="NAME",
        help="run this suite of cases, or all; with --list say which there are",
    )
    check.add_argument(
        "--backend",
        action="append",
        type=_system,
        metavar="NAME",
        help=f"only this AD system (may be repeated): {', '.join(NAMES)}, or one of Julia's others "
        "by its name in ADTypes, such as 'di:AutoFiniteDiff()'",
    )
    check.add_argument(
        "--scenario",
        action="append",
        metavar="NAME",
        help="only the cases whose names begin so (may be repeated)",
    )
    check.add_argument(
        "--layers",
        action="store_true",
        help="compare the layers of pybridge.nn with their twins in Julia instead (minutes)",
    )
    check.add_argument("--list", action="store_true", help="list the cases and stop")
    output = check.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", action="store_true", help="print a Markdown table")
    check.add_argument(
        "--html", type=Path, metavar="FILE", help="also write a page that explains itself"
    )
    check.add_argument("-v", "--verbose", action="store_true", help="show sources and every number")
    check.set_defaults(run=_check)


def with_expressions(words: Sequence[str]) -> list[str]:
    """Tell argparse what after `--args` is an expression, though it begins with a minus: -pi."""
    marked, is_expression = [], False
    for word in words:
        if word.startswith("--") or word in ("-h", "-v"):
            is_expression = word == "--args"
        elif is_expression and word.startswith("-"):
            word = f" {word}"
        marked.append(word)
    return marked


def _system(name: str) -> str:
    """Read the name of an AD system off the command line."""
    try:
        return row(name, argument="--backend").name
    except UnknownBackendError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _check(options: argparse.Namespace) -> int:
    if options.target is not None:
        _refuse(options, "with a TARGET", _OF_TARGET, "The others belong to the suites.")
    elif options.layers:
        _refuse(options, "with --layers", ("backend", "markdown"), "The others are for cases.")
    else:
        allowed = tuple(name for name in _OPTIONS if name not in _OF_TARGET[:4])
        fix = "Name the function before them: pybridge check mymodule:f --args 1.0"
        _refuse(options, "without a TARGET", allowed, fix)
    if options.html is not None:
        from ..consistency import writable

        options.html = writable(options.html, "pybridge check --html")
    if options.target is not None:
        return _check_target(options)
    return _check_layers(options) if options.layers else _check_suites(options)


def _refuse(options: argparse.Namespace, where: str, allowed: Sequence[str], fix: str) -> None:
    """Refuse options that do not go together with what is checked."""
    given = [name for name in _OPTIONS if getattr(options, name) not in (None, False)]
    others = [f"--{name}" for name in given if name not in allowed and f"--{name}" not in where]
    if others:
        raise ArgumentValueError(
            explain(
                f"pybridge check {where}",
                expected=f"no option but {_named(allowed)}",
                got=", ".join(others),
                fix=fix,
            )
        )


def _named(options: Sequence[str]) -> str:
    """Write `--backend and --markdown`."""
    from ..consistency import join

    return join([f"--{name}" for name in options])


def _check_target(options: argparse.Namespace) -> int:
    from ..interop import JuliaFunction
    from ._target import load_target, read_arguments

    with contextlib.redirect_stdout(sys.stderr):  # what the module prints while it is imported
        function = load_target(options.target)
        arguments = read_arguments(function, options.args or ())
    progress = console(stderr=True)
    # Those that the function needs anyway: Julia's packages show their own progress.
    names = options.backend or (NAMES if isinstance(function, JuliaFunction) else ())
    _prepared(names, progress, asked=bool(options.backend))

    from ..consistency import check

    probes = tuple(options.probe or ("given",))
    given = {name: getattr(options, name) for name in ("rtol", "atol")}
    tolerances = {name: value for name, value in given.items() if value is not None}
    with (
        progress.status("checking", spinner="dots") as status,
        contextlib.redirect_stdout(sys.stderr),
    ):
        report = check(
            function,
            *arguments,
            backends=options.backend,
            probes=probes,
            progress=status.update,
            **tolerances,
        )
    return _show({"": report}, options)


def _check_suites(options: argparse.Namespace) -> int:
    from ..consistency import SUITES, run_suites, suite

    if options.suite == "" and options.list:
        _list([(name, entry.title) for name, entry in SUITES.items()])
        return OK
    names = list(SUITES) if options.suite == "" else [options.suite or "scenarios"]
    if len(names) > 1:
        allowed = ("suite", "backend", "json", "markdown", "verbose")
        _refuse(options, "with several suites", allowed, "Name one: --suite scenarios")
    cases = {name: suite(name).select(options.scenario) for name in names}
    if options.list:
        _list([(case.name, case.title) for name in names for case in cases[name]])
        return OK
    progress = console(stderr=True)
    systems = _prepared(options.backend or NAMES, progress, asked=bool(options.backend))
    with progress.status("asking", spinner="dots") as status:
        results = run_suites(cases, systems, status.update)
    return _show(results, options)


def _show(results: dict[str, Any], options: argparse.Namespace) -> int:
    """Print what was found, several suites each under its name; return the exit status."""
    several = len(results) > 1
    if options.html is not None:
        (result,) = results.values()
        result.to_html(options.html)
    if options.json:
        texts = {name: result.to_json() for name, result in results.items()}
        joined = json.dumps({name: json.loads(text) for name, text in texts.items()}, indent=2)
        print(joined if several else next(iter(texts.values())))
    elif options.markdown:
        heads = {name: f"## {name}\n\n" if several else "" for name in results}
        print("\n\n".join(heads[name] + r.to_markdown() for name, r in results.items()))
    else:
        out = console()
        for name, result in results.items():
            if several:
                out.rule(name, align="left")
            result.print(out, verbose=options.verbose)
        if options.html is not None:
            out.print(f"The page is in {options.html}.", highlight=False, markup=False)
    ok = all(result.ok for result in results.values())
    return _status(options, ok, any(result.absent for result in results.values()))


def _status(options: argparse.Namespace, ok: bool, absent: bool) -> int:
    """Choose the exit status; what is absent counts only where it was asked for."""
    return FAILED if not ok else ABSENT if options.backend and absent else OK


def _list(rows: Sequence[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, title in rows:
        table.add_row(name, title)
    console().print(table, markup=False)


def _check_layers(options: argparse.Namespace) -> int:
    from ..consistency import (
        compare_layers,
        layers_ok,
        layers_to_markdown,
        load_layers,
        print_layers,
    )

    progress = console(stderr=True)
    names = [name for name in options.backend or NAMES if name != "jax"]
    systems = _prepared(names, progress, asked=bool(options.backend))
    rows = []
    with progress.status("comparing", spinner="dots") as status:
        answers = compare_layers(load_layers(), systems, progress=status.update)
        if options.markdown:
            # Line by line: the whole takes minutes, and may be stopped.
            for line in layers_to_markdown(_keep(answers, rows), systems):
                print(line, flush=True)
        else:
            rows += answers
    if not options.markdown:
        print_layers(rows, systems, console())
    return _status(options, layers_ok(rows), not all(system.available for system in systems))


def _keep(items: Iterable[Any], where: list[Any]) -> Iterator[Any]:
    """Pass items on, and put each into a list."""
    for item in items:
        where.append(item)
        yield item


def _prepared(names: Sequence[str], progress: Console, *, asked: bool) -> list[Any]:
    """Make AD systems ready; with `asked`, those as well that are not installed unless named.

    Progress goes to stderr, that of juliapkg as well, so that stdout can be a file. No spinner
    while Julia starts: Pkg shows its own progress there.
    """
    from ..consistency import prepare

    systems = []
    for name in dict.fromkeys(names):
        if progress.is_terminal:
            progress.print(f"making {name} ready", style="dim")
        with contextlib.redirect_stdout(sys.stderr):
            systems.append(prepare(name, asked=asked))
    return systems


def console(*, stderr: bool = False) -> Console:
    """Make a rich console on stdout or stderr."""
    from rich.console import Console

    return Console(stderr=stderr)
