"""Every scenario on every one of Julia's AD systems: the answer is the table's."""

import functools

import pytest

from pybridge.consistency import ask, load_scenarios, prepare

SCENARIOS = {scenario.name: scenario for scenario in load_scenarios()}

# `cond` and `switch` are what pybridge promises to be right under every system.
PROMISED = [name for name in SCENARIOS if name.startswith(("cond-", "switch-"))] + [
    "detect-cond",
    "detect-several",
    "detect-array",
    "detect-loop",
    "detect-closure",
    "mlp-dropout",
]


@functools.cache
def ready(system):
    backend = prepare(system)
    assert backend.available, backend.reason
    return backend


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_answer_is_as_the_table_says(name, system):
    answer = ask(SCENARIOS[name], ready(system))
    assert answer.status in ("right", "convention", "known", "unsupported"), answer
    assert not answer.surprises


@pytest.mark.parametrize("name", PROMISED)
def test_what_pybridge_promises_is_right(name, system):
    assert ask(SCENARIOS[name], ready(system)).status == "right"
