"""Write the generated table into docs/inside-a-gradient.md; needs Julia.

python docs/update_tables.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pybridge as pb

PAGE = Path(__file__).with_name("inside-a-gradient.md")
BEGIN, END = "<!-- generated: pybridge check --markdown -->", "<!-- end -->"


def main() -> None:
    """Run the checker and replace what stands between the markers."""
    absent = [backend.name for backend in pb.backends() if not backend.available]
    if absent:
        sys.exit(f"update_tables: not available: {', '.join(absent)}")
    versions = ", ".join(f"{b.name} ({b.package} {b.version})" for b in pb.backends())
    command = [sys.executable, "-m", "pybridge", "check", "--markdown"]
    table = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    generated = f"{BEGIN}\n\nSystems: {versions}.\n\n{table.strip()}\n\n{END}"
    PAGE.write_text(before + generated + after, encoding="utf-8")


if __name__ == "__main__":
    main()
