"""The `pybridge` command: check, doctor, provision."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._backends import NAMES
from ._errors import ArgumentValueError, BridgeError, explain
from ._version import package_version

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, ABSENT = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the words after `pybridge`; None for those of the process.

    Returns:
        The exit status: 0 when all is well, 1 when an answer is wrong or something
        failed, 2 when an AD system that was asked for is absent or the command line
        makes no sense.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except BridgeError as error:
        print(f"pybridge: {error}", file=sys.stderr)
        return ABSENT if isinstance(error, ArgumentValueError) else FAILED
    except KeyboardInterrupt:
        print("pybridge: interrupted", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pybridge",
        description="Ask AD systems of two languages the same questions.",
    )
    parser.add_argument("--version", action="version", version=f"pybridge {package_version()}")
    commands = parser.add_subparsers(required=True, metavar="command")

    check = commands.add_parser(
        "check",
        help="run the known hard cases on every AD system present",
        description="Run the known hard cases on every AD system present and show what "
        "each one answers. Exit status: 0 when every answer is right or documented, 1 when "
        "one is wrong, 2 when a system asked for with --backend is absent.",
    )
    check.add_argument(
        "--backend",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"only this AD system (may be repeated): {', '.join(NAMES)}",
    )
    check.add_argument(
        "--scenario",
        action="append",
        metavar="NAME",
        help="only the scenarios whose names begin so (may be repeated)",
    )
    check.add_argument(
        "--layers",
        action="store_true",
        help="compare the layers of pybridge.nn with their twins in Julia instead (minutes)",
    )
    check.add_argument("--list", action="store_true", help="list the scenarios and stop")
    output = check.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", action="store_true", help="print a Markdown table")
    check.add_argument(
        "--html", type=Path, metavar="FILE", help="also write a page that explains itself"
    )
    check.add_argument("-v", "--verbose", action="store_true", help="show sources and every number")
    check.set_defaults(run=_check)

    doctor = commands.add_parser(
        "doctor", help="show versions, paths, settings and the state of each AD system"
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)

    provision = commands.add_parser(
        "provision", help="install Julia and every AD system now rather than on first use"
    )
    provision.set_defaults(run=_provision)
    return parser


def _check(options: argparse.Namespace) -> int:
    return _check_layers(options) if options.layers else _check_scenarios(options)


def _check_scenarios(options: argparse.Namespace) -> int:
    from .consistency import run_scenarios, select_scenarios

    scenarios = select_scenarios(options.scenario)
    if options.list:
        _list_scenarios(scenarios)
        return OK
    progress = _console(stderr=True)
    systems = _prepared(options.backend or NAMES, progress)
    with progress.status("asking", spinner="dots") as status:
        run = run_scenarios(scenarios, systems, status.update)
    if options.html is not None:
        from .consistency import to_html

        options.html.write_text(to_html(run), encoding="utf-8")
    _print_run(run, options)
    if not run.ok:
        return FAILED
    missing = any(answer.status == "absent" for answer in run.answers.values())
    return ABSENT if options.backend and missing else OK


def _check_layers(options: argparse.Namespace) -> int:
    from .consistency import (
        compare_layers,
        layers_ok,
        layers_to_markdown,
        load_layers,
        print_layers,
    )

    if options.json or options.html is not None or options.list or options.scenario:
        raise ArgumentValueError(
            explain(
                "pybridge check --layers",
                expected="no option but --backend and --markdown",
                got="another one",
                fix="The other options belong to the scenarios.",
            )
        )
    progress = _console(stderr=True)
    names = [name for name in options.backend or NAMES if name != "jax"]
    systems = _prepared(names, progress)
    with progress.status("comparing", spinner="dots") as status:
        rows = list(compare_layers(load_layers(), systems, progress=status.update))
    if options.markdown:
        print(layers_to_markdown(rows, systems))
    else:
        print_layers(rows, systems, _console())
    if not layers_ok(rows):
        return FAILED
    return ABSENT if options.backend and not all(s.available for s in systems) else OK


def _prepared(names: Sequence[str], progress: Console) -> list[Any]:
    """Make AD systems ready.

    Progress goes to stderr, that of juliapkg as well, so that stdout can be a file. No spinner
    while Julia starts: Pkg shows its own progress there.
    """
    from .consistency import prepare

    systems = []
    for name in dict.fromkeys(names):
        if progress.is_terminal:
            progress.print(f"making {name} ready", style="dim")
        with contextlib.redirect_stdout(sys.stderr):
            systems.append(prepare(name))
    return systems


def _print_run(run: Any, options: argparse.Namespace) -> None:
    from .consistency import print_report, to_json, to_markdown

    if options.json:
        print(to_json(run))
    elif options.markdown:
        print(to_markdown(run))
    else:
        console = _console()
        print_report(run, console, verbose=options.verbose)
        if options.html is not None:
            console.print(f"The page is in {options.html}.", highlight=False)


def _list_scenarios(scenarios: Sequence[Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for scenario in scenarios:
        table.add_row(scenario.name, scenario.title)
    _console().print(table, markup=False)


def _doctor(options: argparse.Namespace) -> int:
    from .julia.doctor import collect

    with contextlib.redirect_stdout(sys.stderr):
        sections = collect()
    if options.json:
        print(
            json.dumps(
                {title: [list(row) for row in rows] for title, rows in sections.items()},
                indent=2,
            )
        )
    else:
        _print_sections(sections)
    return OK


def _print_sections(sections: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = _console()
    for title, rows in sections.items():
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for label, value, note in rows:
            table.add_row(escape(f"  {label}"), f"{escape(value)}  [dim]{escape(note)}[/]")
        console.print(f"[bold]{escape(title)}[/]")
        console.print(table, "", highlight=False)


def _provision(options: argparse.Namespace) -> int:
    from .julia.provision import provision_all

    systems, others = provision_all()
    rows = [(s.package, s.version or "absent", s.reason or "") for s in systems]
    rows += [(package, state, "") for package, state in others.items()]
    _print_sections({"Installed": rows})
    return OK if all(system.available for system in systems) else FAILED


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)
