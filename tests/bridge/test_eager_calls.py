"""Eager calls one after the other: Python offers memory for a result like the last one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from bridge_helpers import julia

import pybridge as pb


def test_the_shape_changes_from_call_to_call():
    f = julia("n -> fill(Float64(n), Int(n), 2)")
    for n in (3, 3, 5, 0, 0, 3):
        np.testing.assert_array_equal(f(n), np.full((n, 2), float(n)))


def test_the_structure_and_the_dtype_change():
    f = julia(
        "x -> x > 2 ? (a=x, b=[x, 2x]) : x > 1 ? [x 2x; 3x 4x] : x > 0 ? Float32(x) : nothing"
    )
    for x in (3.0, 3.0, 1.5, 3.0, 0.5, 0.5, -1.0, 1.5):
        got = f(x)
        if x > 2:
            assert got.a == x
            np.testing.assert_array_equal(got.b, [x, 2 * x])
        elif x > 1:
            np.testing.assert_array_equal(got, [[x, 2 * x], [3 * x, 4 * x]])
        else:
            assert got == (np.float32(x) if x > 0 else None)


def test_results_do_not_share_memory():
    f = julia("x -> x .+ 1")
    results = [f(np.array([float(n), 2.0])) for n in range(4)]
    np.testing.assert_array_equal(results, [[n + 1.0, 3.0] for n in range(4)])


@pytest.mark.parametrize("leaves", [20, 31, 32, 40])
def test_more_numbers_than_there_is_room_for(leaves):
    f = julia(f"x -> ntuple(i -> fill(x * i, i % 3), {leaves})")
    for x in (1.0, 2.0):
        for i, leaf in enumerate(f(x), start=1):
            np.testing.assert_array_equal(leaf, np.full(i % 3, x * i))


def test_after_an_error_the_next_call_is_right():
    f = julia('x -> x > 0 ? [x, x] : error("negative")')
    for x in (1.0, -1.0, 2.0):
        if x < 0:
            with pytest.raises(pb.JuliaError, match="negative"):
                f(x)
        else:
            np.testing.assert_array_equal(f(x), [x, x])


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_order_that_cannot_be_written_to(order):
    x = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    x.setflags(write=False)
    f = julia("x -> sum(abs2, x)")
    for _ in range(2):
        np.testing.assert_array_equal(pb.grad(f)(x), 2 * x)


def test_threads_get_each_their_own():
    f = julia("n -> fill(Float64(n), Int(n))")

    def call(n):
        return all(np.array_equal(f(n), np.full(n, float(n))) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, [1, 2, 3, 4]))
