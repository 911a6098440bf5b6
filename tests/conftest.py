"""What all tests share: the markers `julia` and `peers`, and a loud word about what they skip."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
from pathlib import Path

# Before anything imports JAX: eight devices, for the sharding tests.
_DEVICES = "--xla_force_host_platform_device_count=8"
if _DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Compiling is most of the work. What one process has compiled, the others and later runs take
# from here; the key holds JAX's version, its flags and the processor.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "d" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import julia_state
from quick import LONG, compile_in_haste, left_for_the_night, one_mlir_context

# The installed entry point and this are one: pytest skips a module that it has by this name.
pytest_plugins = ["pytester", "pybridge_pytest"]

NOT_FOUND = "Julia not found: "
QUICK = "not nightly"  # what pyproject.toml has for `-m`


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Free what JAX compiled for a file, and the context in which it lowered that.

    Thousands of programs in one process take gigabytes, and on Linux so many memory maps that
    neither XLA nor Julia can get another one.
    """
    import jax

    with one_mlir_context():
        yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def no_other_test_starts_julia(request):
    """Fail a test that starts Julia unmarked: it is another test where there is none.

    By day it would also be a Julia that compiles, and Julia starts once in a process.
    """
    before = julia_state.is_started()
    yield
    if julia_state.is_started() and not before and not request.node.get_closest_marker("julia"):
        pytest.fail("this test starts Julia: mark it `julia`", pytrace=False)


def pytest_addoption(parser):
    parser.addoption(
        "--interpret",
        action="store_true",
        help="let Julia interpret, as in the quick run, whatever is selected",
    )


def pytest_configure(config):
    if config.option.markexpr == QUICK:
        compile_in_haste()
    elif not config.option.interpret:
        os.environ[LONG] = "1"
    # A shell that starts tests in the background has them ignore Ctrl-C, and what they start too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # xdist would start with the files of most tests. The longest are others; see below.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config, items):
    for item in items:
        folder = _folder(item)
        if folder in ("bridge", "julia"):
            item.add_marker("julia")
        # The long run has properties with more examples, and Julia's own tests with all cases.
        in_both = any(item.get_closest_marker(name) for name in ("hypothesis", "both"))
        if config.option.markexpr != QUICK and (in_both or folder == "julia"):
            item.add_marker("nightly")
        # By day Julia interprets, so the long run compiles what the quick one has run. The run for
        # peers, which is neither, keeps its own.
        if config.option.markexpr == "nightly" and folder == "bridge":
            item.add_marker("nightly")
    for item in left_for_the_night(i for i in items if not i.get_closest_marker("nightly")):
        item.add_marker("nightly")
    items.sort(key=_turn)


def _folder(item):
    """Name the folder of this one that a test is in."""
    return os.path.relpath(item.path, Path(__file__).parent).split(os.sep)[0]


def _turn(item):
    """Let tests that need no Julia come first: meanwhile another worker can start one.

    Last comes what needs nothing of its worker, so that any may take it at the end.
    """
    alone = item.get_closest_marker("processes") is not None
    return {"julia": 1, "bridge": 2}.get(_folder(item), 0), alone


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.option.dist == "loadfile":
        from julia_worker import JuliaInOneWorker

        return JuliaInOneWorker(config, log)


def pytest_collection_finish():
    # What is imported and collected stays. The collector need not look at it after each file, nor
    # as often as in programs that make fewer objects.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    for peer in (name for mark in item.iter_markers("peers") for name in mark.args):
        if importlib.util.find_spec(peer) is None:
            pytest.skip(f'needs {peer}: pip install -e ".[peers]"')
    if item.get_closest_marker("julia") is None:
        return
    reason = julia_state.why_not()
    if reason is None:
        if _folder(item) == "bridge" and item.get_closest_marker("processes") is None:
            julia_state.make_ready()
        return
    if julia_state.is_required():
        pytest.fail(f"PYBRIDGE_REQUIRE_JULIA is set, but: {reason}", pytrace=False)
    pytest.skip(NOT_FOUND + reason)


def pytest_terminal_summary(terminalreporter):
    # From the reports alone: with several processes the tests ran elsewhere.
    for report in terminalreporter.stats.get("passed", ()):
        for note in [value for name, value in report.user_properties if name == "note"]:
            terminalreporter.write_line(note)
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    reasons = [text.split(NOT_FOUND)[1] for text in reasons if NOT_FOUND in text]
    if reasons:
        terminalreporter.section("Julia not found", sep="!", red=True, bold=True)
        reason = reasons[0].rstrip("')")
        terminalreporter.write_line(f"{len(reasons)} tests that need Julia were skipped: {reason}.")
        terminalreporter.write_line("PYBRIDGE_REQUIRE_JULIA=1 turns these skips into failures.")
