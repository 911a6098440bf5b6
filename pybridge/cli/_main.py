"""The `pybridge` command: check, doctor, provision."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from .._errors import ArgumentTypeError, ArgumentValueError, BridgeError
from .._version import package_version
from ._check import ABSENT, FAILED, OK, add_check, console, with_expressions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the words after `pybridge`; None for those of the process.

    Returns:
        The exit status: 0 when all is well, 1 when an answer is wrong or something
        failed, 2 when an AD system that was asked for is absent or the command line
        makes no sense.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may have few characters: LC_ALL=C
            stream.reconfigure(errors="replace")
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(with_expressions(words))
    try:
        return options.run(options)
    except BridgeError as error:
        print(f"pybridge: {error}", file=sys.stderr)
        wrong_call = isinstance(error, ArgumentValueError | ArgumentTypeError)
        return ABSENT if wrong_call else FAILED
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

    add_check(commands)

    doctor = commands.add_parser(
        "doctor", help="show versions, paths, settings and the state of each AD system"
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)

    provision = commands.add_parser(
        "provision", help="install Julia and every AD system now rather than on first use"
    )
    provision.add_argument(
        "--sysimage",
        action="store_true",
        help="build a system image besides, from which later processes start Julia in less time; "
        "takes minutes and a C compiler",
    )
    provision.set_defaults(run=_provision)
    return parser


def _doctor(options: argparse.Namespace) -> int:
    from ..julia.doctor import collect

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

    out = console()
    for title, rows in sections.items():
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for label, value, note in rows:
            table.add_row(escape(f"  {label}"), f"{escape(value)}  [dim]{escape(note)}[/]")
        out.print(f"[bold]{escape(title)}[/]")
        out.print(table, "", highlight=False)


def _provision(options: argparse.Namespace) -> int:
    from ..julia.provision import provision_all, provision_image

    systems, others = provision_all()
    rows = [(s.package, s.version or "absent", s.reason or "") for s in systems]
    rows += [(package, state, "") for package, state in others.items()]
    if options.sysimage:
        rows.append(("system image", str(provision_image()), ""))
    _print_sections({"Installed": rows})
    return OK if all(system.available or system.experimental for system in systems) else FAILED
