"""`pybridge check TARGET` and `--suite`: what is read, what is refused, exit statuses."""

import io
import json
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from check_reports import YOTA, clean_report, kink_report
from html_pages import parse

from pybridge import consistency
from pybridge._errors import ArgumentTypeError, ArgumentValueError
from pybridge.cli import main
from pybridge.cli._target import load_target, read_arguments
from pybridge.consistency import SUITES
from pybridge.consistency.suites import Suite

SOURCE = """
import jax.numpy as jnp
import neighbour_of_checked
from dataclasses import dataclass

print("imported")
number = 3

@dataclass
class Model:
    width: int

    @staticmethod
    def loss(x):
        return jnp.sum(x)

def total(x, scale=1.0):
    return scale * jnp.sum(x)

def _hidden(x):
    return x
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a module in it; it is the current one, and forgotten afterwards."""
    (tmp_path / "checked.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "neighbour_of_checked.py").write_text("", encoding="utf-8")
    (tmp_path / "broken_here.py").write_text("x = 1\nx.no\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def checker(monkeypatch):
    """Put a checker in place that notes its call and returns `.report`."""
    fake = types.SimpleNamespace(report=clean_report(), calls=[])

    def check(f, *args, **options):
        options.pop("progress")("1/2")
        print("noise")
        fake.calls.append((f, args, options))
        return fake.report

    monkeypatch.setattr(consistency, "check", check)
    return fake


# -------------------------------------------------------------------- targets


@pytest.mark.parametrize("target", ["checked:total", "checked.py:total"])
def test_a_target_is_a_module_or_a_file(folder, target):
    assert float(load_target(target)(jnp.ones(3))) == 3.0


def test_a_target_may_be_in_another_folder_or_inside_of_a_class(folder, monkeypatch):
    monkeypatch.chdir("/")
    assert load_target(f"{folder}/checked.py:Model.loss")(jnp.ones(2)) == 2.0


def test_a_file_with_the_name_of_a_loaded_module_leaves_that_alone(folder):
    (folder / "json.py").write_text("def f(x):\n    return x\n", encoding="utf-8")
    assert load_target("json.py:f")(1.0) == 1.0
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("target", "got"),
    [
        ("checked", "got 'checked'"),
        ("checked:", "got 'checked:'"),
        (":total", "got ':total'"),
        ("nothing_here:f", "ModuleNotFoundError: No module named 'nothing_here'"),
        ("broken_here:f", "has no attribute 'no' in .*broken_here.py:2"),
        ("broken_here.py:f", "has no attribute 'no' in .*broken_here.py:2"),
        ("missing.py:f", "'missing.py', which is not there"),
        ("checked:totl", "got 'totl'. Functions there: total."),
    ],
)
def test_targets_that_there_are_not(folder, target, got):
    with pytest.raises(ArgumentValueError, match=got):
        load_target(target)


def test_a_target_is_a_function(folder):
    with pytest.raises(ArgumentTypeError, match="number, which is of type int"):
        load_target("checked:number")


def test_a_module_that_fails_is_tried_again(folder):
    with pytest.raises(ArgumentValueError):
        load_target("broken_here.py:f")
    (folder / "broken_here.py").write_text("def f(x):\n    return x + 1\n", encoding="utf-8")
    assert load_target("broken_here.py:f")(1) == 2


# ------------------------------------------------------------------ arguments


def read(*texts):
    return read_arguments(lambda *args: None, texts)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", 1.5),
        ("-2", -2),
        (" 2 * pi", 2 * np.pi),
        ("-inf", -np.inf),
        ("1 + 2j", 1 + 2j),
        ("'name'", "name"),
        ("True", True),
        ("None", None),
    ],
)
def test_scalars(text, value):
    assert read(text) == (value,)


@pytest.mark.parametrize(
    "text", ["[1.0, 2.0]", "np.array([1.0, 2.0])", "jnp.arange(1.0, 3.0)", "jnp.asarray([1.0, 2])"]
)
def test_arrays_are_in_double_precision(text):
    (array,) = read(text)
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, [1.0, 2.0])


def test_jax_numbers_have_all_digits():
    assert float(read("jnp.asarray(0.1)")[0]) == 0.1


def test_what_jnp_makes_is_no_array_of_64_bits_where_the_function_is_called(folder, capsys):
    (folder / "narrow_here.py").write_text(
        "import jax.numpy as jnp\n\n\ndef f(x, i):\n    return jnp.sum(jnp.sin(x.at[i].mul(2)))\n",
        encoding="utf-8",
    )
    words = ["--backend", "jax", "--args", "jnp.ones(3)", "jnp.arange(2)"]
    assert main(["check", "narrow_here:f", *words]) == 0  # warnings are errors here
    assert "Nothing found" in capsys.readouterr().out


def test_lists_become_arrays_inside_of_trees():
    (tree,) = read("({'w': [[1.0, 2.0]], 'b': [[1.0], 2.0]}, 3)")
    assert type(tree) is tuple and tree[1] == 3
    np.testing.assert_array_equal(tree[0]["w"], [[1.0, 2.0]])
    np.testing.assert_array_equal(tree[0]["b"][0], [1.0])
    assert tree[0]["b"][1] == 2.0


@pytest.mark.parametrize("text", ["1 +", "unknown", "1/0", "open('x')", "__import__('os')", ""])
def test_expressions_that_mean_nothing(text):
    with pytest.raises(ArgumentValueError, match="--args: expected Python expressions with np"):
        read(text)


def test_too_few_and_too_many_arguments():
    def f(x, y=1.0):
        return x

    assert read_arguments(f, ["1.0"]) == (1.0,)
    for texts in ([], ["1", "2", "3"]):
        with pytest.raises(ArgumentValueError, match=r"the arguments of f\(x, y=1.0\), got"):
            read_arguments(f, texts)


def test_a_callable_without_a_signature_takes_anything():
    class Opaque:
        __signature__ = "none"

        def __call__(self, *args):
            return args

    assert read_arguments(Opaque(), ["1", "2"]) == (1, 2)


# ------------------------------------------------------------------- checking


def test_a_target_is_checked_with_its_arguments(folder, checker, capsys):
    assert main(["check", "checked:total", "--args", "[1.0, 2.0]", "-2.0"]) == 0
    ((function, arguments, options),) = checker.calls
    assert function.__name__ == "total"
    np.testing.assert_array_equal(arguments[0], [1.0, 2.0])
    assert arguments[1] == -2.0
    assert options == {"backends": None, "probes": ("given",)}
    out, err = capsys.readouterr()
    assert "Nothing found" in out
    assert "imported" in err and "noise" in err and "imported" not in out


@pytest.mark.parametrize("form", [(), ("--markdown",)])
def test_a_terminal_without_the_characters_of_a_report(folder, checker, monkeypatch, form):
    checker.report = kink_report()
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["check", "checked:total", "--args", "1.0", "2.0", *form]) == 1
    terminal.flush()
    assert b"?" in terminal.buffer.getvalue()


@pytest.mark.parametrize("words", [["-pi"], ["1.0", "-pi"], ["-np.ones(2)", "-1.0", "-v"]])
def test_an_expression_may_begin_with_a_minus(folder, checker, words):
    assert main(["check", "checked:total", "--args", *words, "--backend", "jax"]) == 0
    ((_, arguments, options),) = checker.calls
    assert len(arguments) == len([word for word in words if word != "-v"])
    assert np.max(arguments[-1]) < 0 and options["backends"] == ["jax"]


def test_systems_and_points_are_passed_on(folder, checker):
    words = ["--backend", "jax", "--backend", "finite", "--probe", "zeros", "--probe", "ties"]
    assert main(["check", "checked:total", "--args", "1.0", *words]) == 0
    ((_, _, options),) = checker.calls
    assert options == {"backends": ["jax", "finite"], "probes": ("zeros", "ties")}


def test_tolerances_are_passed_on(folder, checker):
    main(["check", "checked:total", "--args", "1.0", "--rtol", "1e-3", "--atol", "1e-9"])
    ((_, _, options),) = checker.calls
    assert (options["rtol"], options["atol"]) == (1e-3, 1e-9)
    assert main(["check", "--rtol", "1e-3"]) == 2


def test_a_function_that_raises_is_shown_with_file_and_line(folder, capsys):
    source = "import jax.numpy as jnp\n\ndef f(x):\n    return jnp.reshape(x, (7, 7)).sum()\n"
    (folder / "raising.py").write_text(source, encoding="utf-8")
    assert main(["check", "raising.py:f", "--args", "[1.0, 2.0]"]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "raising.py:4 (f): return jnp.reshape(x, (7, 7)).sum()" in text


@pytest.mark.julia
def test_a_julia_function_has_its_systems_made_ready(folder, checker, monkeypatch):
    import pybridge.cli._check as command

    text = "import pybridge as pb\nf = pb.from_julia('x -> x')\n"
    (folder / "checked.py").write_text(text, encoding="utf-8")
    ready = []
    monkeypatch.setattr(command, "_prepared", lambda names, progress, asked: ready.extend(names))
    assert main(["check", "checked.py:f", "--args", "1.0"]) == 0
    assert ready == list(command.NAMES)


@pytest.mark.parametrize("option", ["--json", "--markdown", None])
def test_the_output_is_only_the_report(folder, checker, capsys, option):
    checker.report = kink_report()
    options = [option] if option else []
    assert main(["check", "checked:total", "--args", "1.0", *options]) == 1
    out = capsys.readouterr().out
    if option == "--json":
        assert json.loads(out) == json.loads(kink_report().to_json())
    elif option == "--markdown":
        assert out == kink_report().to_markdown() + "\n"
    else:
        assert "3 errors, 1 warning, 2 notes" in out
        assert "y = ifelse" not in out


def test_verbose_shows_the_program(folder, checker, capsys):
    checker.report = kink_report()
    assert main(["check", "checked:total", "--args", "1.0", "-v"]) == 1
    assert "y = ifelse" in capsys.readouterr().out


def test_the_page_is_written(folder, checker, capsys):
    assert main(["check", "checked:total", "--args", "1.0", "--html", "page.html"]) == 0
    parse(Path("page.html").read_text("utf-8"))
    assert "The page is in page.html." in capsys.readouterr().out


def test_only_errors_exit_1(folder, checker):
    notes = [finding for finding in kink_report().findings if finding.severity != "error"]
    checker.report = replace(kink_report(), findings=tuple(notes))
    assert main(["check", "checked:total", "--args", "1.0"]) == 0


def test_absent_systems_exit_2_when_asked_for(folder, checker, monkeypatch):
    import pybridge.cli._check as command

    monkeypatch.setattr(command, "_prepared", lambda names, progress, asked: [])
    checker.report = replace(clean_report(), systems=(*clean_report().systems, YOTA))
    assert main(["check", "checked:total", "--args", "1.0"]) == 0
    assert main(["check", "checked:total", "--args", "1.0", "--backend", "yota"]) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["nothing_here:f"],
        ["checked:nothing"],
        ["checked:number"],
        ["checked:total"],
        ["checked:total", "--args", "unknown"],
        ["checked:total", "--args", "1.0", "--html", "missing/page.html"],
        ["checked:total", "--args", "1.0", "--layers"],
        ["checked:total", "--args", "1.0", "--suite"],
        ["checked:total", "--args", "1.0", "--scenario", "kink"],
        ["checked:total", "--args", "1.0", "--list"],
        ["--args", "1.0"],
        ["--probe", "zeros"],
        ["--html", "missing/page.html"],
        ["--layers", "--suite"],
        ["--suite", "nothing"],
    ],
)
def test_command_lines_that_make_no_sense_exit_2(folder, checker, capsys, words):
    assert main(["check", *words]) == 2
    assert checker.calls == []
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if line != "imported"]
    assert line.startswith("pybridge: pybridge check") and "expected" in line and "got" in line


def test_the_current_folder_is_searched_by_the_installed_command(folder):
    code = "from pybridge.cli import main; import sys; sys.exit(main(['check', 'checked:nothing']))"
    # As the entry point does it: the script's folder is on the path, not the current one.
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "Functions there: total" in done.stderr


# --------------------------------------------------------------------- suites


class Answered:
    """What a suite of two cases returned."""

    def __init__(self, cases, systems, *, ok=True, absent=False):
        self.text = (
            f"{'+'.join(case.name for case in cases)} on {'+'.join(s.name for s in systems)}"
        )
        self.ok, self.absent = ok, absent

    def print(self, console, *, verbose=False):
        console.print(self.text, "verbose" if verbose else "")

    def to_json(self):
        return json.dumps({"text": self.text})

    def to_markdown(self):
        return self.text

    def to_html(self, path):
        path.write_text(f"<p>{self.text}</p>", encoding="utf-8")


@pytest.fixture
def suite(monkeypatch):
    """Register a suite `small`, alone with `other`; return the keywords of its results."""
    cases = [types.SimpleNamespace(name=name, title=f"about {name}") for name in ("one", "two")]
    outcome = {}

    def select(names):
        return [case for case in cases if names is None or case.name.startswith(tuple(names))]

    def run(cases, systems, progress):
        progress("1/2 one")
        return Answered(cases, systems, **outcome)

    for name in list(SUITES):
        monkeypatch.delitem(SUITES, name)
    for name in ("small", "other"):
        monkeypatch.setitem(SUITES, name, Suite(f"{name} cases", select, run))
    return outcome


BACKENDS = ["--backend", "jax", "--backend", "finite"]


def test_a_suite_is_run_by_its_name(suite, capsys):
    assert main(["check", "--suite", "small", *BACKENDS]) == 0
    assert capsys.readouterr().out.strip() == "one+two on jax+finite"
    assert main(["check", "--suite", "small", "--scenario", "tw", "-v", *BACKENDS]) == 0
    assert capsys.readouterr().out.strip() == "two on jax+finite verbose"


def test_a_suite_in_every_format(suite, capsys, tmp_path):
    page = tmp_path / "page.html"
    words = ["check", "--suite", "small", *BACKENDS, "--html", str(page)]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"text": "one+two on jax+finite"}
    assert main([*words, "--markdown"]) == 0
    assert capsys.readouterr().out == "one+two on jax+finite\n"
    assert page.read_text("utf-8") == "<p>one+two on jax+finite</p>"


def test_all_suites_are_run_without_a_name(suite, capsys):
    assert main(["check", "--suite", *BACKENDS]) == 0
    out = capsys.readouterr().out
    assert out.count("one+two on jax+finite") == 2
    assert out.index("small") < out.index("other")
    assert main(["check", "--suite", *BACKENDS, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["small", "other"]
    assert main(["check", "--suite", *BACKENDS, "--markdown"]) == 0
    assert "## other\n\none+two" in capsys.readouterr().out


def test_one_page_holds_one_suite(suite, capsys, tmp_path):
    assert main(["check", "--suite", "--html", str(tmp_path / "page.html")]) == 2
    assert "Name one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "status"),
    [({}, 0), ({"ok": False}, 1), ({"absent": True}, 2), ({"ok": False, "absent": True}, 1)],
)
def test_exit_status_of_a_suite(suite, outcome, status):
    suite |= outcome
    assert main(["check", "--suite", "small", *BACKENDS]) == status


def test_a_suite_that_there_is_not(suite, capsys):
    assert main(["check", "--suite", "smal"]) == 2
    assert "expected one of small, other, got smal" in capsys.readouterr().err


def test_lists_of_suites_and_of_cases(suite, capsys):
    assert main(["check", "--suite", "--list"]) == 0
    assert capsys.readouterr().out.split() == ["small", "small", "cases", "other", "other", "cases"]
    assert main(["check", "--suite", "other", "--list"]) == 0
    assert capsys.readouterr().out.split() == ["one", "about", "one", "two", "about", "two"]


def test_the_scenarios_are_a_suite(capsys):
    words = ["--backend", "jax", "--scenario", "sqrt-zero", "--json"]
    assert main(["check", *words]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main(["check", "--suite", "scenarios", *words]) == 0
    named = json.loads(capsys.readouterr().out)
    for document in (plain, named):
        for scenario in document["scenarios"]:
            for answer in scenario["answers"].values():
                del answer["seconds"]
    assert named == plain
