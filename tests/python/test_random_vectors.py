"""JAX still gives the random numbers that the tests of both languages expect."""

import functools

import numpy as np
import pytest
from quick import combined
from vectors import make_random

# XLA rounds these as the processor and its version like; the bits beneath are in other fields.
ROUNDED = ("between", "normal")


# The draws have each key and each shape, and by night all pairs of them.
STORED = make_random.stored()
SHAPES = len(make_random.SHAPES)
PAIRS = combined(range(len(STORED["draw"]) // SHAPES), range(SHAPES))
DRAWN = sorted(key * SHAPES + shape for key, shape in PAIRS)


@functools.cache
def table():
    return make_random.table(DRAWN)


@pytest.fixture
def tables(x64):
    return table(), STORED | {"draw": [STORED["draw"][i] for i in DRAWN]}


def exactly(entry):
    return {k: v for k, v in entry.items() if not k.startswith(ROUNDED)}


@pytest.mark.both
def test_jax_gives_the_stored_numbers(tables):
    fresh, stored = tables
    assert fresh.keys() == stored.keys()
    for name in fresh.keys() - {"draw"}:
        assert fresh[name] == stored[name], name
    for one, other in zip(fresh["draw"], stored["draw"], strict=True):
        assert exactly(one) == exactly(other)


@pytest.mark.both
def test_what_is_rounded_is_close(tables):
    fresh, stored = tables
    fields = [f"{name}{size}" for name in ROUNDED for size in (16, 32, 64)]
    for one, other in zip(fresh["draw"], stored["draw"], strict=True):
        for field in fields:
            dtype = np.dtype(f">f{int(field[-2:]) // 8}")
            values = [np.frombuffer(bytes.fromhex(x[field]), dtype) for x in (one, other)]
            accuracy = 32 * float(np.finfo(dtype).eps)
            np.testing.assert_allclose(*values, rtol=accuracy, atol=8 * accuracy)


def test_the_vectors_hold_what_could_go_wrong():
    shapes = {tuple(entry["shape"]) for entry in STORED["draw"]}
    assert () in shapes and any(0 in shape for shape in shapes)
    assert any(len(shape) >= 3 and all(n % 2 for n in shape) for shape in shapes)
    assert any(entry["counter"][0] > 0 for entry in STORED["block"])
    keys = {tuple(entry["key"]) for entry in STORED["draw"]}
    assert {(0, 0), (2**32 - 1, 2**32 - 1)} < keys
    # Some probabilities are beyond the resolution of 23 bits: nothing, or all, is dropped.
    kept = [[bytes.fromhex(text) for text in entry["keep"]] for entry in STORED["draw"]]
    for p, masks in zip(STORED["probabilities"], zip(*kept, strict=True), strict=True):
        share = np.mean(np.frombuffer(b"".join(masks), bool))
        assert abs(share - (1 - p)) < 0.05, p
