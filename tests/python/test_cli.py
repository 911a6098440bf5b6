"""The `pybridge` command: exit statuses and the four kinds of report."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from html_pages import parse
from rich.console import Console

from pybridge._backends import JULIA_NAMES, Backend
from pybridge._errors import JuliaUnavailableError
from pybridge.cli import main
from pybridge.consistency import (
    SUITES,
    Answer,
    ModeAnswer,
    Run,
    load_scenarios,
    select_scenarios,
    to_html,
)
from pybridge.julia import _systems


@pytest.fixture
def wrong_table(monkeypatch):
    (scenario,) = select_scenarios(["sqrt-zero"])
    wrong = replace(scenario, derivative=np.asarray(1.0))
    hard = replace(SUITES["scenarios"], select=lambda names: (wrong,))
    monkeypatch.setitem(SUITES, "scenarios", hard)


@pytest.fixture
def all_statuses(no_julia):
    """Return a run in which every status occurs, and text that looks like markup."""
    systems = (
        Backend("jax", "python", "both", "jax", "1.0", True),
        Backend("zygote", "julia", "reverse", "Zygote", "0.7.12", True),
        Backend("forwarddiff", "julia", "forward", "ForwardDiff", "1.4.5", True),
        Backend("yota", "julia", "reverse", "Yota", reason=no_julia),
    )
    scenarios = load_scenarios()
    statuses = ("right", "convention", "known", "unsupported", "wrong", "error")
    answers = {}
    for number, scenario in enumerate(scenarios):
        for system in systems[:3]:
            status = statuses[number % len(statuses)]
            if status == "error":
                mode = ModeAnswer(
                    "reverse",
                    status,
                    error="DomainError",
                    message="<b> [red]no[/red] | *\nmore",
                )
            else:
                mode = ModeAnswer(
                    "reverse",
                    status,
                    value=scenario.value,
                    derivative=np.full(np.shape(scenario.args[0]), np.nan),
                    reason="because `x` < [1] & so on",
                )
            modes = (mode,)
            if system.mode == "both":
                forward = ModeAnswer("forward", "right", scenario.value, scenario.derivative)
                modes = (mode, forward)
            answers[scenario.name, system.name] = Answer(
                scenario.name, system.name, status, scenario.plain_value, modes, 0.5
            )
        answers[scenario.name, "yota"] = Answer(scenario.name, "yota", "absent")
    return Run(systems, scenarios, answers)


# -------------------------------------------------------------- exit statuses


def test_right_answers_exit_0(capsys):
    assert main(["check", "--backend", "jax", "--scenario", "detect-cond"]) == 0
    out, _ = capsys.readouterr()
    assert "detect-cond" in out
    assert "1 right, 0 conventions, 0 known failures, 0 wrong, 0 absent" in out


def test_documented_failures_exit_0(capsys):
    assert main(["check", "--backend", "jax", "--scenario", "early-exit-prod"]) == 0
    assert "1 known failure," in capsys.readouterr().out


def test_wrong_answers_exit_1(capsys, wrong_table):
    assert main(["check", "--backend", "jax", "--backend", "finite"]) == 1
    out = capsys.readouterr().out
    assert "2 wrong" in out
    assert "derivative inf (expected 1)" in out.lower()


def test_absent_systems_exit_2_when_asked_for(capsys, no_julia):
    assert main(["check", "--backend", "zygote", "--scenario", "detect-cond"]) == 2
    out = capsys.readouterr().out
    assert "zygote is absent" in out
    assert "install [it]" in out


def test_absent_systems_exit_0_when_not_asked_for(capsys, no_julia):
    assert main(["check", "--scenario", "detect-cond"]) == 0
    out = capsys.readouterr().out
    assert f"{', '.join(JULIA_NAMES[:-1])} and {JULIA_NAMES[-1]} are absent" in " ".join(
        out.split()
    )
    assert out.count("install [it]") == 1
    assert "1 right, 1 convention, 0 known failures, 0 wrong" in out
    assert f"0 wrong, {len(JULIA_NAMES)} absent" in out


def test_a_wrong_answer_outweighs_an_absent_system(no_julia, wrong_table):
    assert main(["check", "--backend", "jax", "--backend", "yota"]) == 1


def test_names_that_do_not_exist_exit_2(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["check", "--backend", "zygot"])
    assert exit_.value.code == 2
    assert "zygote" in capsys.readouterr().err
    assert main(["check", "--scenario", "nothing"]) == 2
    assert "detect-cond" in capsys.readouterr().err


def test_progress_stays_out_of_stdout(capsys):
    main(["check", "--backend", "jax", "--scenario", "sqrt-zero", "--json"])
    out, _ = capsys.readouterr()
    json.loads(out)


def test_list(capsys):
    assert main(["check", "--list"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == [s.name for s in load_scenarios()]


# -------------------------------------------------------------------- reports


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("verbose", [False, True])
def test_terminal(all_statuses, width, verbose):
    console = Console(width=width, record=True, file=io.StringIO())
    all_statuses.print(console, verbose=verbose)
    text = console.export_text()
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for scenario in all_statuses.scenarios:
        assert re.search(rf"^\s+{scenario.name}\s+", text, re.MULTILINE)
    assert "[red]no[/red]" in text
    assert ("vertical tangent" in text) == verbose


def test_json(all_statuses, no_julia):
    document = json.loads(all_statuses.to_json())
    assert document["ok"] is False
    assert sum(document["summary"].values()) == len(all_statuses.answers)
    assert [system["name"] for system in document["systems"]] == [
        "jax",
        "zygote",
        "forwarddiff",
        "yota",
    ]
    assert document["systems"][3]["reason"] == no_julia
    for scenario in document["scenarios"]:
        assert scenario.keys() == {
            "name",
            "title",
            "group",
            "shows",
            "thread",
            "expected",
            "answers",
        }
        assert scenario["answers"].keys() == {"jax", "zygote", "forwarddiff", "yota"}
        for answer in scenario["answers"].values():
            assert answer.keys() == {"status", "plain_value", "seconds", "modes"}
            for mode in answer["modes"].values():
                assert mode.keys() >= {"status", "value", "derivative", "error", "reason"}
    by_name = {scenario["name"]: scenario for scenario in document["scenarios"]}
    assert by_name["sqrt-zero"]["expected"]["derivative"] == "Infinity"
    assert by_name["kink-abs"]["expected"]["subdifferential"] == [-1.0, 1.0]
    reverse = by_name["detect-cond"]["answers"]["jax"]["modes"]["reverse"]
    assert reverse["value"] == 4.0
    assert reverse["derivative"] == "NaN"


def test_markdown(all_statuses):
    lines = all_statuses.to_markdown().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert table[0] == "| scenario | jax | zygote | forwarddiff | yota |"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {6}
    groups = {scenario.group for scenario in all_statuses.scenarios}
    assert len(table) == 2 + len(groups) + len(all_statuses.scenarios)
    assert any(line.startswith("- ✘ `") for line in lines)
    assert any(line.startswith("**yota**: absent. Julia could not be started.") for line in lines)
    assert lines[-1].endswith("absent.") or "error" in lines[-1]


def test_html(all_statuses):
    text = to_html(all_statuses)
    page = parse(text)
    assert page.ids == [scenario.name for scenario in all_statuses.scenarios]
    for link in page.links:
        assert link.removeprefix("#") in page.ids or link.startswith("https://github.com/")
    assert "&lt;b&gt; [red]no[/red]" in text
    assert "prefers-color-scheme: dark" in text


def test_html_file(tmp_path, capsys):
    path = tmp_path / "page.html"
    options = ["--backend", "jax", "--scenario", "kink", "--html", str(path)]
    assert main(["check", *options]) == 0
    parse(path.read_text("utf-8"))
    assert str(path.name) in capsys.readouterr().out.replace("\n", "")


# ------------------------------------------------------------- other commands


def test_doctor(monkeypatch, capsys):
    doctor = pytest.importorskip("pybridge.julia.doctor")
    sections = {"Python": [("jax", "1.0", "")], "Settings": [("A[b]", "x", "from [here]")]}
    monkeypatch.setattr(doctor, "collect", lambda: sections)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"A\[b\]\s+x\s+from \[here\]", out)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Python"] == [["jax", "1.0", ""]]


def test_doctor_tells_once_why_julia_does_not_start(monkeypatch):
    doctor = pytest.importorskip("pybridge.julia.doctor")
    absent = Backend(
        "zygote", "julia", "reverse", "Zygote", reason="No Julia.\nTried: this.\nThat."
    )
    monkeypatch.setattr(doctor, "backends", lambda: [absent])
    assert doctor._systems() == [("zygote", "not available", "No Julia.")]


def test_provision(monkeypatch, capsys):
    provision = pytest.importorskip("pybridge.julia.provision")
    good = Backend("zygote", "julia", "reverse", "Zygote", "0.7", True)
    bad = Backend("yota", "julia", "reverse", "Yota", reason="No network.")
    monkeypatch.setattr(provision, "provision_all", lambda: ([good], {"Flux": "0.16"}))
    assert main(["provision"]) == 0
    assert re.search(r"Zygote\s+0\.7[\s\S]*Flux\s+0\.16", capsys.readouterr().out)
    monkeypatch.setattr(provision, "provision_all", lambda: ([good, bad], {}))
    assert main(["provision"]) == 1
    assert "No network." in capsys.readouterr().out


def test_errors_are_one_line(monkeypatch, capsys):
    provision = pytest.importorskip("pybridge.julia.provision")

    def fail():
        raise JuliaUnavailableError("no Julia here")

    monkeypatch.setattr(provision, "provision_all", fail)
    assert main(["provision"]) == 1
    assert capsys.readouterr().err == "pybridge: no Julia here\n"


def test_interrupt(monkeypatch, capsys):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(_systems, "load", interrupt)
    assert main(["check", "--backend", "jax"]) == 1
    assert "interrupted" in capsys.readouterr().err


def run_python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_python_m_pybridge():
    done = run_python("-m", "pybridge", "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("pybridge ")


def test_importing_the_package_imports_nothing_that_is_large():
    # jax.extend imports Pallas.
    large = {"rich", "jinja2", "jax.extend", "juliacall", "juliapkg"}
    large |= {f"pybridge.{name}" for name in ("nn", "consistency", "finite", "lowering")}
    code = f"import sys, pybridge, pybridge.cli; print({large} & set(sys.modules))"
    assert run_python("-c", code).stdout == "set()\n"
    later = "{'primitives', 'interop', 'transforms'} & set(vars(pybridge))"
    code = f"import pybridge; print({later}); pybridge.grad; print(sorted({later}))"
    assert run_python("-c", code).stdout.split("\n", 1) == [
        "set()",
        "['interop', 'primitives', 'transforms']\n",
    ]
