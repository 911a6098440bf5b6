"""Write the generated tables into the pages; needs Julia.

python docs/update_tables.py [inside-a-gradient | bridge]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pybridge as pb

HERE = Path(__file__).parent
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
    """Name the systems, all of which have to be there."""
    absent = [backend.name for backend in pb.backends() if not backend.available]
    if absent:
        sys.exit(f"update_tables: not available: {', '.join(absent)}")
    named = ", ".join(f"{b.name} ({b.package} {b.version})" for b in pb.backends())
    return f"Systems: {named}.\n\n"


def inside_a_gradient() -> None:
    """Run the checker."""
    table = versions() + output("-m", "pybridge", "check", "--markdown")
    replace("inside-a-gradient.md", "pybridge check --markdown", table)


def bridge() -> None:
    """Run the benchmark; nothing else should be running."""
    table = output(str(HERE.parent / "benchmarks" / "bridge.py"), "--markdown")
    replace("explanation/bridge.md", "benchmarks/bridge.py --markdown", table)


def main() -> None:
    """Write the tables that are asked for, or all."""
    pages = {"inside-a-gradient": inside_a_gradient, "bridge": bridge}
    for name in sys.argv[1:] or pages:
        pages[name]()


if __name__ == "__main__":
    main()
