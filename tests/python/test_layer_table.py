"""The table of layers: its entries, the comparison with finite differences, and the report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quick import by_day

from pybridge import nn
from pybridge.consistency import (
    LayerAnswer,
    compare,
    layers_ok,
    layers_to_markdown,
    load_layers,
    prepare,
    print_layers,
)

CASES = load_layers()
FINITE = prepare("finite")


# A layer, a container, integers as input, and a state; each layer has tests of its own.
DAY = [case for case in CASES if case.title in ("Dense (5, 3)", "BatchNorm (6, 3)")]
DAY += [next(case for case in CASES if case.name == name) for name in ("Chain", "Embedding")]


@pytest.mark.parametrize("case", by_day(CASES, DAY), ids=lambda case: case.title)
def test_jaxs_gradients_are_the_finite_differences(case):
    answer = compare(case, FINITE, "float64")
    assert answer.status == "right", answer


def test_every_kind_of_layer_is_in_the_table():
    kinds = {
        name
        for name, value in vars(nn).items()
        if isinstance(value, type)
        and issubclass(value, nn.Layer)
        # The bases of layers and cells of one's own; and what Flux has no layer for.
        and value not in (nn.Layer, nn.Cell, nn.Tied)
    }
    # A function in Flux, too, that makes a Conv.
    assert {*kinds, "DepthwiseConv"} == {case.name for case in CASES}


def test_titles_are_unique():
    assert len({case.title for case in CASES}) == len(CASES)


def test_a_wrong_gradient_is_reported(monkeypatch):
    from pybridge.consistency.suites import _layers

    monkeypatch.setattr(_layers, "_gradient_error", lambda *_: 0.1)
    assert compare(CASES[0], FINITE, "float64").status == "wrong"
    documented = replace(CASES[0], known={"finite": "planted"})
    assert compare(documented, FINITE, "float64") == LayerAnswer("known", 0.0, 0.1, "planted")


def test_an_exception_is_reported():
    broken = replace(CASES[0], python="nn.Dense(3, 4, 5)")
    answer = compare(broken, FINITE, "float64")
    assert answer.status == "error" and "activation" in answer.reason


def test_an_absent_system_is_absent():
    absent = replace(FINITE, available=False)
    assert compare(CASES[0], absent, "float64").status == "absent"


ROWS = [
    (CASES[0], "float64", {"finite": LayerAnswer("right", 0.0, 3e-9)}),
    (CASES[1], "float32", {"finite": LayerAnswer("wrong", 0.5, 1.0)}),
]


def test_the_report_as_markdown():
    text = "\n".join(layers_to_markdown(ROWS, [FINITE]))
    assert f"| {CASES[0].title} | float64 | ✓ 0e+00 3e-09 |" in text
    assert f"- {CASES[1].title}, float32, finite: wrong" in text
    assert text.endswith("1 right, 1 wrong")
    assert not layers_ok(ROWS) and layers_ok(ROWS[:1])


def test_each_row_of_markdown_comes_when_it_is_there():
    def rows():
        yield ROWS[0]
        raise KeyboardInterrupt

    lines = layers_to_markdown(rows(), [FINITE])
    assert CASES[0].title in [next(lines) for _ in range(3)][-1]
    with pytest.raises(KeyboardInterrupt):
        next(lines)


def test_the_report_on_a_terminal():
    from rich.console import Console

    console = Console(record=True, width=120)
    print_layers(ROWS, [FINITE], console)
    text = console.export_text()
    assert CASES[0].title in text and "3e-09" in text and "1 right, 1 wrong" in text


def test_the_command_refuses_options_of_the_scenarios(capsys):
    from pybridge.cli import main

    assert main(["check", "--layers", "--json"]) == 2
    assert "no option but --backend and --markdown" in capsys.readouterr().err
