"""Every scenario on every one of Julia's AD systems: the answer is the table's."""

import functools

import pytest
from bridge_helpers import SYSTEMS

from pybridge.consistency import ask, load_scenarios, prepare

pytestmark = pytest.mark.ad_systems(*SYSTEMS)

SCENARIOS = {scenario.name: scenario for scenario in load_scenarios()}
CONVENTIONS = {scenario.name: scenario for scenario in load_scenarios("conventions")}

# `cond`, `switch` and `take` are what pybridge promises to be right under every system.
PROMISED = [name for name in SCENARIOS if name.startswith(("cond-", "switch-", "take-"))] + [
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
def test_the_answer_is_as_the_table_says(name, ad_system):
    answer = ask(SCENARIOS[name], ready(ad_system))
    assert answer.status in ("right", "convention", "known", "unsupported"), answer
    assert not answer.surprises


@pytest.mark.parametrize("name", CONVENTIONS)
def test_the_convention_is_as_the_table_says(name, ad_system):
    answer = ask(CONVENTIONS[name], ready(ad_system))
    assert answer.status in ("right", "convention", "known", "unsupported"), answer
    assert not answer.surprises


@pytest.mark.parametrize("name", PROMISED)
def test_what_pybridge_promises_is_right(name, ad_system):
    assert ask(SCENARIOS[name], ready(ad_system)).status == "right"
