"""What is released when JAX has computed it, and the end of the process meanwhile."""

import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp

from pybridge.julia._pending import when_computed


@jax.jit
def _slow(x):
    return jax.lax.fori_loop(0, 200, lambda _, x: x @ x / jnp.linalg.norm(x), x)


def test_work_waits_for_the_arrays():
    done, was_ready = threading.Event(), []
    _slow(jnp.ones((2, 2)))  # compiled
    y = _slow(jnp.ones((300, 300)))

    def work():
        was_ready.append(y.is_ready())
        done.set()

    when_computed(work)
    assert done.wait(60)
    assert was_ready == [True]


def test_python_ends_while_something_is_computed():
    """The end of the computation falls into Python's own end, which takes longer."""
    program = """
        import time
        import jax, jax.numpy as jnp
        from pybridge.julia._pending import when_computed

        class EndsLate:
            def __del__(self, sleep=time.sleep):
                sleep(2)

        late = EndsLate()

        pending = jax.jit(lambda x: jax.lax.fori_loop(
            0, 100, lambda _, x: x @ x / jnp.linalg.norm(x), x))(jnp.ones((600, 600)))
        when_computed(lambda: print("released"))
        assert not pending.is_ready()
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert "released" not in ended.stdout
    assert ended.stderr == ""


def test_nothing_is_released_once_python_ends():
    program = """
        import atexit

        def last():
            when_computed(lambda: print("released"))
            assert not [t for t in threading.enumerate() if t.name == "pybridge-release"]

        atexit.register(last)  # runs after the hook of what is imported next
        import threading
        from pybridge.julia._pending import when_computed
        when_computed(lambda: print("in time"))
        assert any(t.name == "pybridge-release" for t in threading.enumerate())
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "released" not in ended.stdout
