"""Write the generated tables into the pages; all but `check-a-function` need Julia.

python docs/update_tables.py [inside-a-gradient | conventions | bridge | check-a-function |
    flux-layers | parity | lowering-coverage]

`flux-layers` takes ten minutes; `parity` and `lowering-coverage` half an hour each. These are made
only if named.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import flux_table
import lowering_table

import pybridge as pb

HERE = Path(__file__).parent
# The command `pybridge` with a Julia that interprets: a layer runs a few times under each system,
# and compiling all that takes hours.
INTERPRETED = f"""
import sys
sys.path.append({str(HERE.parent / "tests")!r})
import julia_state
from pybridge.cli import main
julia_state.start(julia_state.packages(), with_tools=True)
sys.exit(main(sys.argv[1:]))
"""
END = "<!-- end -->"


def replace(page: str, command: str, text: str) -> None:
    """Replace what stands between the markers of a command."""
    path, begin = HERE / page, f"<!-- generated: {command} -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(END, 1)
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{END}{after}", encoding="utf-8")


def output(*command: str) -> str:
    """Run a Python program and return what it prints."""
    done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def versions() -> str:
    """Name the systems, all of which have to be there but those that are not yet run."""
    systems = pb.backends()
    absent = [b.name for b in systems if not b.available and not b.experimental]
    if absent:
        sys.exit(f"update_tables: not available: {', '.join(absent)}")
    named = ", ".join(f"{b.name} ({b.package} {b.version})" for b in systems if b.available)
    return f"Systems: {named}.\n\n"


def inside_a_gradient() -> None:
    """Run the checker."""
    table = versions() + output("-m", "pybridge", "check", "--markdown")
    replace("inside-a-gradient.md", "pybridge check --markdown", table)


def bridge() -> None:
    """Run the benchmark; nothing else should be running."""
    table = output(str(HERE.parent / "benchmarks" / "bridge.py"), "--markdown")
    replace("explanation/bridge.md", "benchmarks/bridge.py --markdown", table)


def check_a_function() -> None:
    """List what the checker can find."""
    from pybridge.consistency import KINDS

    rows = [f"| `{kind}` | {meaning} |" for kind, meaning in KINDS.items()]
    table = "\n".join(["| kind | what it means |", "| --- | --- |", *rows])
    replace("how-to/check-a-function.md", "kinds", table)


def conventions() -> None:
    """Run the suite of conventions."""
    command = ("pybridge", "check", "--suite", "conventions", "--markdown")
    replace("explanation/conventions.md", " ".join(command), versions() + output("-m", *command))


def parity() -> None:
    """Compare the layers with their twins."""
    command = ("check", "--layers", "--markdown")
    table = versions() + output("-c", INTERPRETED, *command)
    replace("layers/parity.md", f"pybridge {' '.join(command)}", table)


def flux_layers() -> None:
    """Compare the layers with Flux's."""
    replace("layers/parity.md", "flux-layers", flux_table.markdown())


def lowering_coverage() -> None:
    """Run the tests of lowered programs in two processes; what fails is written down as a gap."""
    tests = HERE.parent / "tests" / "bridge"
    parts = ("primitives", "calls", "linalg", "peers")
    files = [str(tests / f"test_lowered_{part}.py") for part in parts]
    with tempfile.TemporaryDirectory() as folder:
        seen = str(Path(folder) / "seen.jsonl")
        options = ["-q", "-n", "2", "-m", "nightly or not nightly", "--interpret"]
        options += ["--lowering-table", seen]
        subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=HERE.parent)
        table = versions() + lowering_table.markdown(lowering_table.read(seen))
    replace(lowering_table.PAGE, "lowering", table)


def main() -> None:
    """Write the tables that are asked for, or all quick ones."""
    pages = {
        "inside-a-gradient": inside_a_gradient,
        "conventions": conventions,
        "bridge": bridge,
        "check-a-function": check_a_function,
    }
    slow = {
        "flux-layers": flux_layers,
        "parity": parity,
        "lowering-coverage": lowering_coverage,
    }
    for name in sys.argv[1:] or pages:
        (pages | slow)[name]()


if __name__ == "__main__":
    main()
