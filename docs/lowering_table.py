"""The table of primitives and AD systems, from what the tests of lowered programs saw.

    pytest -m "nightly or not nightly" --interpret --lowering-table seen.jsonl \
        tests/bridge/test_lowered_{primitives,calls,linalg,peers}.py
    python docs/lowering_table.py seen.jsonl

The first command takes long, though Julia interprets what it runs but once.
`python docs/update_tables.py lowering-coverage` does both.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pybridge._backends import TABLE
from pybridge.lowering._registry import EMITTERS, REFUSED

PAGE = "explanation/lowering-coverage.md"
SYSTEMS = [row.name for row in TABLE if row.language == "julia" and not row.experimental]
COLUMNS = ("value", *SYSTEMS)
RIGHT, NONE, UNTESTED, UNSEEN = "right", "none", "not tested", "—"
JAX_HAS_NONE = "JAX has none"

Record = dict[str, Any]


def read(path: str | Path) -> list[Record]:
    """Read the notes: one line of JSON for each test."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def gap(record: Record) -> str:
    """Say why a test does not show what it should; empty if it does."""
    if record["gap"]:
        return record["gap"]
    return "" if record["passed"] else f"the test fails: {record['why']}"


def primitives_table(records: list[Record]) -> list[str]:
    """Make the rows of primitives: what is right, what is not and why.

    A primitive is right in a column if a program that contains it is. Of a program that is not,
    the primitive is to blame that the fewest other programs contain: there each is short.
    """
    cases = [r for r in records if r["table"] == "cases"]
    programs = {name: made for r in cases for name, made in r["programs"].items()}
    rare = Counter(p for made in programs.values() for p in set(made["primitives"]))
    right: set[tuple[str, str]] = set()
    wrong: dict[tuple[str, str], str] = {}
    everywhere = [made for r in records for made in r["programs"].values()]
    seen = {p for made in everywhere for p in made["primitives"]}
    moving = {p for made in everywhere for p in made["differentiated"]}
    derived = {p for made in everywhere if made["derivable"] for p in made["differentiated"]}
    for record in records:
        column, why = record["column"], gap(record)
        for name, made in record["programs"].items():
            which = made["primitives"] if column == "value" else made["differentiated"]
            if not why:
                right |= {(p, column) for p in which}
            elif which and record["table"] == "cases":
                blamed = min(which, key=lambda p: (rare[p], p))
                wrong.setdefault((blamed, column), f"gap in `{name}`: {cell(why)}")
    rows = [f"| primitive | {' | '.join(COLUMNS)} |", f"| --- |{' --- |' * len(COLUMNS)}"]
    for name in sorted(EMITTERS):
        cells = []
        for column in COLUMNS:
            found = RIGHT if (name, column) in right else UNTESTED
            if name not in seen:
                found = UNSEEN
            elif column != "value" and name not in derived:
                found = JAX_HAS_NONE if name in moving else NONE
            cells.append(wrong.get((name, column), found))
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return rows


def programs_table(records: list[Record]) -> list[str]:
    """Make the rows of programs that other people wrote, with their primitives."""
    seen = [r for r in records if r["table"] == "programs"]
    names = sorted({name for r in seen for name in r["programs"]})
    rows = [f"| program | {' | '.join(COLUMNS)} | primitives |"]
    rows.append(f"| --- |{' --- |' * (len(COLUMNS) + 1)}")
    for name in names:
        mine = [r for r in seen if name in r["programs"]]
        found = {r["column"]: cell(gap(r)) or RIGHT for r in mine}
        primitives = mine[0]["programs"][name]["primitives"]
        cells = [found.get(column, UNTESTED) for column in COLUMNS]
        listed = ", ".join(f"`{p}`" for p in primitives)
        rows.append(f"| {name} | {' | '.join(cells)} | {listed} |")
    return rows


def cell(text: str) -> str:
    """Write text so that it stays in its cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(records: list[Record]) -> str:
    """Make all that is generated on the page."""
    refused = [f"| `{name}` | {cell(REFUSED[name])} |" for name in sorted(REFUSED)]
    parts = [
        "## Lowered",
        "\n".join(primitives_table(records)),
        "## Refused",
        "\n".join(["| primitive | why |", "| --- | --- |", *refused]),
        "## Programs that others wrote",
        "\n".join(programs_table(records)),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Write the page from the file that is named."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    from update_tables import replace, versions

    replace(PAGE, "lowering", versions() + markdown(read(sys.argv[1])))


if __name__ == "__main__":
    main()
