"""The report of `pb.check` as text, Markdown, JSON and HTML."""

import io
import json
import math
import os
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from check_reports import (
    FINITE,
    JAX,
    SCRIPT,
    YOTA,
    clean_report,
    hostile_report,
    kink_report,
)
from html_pages import parse
from rich.console import Console

from pybridge._errors import ArgumentValueError
from pybridge.consistency import (
    KINDS,
    Finding,
    Probe,
    Report,
    SlopeCurve,
    SystemAnswer,
    to_html,
)
from pybridge.consistency.report import Case, brief, cases, cell, curve_html, overview

REPORTS = {
    "kink": kink_report(),
    "clean": clean_report(),
    "hostile": hostile_report(),
    "empty": Report("f", (), (), (), ()),
}


def report_of(*answers, findings=(), systems=(JAX, FINITE), probe="given"):
    return Report("f", systems, (Probe(probe, (), {}, {}),), answers, findings)


def answer(system="jax", mode="reverse", derivative=1.0, deviation=0.0, **kwargs):
    derivatives = {"args[0]": np.asarray(derivative)}
    return SystemAnswer(system, mode, "given", {"": np.ones(())}, derivatives, deviation, **kwargs)


# ---------------------------------------------------------------------- cells


@pytest.mark.parametrize(
    ("deviation", "status"),
    [(0.0, "right"), (1e-9, "right"), (0.5, "apart"), (math.nan, "apart"), (None, "reference")],
)
def test_without_a_finding_the_deviation_decides(deviation, status):
    report = report_of(answer(deviation=deviation))
    assert cell(report, Case("given", "reverse"), JAX).status == status


@pytest.mark.parametrize("severity", ["error", "warning", "note"])
def test_a_finding_decides_over_the_deviation(severity):
    finding = Finding("minority", severity, "it differs", ("jax",), "reverse")
    report = report_of(answer(), findings=(finding,))
    found = cell(report, Case("given", "reverse"), JAX)
    assert (found.status, found.findings) == (severity, (0,))


def test_of_several_findings_the_gravest_decides():
    kinds = [("note", "kink"), ("error", "minority"), ("warning", "special-case")]
    found = tuple(Finding(kind, severity, "", ("jax",)) for severity, kind in kinds)
    report = report_of(answer(), findings=found)
    assert cell(report, Case("given", "reverse"), JAX).status == "error"


@pytest.mark.parametrize(
    "changes",
    [
        {"systems": ("zygote",)},
        {"mode": "forward"},
        {"probe": "zeros"},
        {"argument": "args[1]"},
        {"kind": "second-order", "mode": None},
        {"kind": "mode-dependent", "mode": None},
    ],
)
def test_a_finding_about_something_else_leaves_the_cell(changes):
    about = Finding("minority", "error", "", ("jax",), "reverse", "given", "args[0]")
    case = Case("given", "reverse", "args[0]")
    assert cell(report_of(answer(), findings=(about,)), case, JAX).status == "error"
    other = replace(about, **changes)
    assert cell(report_of(answer(), findings=(other,)), case, JAX).status == "right"


def test_a_finding_about_all_systems_leaves_finite_differences():
    finding = Finding("finite", "error", "all agree and are wrong")
    report = report_of(answer(), answer("finite", "reverse"), findings=(finding,))
    assert cell(report, Case("given", "reverse"), JAX).status == "error"
    assert cell(report, Case("given", "reverse"), FINITE).status == "reference"


def test_a_failure_is_told_from_a_refusal_and_from_absence():
    failed = SystemAnswer("jax", "second", "given", error="TypeError: no")
    refusal = Finding("unsupported", "note", "it says so", ("jax",), "second")
    report = report_of(answer(), failed)
    case = Case("given", "second")
    assert cell(report, case, JAX).status == "failed"
    assert cell(replace(report, findings=(refusal,)), case, JAX).status == "unsupported"
    assert cell(report, case, YOTA).status == "absent"
    assert cell(report, case, FINITE) is None


def test_a_refusal_leaves_the_answers_that_there_are():
    refusal = Finding("unsupported", "note", "no second order", ("jax",))
    report = report_of(answer(), findings=(refusal,))
    assert cell(report, Case("given", "reverse"), JAX).status == "right"


def test_each_argument_has_a_deviation_of_its_own():
    def derivatives(first, second):
        return {"args[0]": np.array(first), "args[1]": np.array(second)}

    value = {"": np.ones(())}
    report = report_of(
        SystemAnswer("jax", "reverse", "given", value, derivatives([1.0, 3.0], 2.0), 1 / 3),
        SystemAnswer("finite", "forward", "given", value, derivatives([1.0, 2.0], 2.0)),
    )
    deviations = {
        case.argument: cell(report, case, JAX).deviation
        for case in cases(report)
        if case.mode == "reverse"
    }
    # |3 - 2| / (1 + 2), and no difference in the second.
    assert deviations == {"args[0]": pytest.approx(1 / 3), "args[1]": 0.0}


def test_the_deviation_of_an_argument_leaves_out_what_has_no_derivative():
    def derivatives(first, second):
        return {"args[0]": np.array(first), "args[1]": np.array(second)}

    value = {"": np.ones(())}
    report = report_of(
        # The last element is at a kink, which the answer's own deviation leaves out.
        SystemAnswer("jax", "reverse", "given", value, derivatives([np.inf, 1.0, 9.0], 2.0), 0.0),
        SystemAnswer(
            "jax", "forward", "given", value, derivatives([1.0, np.nan, 2.0], 2.0), np.nan
        ),
        SystemAnswer(
            "finite", "forward", "given", value, derivatives([np.inf, 1.0, 2.0], 2.0), 0.0
        ),
    )
    assert cell(report, Case("given", "reverse", "args[0]"), JAX).deviation == 0.0
    assert math.isnan(cell(report, Case("given", "forward", "args[0]"), JAX).deviation)
    assert cell(report, Case("given", "forward", "args[1]"), JAX).deviation == 0.0


def test_nan_is_shown_whatever_the_deviation_says():
    report = report_of(answer(derivative=[np.nan, 1.0], deviation=1e-15))
    assert math.isnan(cell(report, Case("given", "reverse"), JAX).deviation)
    assert math.isnan(cell(report, Case("given", "reverse", "args[0]"), JAX).deviation)


def test_finite_differences_are_the_reference():
    report = report_of(answer("finite", "forward", deviation=0.0))
    found = cell(report, Case("given", "forward"), FINITE)
    assert (found.status, found.deviation) == ("reference", None)


def test_many_arguments_share_a_row_but_those_with_findings():
    derivatives = {f"args[{i}]": np.ones(()) for i in range(30)}
    finding = Finding("minority", "error", "", ("jax",), "reverse", "given", "args[17]")
    report = report_of(
        SystemAnswer("jax", "reverse", "given", {}, derivatives, 0.1), findings=(finding,)
    )
    rows = [case.argument for case in cases(report) if case.mode == "reverse"]
    assert rows == ["", "args[17]"]


def test_the_overview_has_the_worst_of_all_points():
    table = overview(kink_report())
    assert table["jax", "reverse"].status == "error"
    assert math.isnan(table["jax", "reverse"].deviation)
    assert table["zygote", "reverse"].status == "failed"
    assert table["forwarddiff", "second"].status == "unsupported"
    assert table["jax", "value"].status == "warning"


def test_the_overview_has_the_largest_deviation_whichever_point_has_the_worst_status():
    finding = Finding("kink", "note", "", ("jax",), "reverse", "zeros")
    probes = tuple(Probe(name, (), {}, {}) for name in ("given", "zeros"))
    near, far = answer(deviation=1e-9), answer(deviation=1e-4)
    answers = (far, replace(near, probe="zeros"))
    found = overview(Report("f", (JAX,), probes, answers, (finding,)))["jax", "reverse"]
    assert (found.status, found.deviation) == ("note", 1e-4)


# ----------------------------------------------------------------------- text


def test_table():
    lines = kink_report().table().splitlines()
    assert lines[0].split() == ["system", "version", "value", "forward", "reverse", "second"]
    rows = {line.split()[0]: line for line in lines[2:]}
    assert list(rows) == ["jax", "finite", "zygote", "forwarddiff", "yota"]
    assert "✘ nan" in rows["jax"]
    assert "! BoundsError" in rows["zygote"]
    assert "≈ 0.33" in rows["forwarddiff"] and rows["forwarddiff"].endswith("/")
    assert rows["yota"].split()[1:] == ["absent", "·", "·", "·", "·"]


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("name", REPORTS)
def test_terminal_keeps_to_its_width(name, width, verbose):
    console = Console(width=width, file=io.StringIO())
    REPORTS[name].print(console, verbose=verbose)
    assert all(len(line) <= width for line in console.file.getvalue().splitlines())


def test_the_terminal_shows_every_part_of_a_finding():
    text = " ".join(str(kink_report()).split())
    assert "✘ an index is out of bounds" in text
    assert "jax, reverse mode, args[0][2], at the given point" in text
    assert "model.py:9 (leaky): tail = x[jnp.array([0, 5])]; operation gather" in text
    assert "jax forward 1, jax reverse 0, finite 1" in text
    assert 'Read with `pb.take(x, indices, mode="clip")`' in text
    assert "yota is absent: No such package. Install [it]." in text
    assert text.endswith("3 errors, 1 warning, 2 notes")


def test_verbose_shows_points_arguments_and_programs():
    console = Console(width=160, file=io.StringIO())
    kink_report().print(console, verbose=True)
    text = console.file.getvalue()
    assert re.search(r"reverse args\[1\]\['w'\]\s+✓ 0", text)
    assert "given: [1, 2, 3], {w: 0.5}" in text
    assert "y = ifelse.(x .> 0, sqrt.(x), 0)" in text
    assert "ifelse" not in str(kink_report())


def test_a_report_prints_itself_in_every_way():
    report = kink_report()
    assert repr(report) == str(report)
    assert "\x1b" not in str(report)
    console = Console(width=100, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(report)
    assert "\x1b[1;31m✘ an index" in console.file.getvalue()
    assert report._repr_markdown_() == report.to_markdown()


def test_text_of_users_is_no_markup():
    text = str(hostile_report())
    assert "[bold]no[/bold]" in text
    assert SCRIPT in text


@pytest.mark.parametrize("write", [str, Report.to_markdown, to_html])
def test_without_findings_it_says_what_was_compared(write):
    text = " ".join(write(clean_report()).split())
    assert "Nothing found" in text
    assert "Compared jax (forward, reverse) and finite (forward) at 1 point: given." in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (np.float32(0.25), "0.25"),
        (math.nan, "nan"),
        (None, "None"),
        (True, "True"),
        (7, "7"),
        (1 + 2j, "1+2j"),
        ("zero", "zero"),
        ((0.0, 1.0), "(0, 1)"),
        ([1, [2]], "[1, [2]]"),
        ({"w": np.arange(2.0)}, "{w: [0, 1]}"),
        (np.arange(20.0).reshape(4, 5), "shape (4, 5), 0 ... 19"),
        (np.array([]), "[]"),
        (slice(1), "slice(None, 1, None)"),
    ],
)
def test_brief(value, text):
    assert brief(value) == text


# ------------------------------------------------------------------- Markdown


@pytest.mark.parametrize("name", REPORTS)
def test_markdown_tables_have_equal_rows(name):
    lines = REPORTS[name].to_markdown().splitlines()
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")}
    assert len(bars) == (0 if name == "empty" else 1)


def test_markdown():
    text = kink_report().to_markdown()
    assert text.startswith("**`leaky`**: 3 errors, 1 warning, 2 notes.")
    assert "| jax | △ | ✘ nan | ✘ nan | ~ nan |" in text
    assert "- ✘ **an index is out of bounds" in text
    assert "`model.py:9 (leaky): tail = x[jnp.array([0, 5])]; operation gather`" in text
    assert "**yota**: absent. No such package." in text


def test_markdown_has_markup_of_users_only_as_code():
    text = hostile_report().to_markdown()
    without_code = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", text)
    assert re.search(r"(?<!\\)<", without_code) is None
    assert "script" in without_code


# ----------------------------------------------------------------------- JSON


@pytest.mark.parametrize("name", REPORTS)
def test_json_has_the_fields_of_the_data(name):
    report = REPORTS[name]
    document = json.loads(report.to_json())
    assert list(document) == [
        "pybridge",
        "schema",
        "name",
        "ok",
        "summary",
        "systems",
        "probes",
        "answers",
        "findings",
        "curves",
        "sources",
    ]
    assert document["schema"] == 1
    assert document["ok"] == report.ok
    assert sum(document["summary"].values()) == len(report.findings)
    for key, kind in [
        ("probes", Probe),
        ("answers", SystemAnswer),
        ("findings", Finding),
        ("curves", SlopeCurve),
    ]:
        assert len(document[key]) == len(getattr(report, key))
        for entry in document[key]:
            assert list(entry) == [field.name for field in fields(kind)]


def test_json_values():
    document = json.loads(kink_report().to_json())
    first, second = document["findings"][:2]
    assert first["location"]["line"] == 9
    assert first["element"] == [2]
    assert first["numbers"] == {"jax forward": 1.0, "jax reverse": 0.0, "finite": 1.0}
    assert second["numbers"]["jax"] == "NaN"
    assert document["probes"][0]["args"] == [[1.0, 2.0, 3.0], {"w": 0.5}]
    assert document["answers"][1]["derivative"]["args[0]"] == [1.0, 0.0, 0.0]
    assert document["curves"][1]["right"] == "Infinity"
    assert document["systems"][4]["reason"] == "No such package.\nInstall [it]."


def test_json_of_numbers_that_are_no_floats():
    numbers = {"z": 1 + 2j, "zs": np.array([1j]), "n": np.int64(3), "b": np.True_, "o": slice(2)}
    report = report_of(findings=(Finding("minority", "error", "", numbers=numbers),))
    (finding,) = json.loads(report.to_json())["findings"]
    assert finding["numbers"] == {
        "z": {"real": 1.0, "imag": 2.0},
        "zs": [{"real": 0.0, "imag": 1.0}],
        "n": 3,
        "b": True,
        "o": "slice(None, 2, None)",
    }


# ----------------------------------------------------------------------- HTML


@pytest.mark.parametrize("name", REPORTS)
def test_pages_are_well_formed_and_load_nothing(name):
    text = to_html(REPORTS[name])
    page = parse(text)
    assert not re.search(r"https?://", text)
    assert len(page.ids) == len(set(page.ids)) == len(REPORTS[name].findings)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert "prefers-color-scheme: dark" in text


def test_pages_escape_what_users_wrote():
    text = to_html(hostile_report())
    assert "<script" not in text
    assert "&lt;script&gt;alert(" in text


def test_the_heat_map_has_a_row_for_each_case_and_leads_to_the_findings():
    report = kink_report()
    text = to_html(report)
    assert text.count('<th scope="row">') == len(cases(report))
    assert 'class="wrong heat-4" title="wrong\nan index is out of bounds' in text
    assert '<a href="#finding-1">✘ 0.5</a>' in text


def test_the_drawing_of_a_kink_stands_with_its_finding():
    text = to_html(kink_report())
    card = re.search(r'<section class="card" id="finding-5">.*?</section>', text, re.DOTALL)
    assert card is not None and card[0].count("<figure") == 1
    assert "derivative from the right: 1" in card[0]
    rest = text.split("<h2>Derivatives at kinks</h2>")[1]
    assert rest.count("<figure") == 1 and "args[1]" in rest


def test_programs_and_points_stand_on_the_page():
    text = to_html(kink_report())
    assert "y = ifelse.(x .&gt; 0, sqrt.(x), 0)" in text
    assert "[1, 2, 3], {w: 0.5}" in text


def test_a_notebook_gets_the_page_in_a_frame():
    text = kink_report()._repr_html_()
    assert text.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert text.count("<") == 2  # the frame's own


@pytest.mark.parametrize("kind", [str, os.fspath, lambda path: path])
def test_to_html_writes_the_page_and_nothing_else(tmp_path, kind):
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")
    assert kink_report().to_html(kind(path)) == path
    parse(path.read_text("utf-8"))
    assert os.listdir(tmp_path) == ["page.html"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("name", "got"), [("missing/page.html", "there is no folder"), ("", "the folder")]
)
def test_a_bad_path_is_refused_before_the_page_is_made(tmp_path, monkeypatch, name, got):
    monkeypatch.setattr("pybridge.consistency.report._html.to_html", lambda report: 1 / 0)
    with pytest.raises(ArgumentValueError, match=f"Report.to_html: expected .*{got}"):
        kink_report().to_html(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        kink_report().to_html(path)
    assert path.read_text("utf-8") == "old"
    assert os.listdir(tmp_path) == ["page.html"]


# --------------------------------------------------------------------- curves


def coordinates(text, look):
    """Return the ends of the line of a class within the plot: x1, y1, x2, y2."""
    plot = text.split("<figcaption>")[0]
    found = re.search(rf'<line class="{look}" x1="(.+?)" y1="(.+?)" x2="(.+?)" y2="(.+?)"', plot)
    return None if found is None else tuple(map(float, found.groups()))


def curve_with(values, left, right, **choices):
    steps = np.linspace(-1.0, 1.0, len(values))
    return SlopeCurve("args[0]", (), steps, np.asarray(values), left, right, choices)


def test_tangents_meet_at_the_point_and_have_their_derivatives():
    text = curve_html(curve_with([1.0, 0.5, 0.0, 1.0, 2.0], -1.0, 2.0, jax=0.5))
    x1, y1, x2, y2 = coordinates(text, "left-derivative")
    a1, b1, a2, b2 = coordinates(text, "right-derivative")
    c1, d1, c2, d2 = coordinates(text, "choice c0")
    assert (x2, y2) == (a1, b1) == pytest.approx(((c1 + c2) / 2, (d1 + d2) / 2), abs=0.1)
    left, right = (y2 - y1) / (x2 - x1), (b2 - b1) / (a2 - a1)
    # Upwards is the smaller number on a screen.
    assert left > 0 > right
    assert right / left == pytest.approx(-2.0, rel=0.01)
    assert (d2 - d1) / (c2 - c1) == pytest.approx(right / 4, rel=0.02)


def test_systems_with_the_same_choice_share_a_line():
    text = curve_html(curve_with([1.0, 0.0, 1.0], -1.0, 1.0, jax=0.0, finite=0.0, zygote=1.0))
    assert "jax and finite: 0<" in text
    assert text.split("<figcaption>")[0].count('class="choice') == 2


def test_a_choice_outside_of_the_derivatives_is_said_to_be():
    text = curve_html(curve_with([1.0, 0.0, 1.0], -1.0, 1.0, jax=1.5, zygote=1.0))
    assert "jax: 1.5, not between the two" in text
    assert "zygote: 1<" in text


def test_an_infinite_derivative_is_upright_and_nan_is_not_drawn():
    text = curve_html(curve_with([math.nan, 0.0, 1.0], math.nan, math.inf, jax=math.inf))
    assert coordinates(text, "left-derivative") is None
    x1, y1, x2, y2 = coordinates(text, "right-derivative")
    assert x1 == x2 and y1 != y2
    assert "nan" not in re.sub("<figcaption>.*|aria-label=.*?>", "", text)


@pytest.mark.parametrize(
    "values", [[0.0, 0.0, 0.0], [math.nan] * 3, [1e308, 0.0, -1e308], [math.inf, 1.0, 2.0]]
)
def test_any_values_can_be_drawn(values):
    with np.errstate(all="raise"):
        text = curve_html(curve_with(values, 1e300, -1e300, jax=1e-300))
    numbers = re.findall(r'\b[xy][12]?="([^"]+)"', text)
    assert numbers and all(math.isfinite(float(number)) for number in numbers)
    parse(text)


# ----------------------------------------------------------------------- docs


def test_the_page_has_every_kind():
    from test_docs import ROOT

    text = (ROOT / "docs/how-to/check-a-function.md").read_text(encoding="utf-8")
    table = text.split("<!-- generated: kinds -->")[1].split("<!-- end -->")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", table, re.MULTILINE))
    assert rows == KINDS, "run `python docs/update_tables.py check-a-function`"
