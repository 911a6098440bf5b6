"""Fixtures of the tests that need no Julia."""

import os
import zlib

import jax
import julia_state
import pytest

from pybridge import JuliaUnavailableError
from pybridge.julia import _systems


@pytest.fixture(scope="module", autouse=True)
def check_asks_jax():
    """With a Julia on PATH, `pb.check` would lower every function here; see tests/bridge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYBRIDGE_CHECK_BACKENDS", "jax")
        yield


@pytest.fixture
def no_julia(monkeypatch):
    """Let Julia's systems be absent; the value is the reason."""
    reason = "Julia could not be started.\nWhat helps:\n  - install [it]"

    def session():
        raise JuliaUnavailableError(reason)

    monkeypatch.setattr(_systems, "session", session)
    return reason


@pytest.fixture
def no_julia_chosen(monkeypatch):
    """Leave out what the caller's environment says about which Julia is used."""
    for name in julia_state.SETTINGS:
        monkeypatch.delenv(name, raising=False)


def unchanged(function):
    return function


@pytest.fixture(params=[unchanged, jax.jit], ids=["eager", "jit"])
def maybe_jit(request):
    """Run the test twice: with the identity and with `jax.jit` to wrap functions in."""
    return request.param


@pytest.fixture
def optimised():
    """Compile with all optimisations, for tests that look at compiled programs."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def x64():
    """Switch double precision on for one test."""
    yield from _with_x64(True)


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def both_precisions(request):
    """Run the test in single and in double precision; the value says which."""
    yield from _with_x64(request.param)


def _with_x64(enabled):
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", enabled)
    yield enabled
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(autouse=True)
def strict_promotion():
    """Let no implicit conversion hide in pybridge's own code."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def key(request):
    """Return a PRNG key of the test's own, printed so that a failure can be repeated."""
    seed = int(os.environ.get("PYBRIDGE_TEST_SEED", zlib.crc32(request.node.name.encode())))
    print(f"PYBRIDGE_TEST_SEED={seed}")
    return jax.random.key(seed)


@pytest.fixture
def mesh():
    """Return a mesh of four devices with one axis, "i"."""
    return jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))


@pytest.fixture
def count_traces():
    """Return a decorator; the decorated function counts its calls in `.traces`."""

    def decorate(function):
        def counted(*args):
            counted.traces += 1
            return function(*args)

        counted.traces = 0
        return counted

    return decorate
