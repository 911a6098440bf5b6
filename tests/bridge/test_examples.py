"""The examples run and print what they promise."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from bridge_helpers import SYSTEMS
from quick import JULIA_OPTIMIZE

from pybridge.julia._environments import folder
from pybridge.julia._session import session

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *options: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_question(capsys):
    # Here, where all systems are loaded.
    runpy.run_path(str(EXAMPLES / "one_question.py"), run_name="__main__")
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if "gradient" in line]
    assert len(lines) == len(("jax", "finite", *SYSTEMS)), printed
    for line in lines:
        # Finite differences call the function as it is: outside a gradient.
        expected = "value 6.0" if line.startswith("finite") else "value 12.0"
        assert expected in line, line


@pytest.mark.nightly  # test_to_julia.py has such a layer by day
@pytest.mark.peers("sklearn")
def test_jax_layer_in_flux():
    accuracies = re.findall(r"test accuracy (\S+)", run_julia(EXAMPLES / "jax_layer_in_flux.jl"))
    assert len(accuracies) == 4
    assert float(accuracies[-1]) > 0.95


def test_a_julia_program_uses_pybridge(tmp_path):
    # Both ways across, releases on the way, an error, and a package that is installed on demand.
    script = tmp_path / "script.jl"
    script.write_text("""
        using PythonCall: pybuiltins, pyconvert, pyeval, pyimport
        pb, np = pyimport("pybridge"), pyimport("numpy")
        g = pyconvert(Any, pb.to_julia(pyimport("jax.numpy").sin))
        x = Float32[1, 2]
        @assert g(x) ≈ sin.(x)
        y, back = PyBridge.ChainRulesCore.rrule(g, x)
        @assert back(x)[2] ≈ x .* cos.(x)
        f = pb.from_julia("x -> sum(abs2, x)")
        for backend in ("zygote", "tracker")
            slope = pb.grad(f; backend)(np.array([1.0, 2.0]))
            @assert pyconvert(Vector, slope) == [2, 4]
        end
        f = nothing
        pyimport("gc").collect()
        total = pb.from_julia(pb.to_julia(pyimport("jax.numpy").sum))(x)
        @assert pyconvert(Float64, pybuiltins.float(total)) == 3
        broken = pyconvert(Any, pb.to_julia(pyeval("lambda x: x.planted", Main)))
        message = try broken(x) catch e; sprint(showerror, e) end
        @assert occursin("AttributeError", message) message
        GC.gc()
        @assert g(x) ≈ sin.(x)
        pool = pyimport("concurrent.futures").ThreadPoolExecutor(1)
        other = pool.submit(pb.from_julia, "sin").exception()
        @assert occursin("the thread on which it was", pyconvert(String, pybuiltins.str(other)))
        println("done")
    """)
    assert run_julia(script).strip().endswith("done")


def run_julia(script: Path) -> str:
    """Run a Julia program in the main environment, with Flux."""
    started = session()
    started.require("Flux")
    flux = folder("Flux", started.project, started.julia_version)
    done = subprocess.run(
        [
            started.executable,
            f"-O{os.environ.get(JULIA_OPTIMIZE, 2)}",
            f"--project={started.project}",
            "--startup-file=no",
            str(script),
        ],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "JULIA_CONDAPKG_BACKEND": "Null",
            "JULIA_LOAD_PATH": os.pathsep.join(("@", str(flux), "@stdlib")),
            "JULIA_PYTHONCALL_EXE": sys.executable,
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.peers("optax", "sklearn")
def test_train_flux_layer_in_jax():
    last = run("train_flux_layer_in_jax.py").splitlines()[-1]
    name, accuracy = last.split(": ")
    assert name == "test accuracy"
    assert float(accuracy) >= 0.95


@pytest.mark.nightly  # each trainer alone is a few lines; the Flux layers are tested by day
@pytest.mark.peers("equinox", "flax", "optax", "sklearn")
def test_four_trainers():
    printed = run("four_trainers.py", "--epochs", "2")
    found = re.findall(r"first loss (\S+), last (\S+), .* from optax (\S+)", printed)
    assert len(found) == 4, printed
    for first, last, apart in found:
        assert float(last) < float(first) / 4 and float(apart) < 1e-10, printed


@pytest.mark.nightly
@pytest.mark.peers("optax", "sklearn")
def test_digits_three_ways(tmp_path):
    plot = tmp_path / "digits.svg"
    has_matplotlib = find_spec("matplotlib") is not None
    printed = run("digits.py", "--steps", "300", *(["--plot", plot] if has_matplotlib else []))
    found = re.findall(r"difference in 50 steps (\S+), test accuracy (\S+)", printed)
    assert len(found) == 3, printed
    assert all(float(apart) < 1e-4 and float(right) >= 0.97 for apart, right in found), printed
    assert plot.exists() == has_matplotlib
