"""Write `random.toml`: JAX's random numbers, for the tests of both languages.

    python tests/vectors/make_random.py

Numbers are written as the hexadecimal digits of their bits, array after array in row-major order,
which is Julia's order for the array with reversed axes. Everything but the normal numbers, which
depend on how XLA rounds, is the same in every version of JAX that pybridge supports.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

FILE = Path(__file__).with_name("random.toml")

KEYS = ((0, 0), (0, 42), (0xFFFFFFFF, 0xFFFFFFFF), (0x13579BDF, 0x80000000), (0xDEADBEEF, 7))
SHAPES = ((), (0,), (1,), (13,), (2, 0, 3), (3, 5, 7), (1, 2, 1, 5))
NUMBERS = (0, 1, 7, 0x7FFFFFFF, 0xFFFFFFFF)
COUNTERS = (0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 5 * 2**32 + 17, 2**63 + 3, 2**64 - 1)
# 2^-25 and 2^-24 are beyond float32's resolution of a uniform number, 1 - 2^-23 is just within.
PROBABILITIES = (0.0, 2.0**-25, 2.0**-24, 1e-3, 0.1, 0.3, 0.5, 0.9, 1 - 2.0**-23, 1.0)
BOUNDS = (-2.5, 7.25)


def hexadecimal(x: Any) -> str:
    """Write the bits of all elements."""
    return np.asarray(x).astype(np.asarray(x).dtype.newbyteorder(">")).tobytes().hex()


def words(key: Any) -> list[int]:
    """Take a key apart."""
    return [int(word) for word in np.asarray(jax.random.key_data(key))]


def keys() -> list[Any]:
    """Make the keys that are drawn from: given ones, and some that come from others."""
    given = [jax.random.wrap_key_data(jnp.array(pair, "uint32")) for pair in KEYS]
    return [*given, jax.random.fold_in(given[1], 3), *jax.random.split(given[2], 2)]


def draws(key: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Draw everything that has one number, or one truth value, for each element."""
    entry: dict[str, Any] = {"key": words(key), "shape": list(shape)}
    for size in (8, 16, 32, 64):
        entry[f"bits{size}"] = hexadecimal(jax.random.bits(key, shape, f"uint{size}"))
    for size in (16, 32, 64):
        entry[f"uniform{size}"] = hexadecimal(jax.random.uniform(key, shape, f"float{size}"))
    for size in (16, 32, 64):
        dtype = f"float{size}"
        entry[f"between{size}"] = hexadecimal(jax.random.uniform(key, shape, dtype, *BOUNDS))
        entry[f"normal{size}"] = hexadecimal(jax.random.normal(key, shape, dtype))
    entry["keep"] = [
        hexadecimal(jax.random.bernoulli(key, np.float32(1 - p), shape)) for p in PROBABILITIES
    ]
    return entry


def table(drawn: Collection[int] | None = None) -> dict[str, Any]:
    """Ask JAX for what is in the file; `drawn`: which of the draws. Needs double precision."""
    given = keys()
    return {
        "bounds": list(BOUNDS),
        "probabilities": list(PROBABILITIES),
        "fold_in": [
            {"key": words(key), "data": data, "words": words(jax.random.fold_in(key, data))}
            for key in given
            for data in NUMBERS
        ],
        "split": [
            {"key": words(key), "keys": [words(k) for k in jax.random.split(key, n)]}
            for key in given
            for n in (1, 2, 5)
        ],
        # The cipher itself: no array is so large that its last elements would test the upper word.
        "block": [
            {"key": list(key), "counter": [counter >> 32, counter % 2**32], "words": block}
            for key in KEYS
            for counter in COUNTERS
            for block in [cipher(key, counter)]
        ],
        "draw": [
            draws(key, shape)
            for i, (key, shape) in enumerate(itertools.product(given, SHAPES))
            if drawn is None or i in drawn
        ],
    }


def cipher(key: tuple[int, int], counter: int) -> list[int]:
    """Encrypt a counter of 64 bits."""
    halves = jnp.array([counter >> 32, counter % 2**32], "uint32")
    return threefry_2x32(jnp.array(key, "uint32"), halves).tolist()


def as_toml(content: dict[str, Any]) -> str:
    """Write a table of numbers, strings, lists and lists of tables."""
    lines = ["# Written by make_random.py."]
    lines += [f"{k} = {v!r}" for k, v in content.items() if not isinstance(v[0], dict)]
    for name, entries in content.items():
        for entry in entries if isinstance(entries[0], dict) else ():
            lines += ["", f"[[{name}]]"]
            lines += [
                f"{k} = {str(v).replace(chr(39), chr(34))}"
                if isinstance(v, list | int)
                else f'{k} = "{v}"'
                for k, v in entry.items()
            ]
    return "\n".join(lines) + "\n"


def stored() -> dict[str, Any]:
    """Read the file."""
    return tomllib.loads(FILE.read_text())


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    FILE.write_text(as_toml(table()))
