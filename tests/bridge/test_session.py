"""Julia's life inside Python: start, threads, calls. Each in a fresh process."""

from __future__ import annotations

import os

import pytest
from quick import examples, seconds

pytestmark = pytest.mark.processes


def test_julia_starts_on_first_use_of_many_threads_once_and_not_before(run_python):
    run_python("""
        import sys, threading
        import pybridge as pb
        pb.grad(lambda x: x**2)(1.0)
        pb.grad(lambda x: x**2, backend="finite")(1.0)
        assert "juliacall" not in sys.modules
        answers = []
        def work():
            answers.append(float(pb.from_julia("x -> x + 1")(1.0)))
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert answers == [2.0] * 8, answers
        assert "juliacall" in sys.modules
    """)


def test_zygote_is_loaded_before_pythoncall(run_python):
    run_python("""
        import ctypes
        library = ctypes.PyDLL
        import pybridge as pb
        order = pb.from_julia('''() -> begin
            names = map(nameof, Base.loaded_modules_order)
            Float64.((findfirst(==(:Zygote), names), findfirst(==(:PythonCall), names)))
        end''')
        zygote, pythoncall = order()
        assert zygote < pythoncall, (zygote, pythoncall)
        assert ctypes.PyDLL is library
    """)


def test_a_call_that_is_not_differentiated_needs_no_package_of_an_ad_system(run_python):
    run_python("""
        import jax, numpy as np
        import pybridge as pb
        for ad in ("tracker", "di:AutoFiniteDiff()"):
            f = jax.jit(pb.from_julia("x -> 2x", ad=ad))
            assert f(np.float32(3)) == 6
        names = '("Tracker", "DifferentiationInterface", "NNlib")'
        loaded = pb.from_julia(
            f"x -> x * count(m -> string(nameof(m)) in {names}, Base.loaded_modules_array())"
        )
        assert loaded(1) == 1  # NNlib is there
    """)


@pytest.mark.both
def test_threads_neither_hang_nor_crash_while_collections_run(run_python):
    # Four Python threads, one of them the main one, that allocate on both sides; collections of
    # both collectors at any moment; errors in between.
    run_python(
        """
        import gc, threading, time
        import numpy as np
        import pybridge as pb
        f = pb.from_julia("x -> (y = [copy(x) for _ in 1:50]; sum(abs2, last(y)))")
        collect = pb.from_julia("x -> (GC.gc(x > 0); x)")
        fails = pb.from_julia("x -> error(\\"planted\\")")
        pb.grad(f, backend="zygote")(np.ones(100))   # what is compiled once is compiled now
        stop = time.monotonic() + SECONDS
        counts, wrong = [0] * 4, []
        def work(k):
            x = np.arange(100.0) + k
            while time.monotonic() < stop or counts[k] <= 10:
                g = pb.grad(f, backend="zygote")(x)
                if not np.allclose(g, 2 * x):
                    wrong.append(k)
                if counts[k] % 20 == 0:
                    collect(1.0)
                if counts[k] % 30 == 0:
                    gc.collect()
                    try:
                        fails(1.0)
                        wrong.append("no error")
                    except pb.JuliaError:
                        pass
                if counts[k] % 10 == 0:
                    pb.from_julia("x -> x")(1.0)   # made and released
                counts[k] += 1
        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        [t.start() for t in threads]
        work(3)
        [t.join() for t in threads]
        assert not wrong, wrong
        """.replace("SECONDS", str(seconds(15))),
        timeout=300,
    )


def test_juliacall_may_be_used_beside_from_the_main_thread(run_python):
    run_python("""
        import threading
        import numpy as np
        import pybridge as pb
        f = pb.from_julia("x -> (y = [copy(x) for _ in 1:100]; sum(abs2, last(y)))")
        f(np.ones(100))
        from juliacall import Main
        stop = threading.Event()
        def work():
            while not stop.is_set():
                f(np.ones(1000))
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(200):
            assert Main.seval("sum(rand(1000, 10)) > 0")
            Main.GC.gc(False)
        stop.set()
        thread.join()

        # A call from Julia to Python and back.
        inner = pb.from_julia("x -> x + 1")
        Main.seval("import PythonCall")
        Main.back = lambda x: float(inner(float(x)))
        outer = pb.from_julia(
            "x -> Main.PythonCall.GIL.@lock 2 * Main.PythonCall.pyconvert(Float64, Main.back(x))"
        )
        for k in range(50):
            assert outer(float(k)) == 2 * (k + 1)
    """)


def test_a_call_within_a_call_leaves_the_outer_ones_result_alone(run_python):
    # Both return a Float64: what the inner call left behind looked like what the outer one expects.
    run_python("""
        import pybridge as pb
        from pybridge.julia._session import session
        with session()._worker.sending:  # so that all calls go by the queue
            pb.from_julia("x -> x / 2")(1.0)
            from juliacall import Main
            Main.seval("import PythonCall: GIL, pyconvert")
            inner = pb.from_julia("x -> x + 1")
            Main.back = lambda x: float(inner(float(x)))
            outer = pb.from_julia("x -> Main.GIL.@lock 2 * Main.pyconvert(Float64, Main.back(x))")
            for k in range(3):
                assert outer(float(k)) == 2 * (k + 1)
    """)


@pytest.mark.both
def test_collections_go_on_while_a_python_function_that_julia_called_waits_for_julia(run_python):
    run_python(
        """
        import numpy as np
        import pybridge as pb
        collects = pb.from_julia("x -> (GC.gc(); sum(abs2, x))")
        collects(np.ones(2))
        from juliacall import Main
        def objective(x):
            x = np.array([x, 1.0])
            made = pb.from_julia("x -> (sleep(0.01); GC.gc(); 2 .* x)")  # the mailbox sleeps then
            gradient = pb.grad(collects, backend="forwarddiff")(x)
            return float(collects(x) + made(x)[0] + gradient[1])
        total = Main.seval("f -> sum(f(Float64(i)) for i in 1:COUNT)")(objective)
        assert total == sum(i**2 + 1 + 2 * i + 2 for i in range(1, COUNT + 1)), total
        """.replace("COUNT", str(examples(20)))
    )


def test_one_processor_is_enough(run_python):
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("processors cannot be chosen here")
    run_python("""
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import pybridge as pb
        f = pb.from_julia("x -> x + 1")
        assert [float(f(float(k))) for k in range(100)] == [k + 1.0 for k in range(100)]
    """)


def test_juliacall_imported_before_with_other_settings_is_explained(run_python):
    run_python(
        """
        import juliacall
        import pybridge as pb
        try:
            pb.from_julia("x -> x")
        except pb.JuliaUnavailableError as error:
            assert "PYTHON_JULIACALL_HANDLE_SIGNALS=yes" in str(error), error
        else:
            raise SystemExit("no error")
    """,
        env=_juliapkg_environment(),
    )


def test_juliacall_imported_before_with_the_right_settings_works(run_python):
    run_python(
        """
        import threading
        import numpy as np
        from juliacall import Main
        import pybridge as pb
        f = pb.from_julia("x -> (y = [copy(x) for _ in 1:50]; GC.gc(false); sum(abs2, last(y)))")
        def work():
            for _ in range(20):
                f(np.ones(100))
        threads = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert Main.seval("1 + 1") == 2
    """,
        env=_juliapkg_environment() | {"PYTHON_JULIACALL_HANDLE_SIGNALS": "yes"},
    )


def _juliapkg_environment() -> dict[str, str]:
    """Name the Julia that pybridge would choose, for processes that do not ask pybridge."""
    from pybridge.julia._locate import choose_julia

    executable = choose_julia().executable
    assert executable is not None
    return os.environ | {"PYTHON_JULIAPKG_EXE": executable}


def test_collections_after_faulthandler_is_disabled(run_python):
    # As under pytest, which enables it when it starts and disables it when it ends.
    output = run_python("""
        import faulthandler
        faulthandler.enable()
        import pybridge as pb
        collect = pb.from_julia('''begin
            const END = Ref(false)
            const TASK = Threads.@spawn while !END[]; rand(10); end
            n -> (foreach(_ -> GC.gc(false), 1:n); END[] = n > 0; END[] && wait(TASK); n)
        end''')
        collect(0)
        faulthandler.disable()
        print(collect(50))
    """)
    assert output.strip().endswith("50")
