"""The wheel, built and installed elsewhere: what users get."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("pybridge-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Install the wheel into an environment that sees this one's dependencies; its python."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    here = [p for p in sys.path if p.endswith("site-packages")]
    # Behind the new environment's own folder, so that its pybridge is the one that is found.
    (site / "dependencies.pth").write_text("\n".join(here))
    return python


def test_the_wheel_carries_both_languages(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    carried = {
        "pybridge_pytest.py",
        "pybridge/py.typed",
        "pybridge/juliapkg.json",
        "pybridge/consistency/suites/scenarios.toml",
        "pybridge/julia_src/Project.toml",
        "pybridge/julia_src/environments.toml",
        "pybridge/julia_src/start.jl",
        "pybridge/julia_src/provision.jl",
        "pybridge/julia_src/src/PyBridge.jl",
    }
    templates = "pybridge/consistency/report/templates"
    carried |= {f"{templates}/{path.name}" for path in (ROOT / templates).iterdir()}
    carried |= {
        f"pybridge/julia_src/ext/{path.name}" for path in (ROOT / "julia_src/ext").glob("*.jl")
    }
    assert carried <= names
    assert not {name for name in names if name.split("/")[0] in ("tests", "julia_src", "docs")}


def test_the_installed_package_works_without_julia(installed):
    program = "import pybridge as pb; print(pb.__file__); print(pb.grad(lambda x: x**3)(2.0))"
    where, slope = run(installed, "-c", program, cwd=installed.parents[1]).split()
    assert str(installed.parents[2].name) in where and str(ROOT) not in where
    assert float(slope) == 12.0
    run(installed.with_name("pybridge"), "check", "--list", cwd=installed.parents[1])
    # pytest finds the plugin by its entry point.
    assert "ad_systems" in run(installed, "-m", "pytest", "--markers", cwd=installed.parents[1])


@pytest.mark.nightly  # PyBridge.jl is compiled anew in its folder
@pytest.mark.julia
def test_the_installed_package_loads_pybridge_jl(installed):
    program = """
import pybridge as pb
f = pb.from_julia("x -> PyBridge.cond(PyBridge.within_gradient(x), abs2, identity, x)")
print(f(3.0), pb.grad(f, backend="zygote")(3.0))
from juliacall import Main
print(Main.seval("pkgdir(PyBridge)"))
"""
    from pybridge.julia._session import session

    # The main environment of this test run, so that nothing is installed twice.
    started = session()
    settings = {
        "PYTHON_JULIACALL_EXE": started.executable,
        "PYTHON_JULIACALL_PROJECT": started.project,
    }
    output = run(installed, "-c", program, cwd=installed.parents[1], **settings).split()
    assert output[:2] == ["3.0", "6.0"]
    assert output[2].endswith("site-packages/pybridge/julia_src")
