"""The example of a project that tests its derivatives, and what it says when they break."""

import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "examples" / "pytest_project"
PAGE = ROOT / "docs" / "how-to" / "test-with-pytest.md"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run the project's tests, with changes to its module, where there is no Julia to start."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(*changes, select=""):
        for path in PROJECT.iterdir():
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                for old, new in changes if path.name == "losses.py" else ():
                    assert text.count(old) == 1
                    text = text.replace(old, new)
                pytester.path.joinpath(path.name).write_text(text, encoding="utf-8")
        options = ("-p", "pybridge_pytest", "--ad-systems=jax,finite", "-W", "error", "-k", select)
        with jax.numpy_dtype_promotion("standard"):
            return pytester.runpytest_inprocess(*options)

    return run


def test_the_project_passes(run):
    run().assert_outcomes(passed=2, skipped=1)


def test_a_wrong_rule_says_what_the_page_shows(run):
    result = run(("jnp.tanh(x) * dx", "-jnp.tanh(x) * dx"), select="log_cosh_is_right")
    result.assert_outcomes(failed=1)
    said = "\n".join(line[1:].strip() for line in result.outlines if line.startswith("E "))
    shown = re.search(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    for line in shown[1].splitlines():
        assert line.strip() in said


def test_a_gap_that_was_closed_says_so(run):
    smooth = ("jnp.where(error > 0, 0.9 * error, -0.1 * error)", "jax.nn.softplus(error)")
    result = run(smooth, select="pinball")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E*[[]kink:jax[]] is allowed*corner at 0*no longer occurs: remove it*"]
    )


def test_the_page_shows_the_project_as_it_is():
    text = PAGE.read_text(encoding="utf-8")
    for name in ("losses.py", "test_losses.py"):
        assert f"```py\n{(PROJECT / name).read_text(encoding='utf-8')}```" in text, name
