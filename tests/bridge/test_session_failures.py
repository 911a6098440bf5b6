"""Where Julia, PyBridge or a system's package does not start: what users are told."""

from __future__ import annotations

import os

import julia_state
import pytest

from pybridge.julia._environments import entries, folder
from pybridge.julia._session import session

pytestmark = pytest.mark.processes

FAILURES = {
    "no such julia": ({"PYBRIDGE_JULIA": "/nonexistent/julia"}, "PYBRIDGE_JULIA"),
    "not a julia": ({"PYTHON_JULIAPKG_EXE": "/bin/false"}, "What happened"),
    "signals off": (
        {"PYTHON_JULIACALL_HANDLE_SIGNALS": "no"},
        "PYTHON_JULIACALL_HANDLE_SIGNALS has to be yes",
    ),
    "only half of juliacall's settings": (
        {"PYTHON_JULIACALL_PROJECT": "/tmp"},
        "PYTHON_JULIACALL_EXE and PYTHON_JULIACALL_PROJECT together",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_way_that_start_up_fails_is_explained(run_python, case):
    changes, text = FAILURES[case]
    chosen = julia_state.SETTINGS
    settings = {name: value for name, value in os.environ.items() if name not in chosen}
    run_python(
        f"""
        import pybridge as pb
        for _ in range(2):   # the second time at once
            try:
                pb.from_julia("x -> x")
            except pb.JuliaUnavailableError as error:
                assert {text!r} in str(error), error
                assert 'backend="jax"' in str(error) or {text!r}.startswith("PY"), error
            else:
                raise SystemExit("no error")
        assert pb.grad(lambda x: x**2)(3.0) == 6.0
        assert not pb.backends()[2].available
        """,
        env={**settings, **changes},
    )


def test_python_ends_where_julia_has_started_and_its_packages_do_not_load(run_python, tmp_path):
    # The environment has nothing in it, so PythonCall is missing. Julia's end would wait for ever
    # for the thread that started it.
    (tmp_path / "Project.toml").write_text("")
    output = run_python(
        """
        import pybridge as pb
        try:
            pb.from_julia("x -> x")
        except pb.JuliaUnavailableError as error:
            print("PythonCall.jl did not start properly" in str(error))
        """,
        env={
            **os.environ,
            "PYTHON_JULIACALL_EXE": str(session().executable),
            "PYTHON_JULIACALL_PROJECT": str(tmp_path),
        },
    )
    assert "True" in output.splitlines()


def test_a_pybridge_that_does_not_load_is_explained_with_what_julia_threw(run_python, tmp_path):
    broken = tmp_path / 'a "$folder" \\ ü'
    broken.mkdir()
    (broken / "start.jl").write_text('error("there is no PyBridge here")')
    run_python(
        f"""
        from pathlib import Path
        import pybridge as pb
        from pybridge.julia import _session
        _session.julia_source = lambda: Path({str(broken)!r})
        try:
            pb.from_julia("x -> x")
        except pb.JuliaUnavailableError as error:
            assert "PyBridge did not load:\\nLoadError: there is no PyBridge here" in str(error)
            assert "start.jl:1" in str(error) and "pybridge doctor" in str(error), error
        else:
            raise SystemExit("no error")
        """
    )


def test_a_system_that_cannot_be_loaded_touches_no_other(run_python, tmp_path):
    # Tracker's environment cannot be made below a file; Zygote does not care.
    (tmp_path / "file").write_text("")
    run_python(
        """
        import pybridge as pb
        state = {b.name: b for b in pb.backends()}
        assert not state["tracker"].available and not state["yota"].available
        reason = state["tracker"].reason
        assert reason.startswith("Tracker could not be installed: expected a folder"), reason
        assert "below" in reason and "PYBRIDGE_ENVIRONMENTS" in reason, reason
        assert state["zygote"].available and state["forwarddiff"].available
        f = pb.from_julia("x -> x^2")
        assert pb.grad(f, backend="zygote")(3.0) == 6.0
        try:
            pb.grad(f, backend="tracker")(3.0)
        except pb.BackendNotLoadedError as error:
            assert "Tracker" in str(error)
        else:
            raise SystemExit("no error")
        """,
        env={**os.environ, "PYBRIDGE_ENVIRONMENTS": str(tmp_path / "file" / "below")},
    )


def test_an_extension_that_fails_is_absent_in_one_line(run_python, tmp_path):
    # A package of Yota's name and nothing in it: PyBridge's extension cannot compile. The others
    # are those of all tests.
    for package in set(entries()) - {"Yota"}:
        made = folder(package, session().project, session().julia_version)
        if made.exists():
            (tmp_path / made.name).symlink_to(made)
    output = run_python(
        """
        import contextlib, io, pathlib
        import pybridge as pb
        from pybridge.cli import main
        from pybridge.julia._environments import _DONE, entries, folder
        from pybridge.julia._session import session

        place = folder("Yota", session().project, session().julia_version)
        source = place / "Yota"
        (source / "src").mkdir(parents=True)
        uuid = entries()["Yota"]["uuid"]
        (source / "Project.toml").write_text(f'name = "Yota"\\nuuid = "{uuid}"\\nversion = "0.8.5"')
        (source / "src" / "Yota.jl").write_text("module Yota end")
        (place / "Project.toml").write_text(f'[deps]\\nYota = "{uuid}"')
        (place / "Manifest.toml").write_text(
            f'manifest_format = "2.0"\\n[[deps.Yota]]\\npath = "{source}"\\nuuid = "{uuid}"'
        )
        (place / _DONE).touch()

        state = {b.name: b for b in pb.backends()}
        reason = state["yota"].reason
        assert not state["yota"].available
        assert reason.startswith(f"Yota does not load in Julia {session().julia_version}: "), reason
        # What the extension asks for first: on 1.12 it mends Umlaut.
        on_1_12 = tuple(map(int, session().julia_version.split(".")[:2])) >= (1, 12)
        missing = "Umlaut" if on_1_12 else "YotaRuleConfig"
        assert missing in reason and "\\n" not in reason, reason
        f = pb.from_julia("x -> x^2")
        for name in ("zygote", "forwarddiff"):
            assert pb.grad(f, backend=name)(3.0) == 6.0

        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = main(["check", "--scenario", "where-log"])
        assert status == 0, printed.getvalue()
        assert printed.getvalue().count("does not load in Julia") == 1, printed.getvalue()
        """,
        env={**os.environ, "PYBRIDGE_ENVIRONMENTS": str(tmp_path)},
        timeout=600,
    )
    assert "Stacktrace" not in output and "ERROR" not in output, output
