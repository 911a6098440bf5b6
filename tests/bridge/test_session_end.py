"""How calls of Julia, and processes, end: Ctrl-C, forks, exit. Each in a fresh process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from quick import examples

pytestmark = pytest.mark.processes

BUSY = "x -> (while true; x = sin(x) + sum(rand(3)); end; x)"
# Julia cannot be woken out of its event loop; the call ends by itself, the interrupt is at once.
ASLEEP = "x -> (sleep(6); x)"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("source", [BUSY, ASLEEP], ids=["busy", "asleep"])
def test_ctrl_c_raises_keyboard_interrupt_promptly_and_julia_goes_on(source):
    program = f"""
import time
import pybridge as pb
f = pb.from_julia({source!r})
g = pb.from_julia("x -> x + 1")
g(1.0)
print("ready", flush=True)
try:
    f(1.0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
for _ in range(20):
    try:
        assert g(1.0) == 2.0
        break
    except pb.JuliaUnavailableError as error:
        assert "still running" in str(error)
print("alive", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any(line.strip() == "ready" for line in process.stdout)
        time.sleep(1)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().strip() == "interrupted"
        assert time.monotonic() - sent < 4
        # Not `communicate`, which does not know what `readline` has read ahead.
        process.wait(timeout=40)
        output = process.stdout.read()
    finally:
        process.kill()
        process.stdout.close()
    assert process.returncode == 0, output
    assert output.strip() == "alive"


@pytest.mark.both
def test_ctrl_c_at_any_moment_of_quick_calls_leaves_the_next_ones_right(run_python):
    run_python(
        """
        import random, signal, threading, time
        import numpy as np
        import pybridge as pb
        gradient = pb.grad(pb.from_julia("x -> sum(abs2, x)"), backend="zygote")
        wait = pb.from_julia("x -> (t = time(); while time() - t < x; rand(3); end; x)")
        x = np.arange(1000.0)
        gradient(x), wait(0.0)
        sent = 0.0
        def interrupt(seconds):
            global sent
            time.sleep(seconds)
            sent = time.monotonic()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        # The longer ones are told to stop, and some end just then.
        for k in range(TIMES):
            longer = k % 11 == 0
            seconds = 0.03 if longer else 0.003 * random.random()
            thread = threading.Thread(target=interrupt, args=(seconds,))
            try:
                thread.start()
                if longer:
                    wait(0.05 + 0.06 * random.random())
                for i in range(100_000):
                    assert np.array_equal(gradient(x + i), 2 * (x + i))
            except KeyboardInterrupt:
                assert time.monotonic() - sent < 1
            else:
                raise SystemExit("not interrupted")
            thread.join()
            for i in range(3):
                assert np.array_equal(gradient(x - i), 2 * (x - i))
        """.replace("TIMES", str(examples(220))),
        timeout=120,
    )


def test_ctrl_c_in_python_code_is_pythons_and_a_fork_is_told_so(run_python):
    run_python("""
        import os, signal, time
        import pybridge as pb
        f = pb.from_julia("x -> x + 1")
        f(1.0)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        try:
            time.sleep(30)
        except KeyboardInterrupt:
            pass
        else:
            raise SystemExit("not interrupted")
        assert f(1.0) == 2.0

        child = os.fork()
        if child == 0:
            try:
                f(1.0)
            except pb.JuliaForkError as error:
                os._exit(0 if "spawn" in str(error) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert f(1.0) == 2.0
    """)


def test_exit_after_xlas_threads_have_been_in_julia_and_with_pullbacks_alive(run_python):
    # XLA's client waits for its threads when Python ends, and Julia has ended before.
    output = run_python("""
        import jax, jax.numpy as jnp
        import pybridge as pb
        f = pb.from_julia("x -> x .^ 2", ad="zygote")
        step = jax.jit(jax.grad(lambda x: f(x).sum()))
        x = jnp.ones((64, 64))
        for _ in range(50):
            x = step(x) * 0.5
        value, pull = pb.vjp(f, x, backend="zygote")
        threads = pb.from_julia("() -> Threads.maxthreadid() - Threads.nthreads()")()
        print(float(x.sum()), threads > 1)
    """)
    assert output.strip().endswith("4096.0 True")


def test_exit_with_a_call_that_does_not_stop(run_python):
    # A loop without a safepoint: nothing can stop it, and Python ends all the same.
    output = run_python("""
        import os, signal, threading
        import pybridge as pb
        f = pb.from_julia("x -> (while true; end; x)")
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            f(1.0)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert output.strip().endswith("interrupted")


def test_values_of_juliacall_are_not_freed_by_a_julia_that_has_ended(run_python):
    # Its threads are suspended, one perhaps with a lock that freeing needs: Python would never end.
    output = run_python("""
        import atexit, ctypes

        @atexit.register  # the first hook runs last
        def when_julia_has_ended():
            print(references.value)
            values.clear()
            print(references.value)

        import pybridge as pb
        pb.from_julia("identity")(1.0)
        import juliacall
        values = [juliacall.Main.seval("Ref(1)")]
        references = ctypes.c_ssize_t.from_address(id(values[0]))
        for _ in range(2):  # PythonCall has one until Julia has collected it
            juliacall.Main.seval("GC.gc(); PythonCall.GC.gc()")
    """)
    assert output.split() == ["1", "1"]
