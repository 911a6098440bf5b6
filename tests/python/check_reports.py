"""Hand-made reports of `pb.check`, with everything in them that a report can hold."""

from __future__ import annotations

import numpy as np

from pybridge._backends import Backend
from pybridge.consistency import Finding, Probe, Report, SlopeCurve, SystemAnswer
from pybridge.jaxprs import Location

JAX = Backend("jax", "python", "both", "jax", "0.10.2", True)
FINITE = Backend("finite", "python", "forward", "numpy", "2.3.5", True)
ZYGOTE = Backend("zygote", "julia", "reverse", "Zygote", "0.7.12", True)
FORWARDDIFF = Backend("forwarddiff", "julia", "forward", "ForwardDiff", "1.4.5", True)
YOTA = Backend("yota", "julia", "reverse", "Yota", reason="No such package.\nInstall [it].")

SCRIPT = "<script>alert('x')</script>"


def kink_report() -> Report:
    """Report what a checker finds in `leaky`: a kink, a NaN, a wrong index, a refusal."""
    place = Location("/home/ada/model.py", 12, "leaky", "y = jnp.where(d > 0, d**0.5, 0)")
    probes = (
        Probe("given", (np.array([1.0, 2.0, 3.0]), {"w": 0.5}), {"": np.ones(())}, {}),
        Probe("zeros", (np.zeros(3), {"w": 0.0}), {"": np.ones(())}, {}),
    )
    x, w = "args[0]", "args[1]['w']"
    good = {x: np.array([1.0, 0.0, 1.0]), w: np.array(2.0)}
    lost = {x: np.array([1.0, 0.0, 0.0]), w: np.array(2.0)}
    nan = {x: np.array([np.nan, 0.0, np.nan]), w: np.array(0.0)}
    zero = {x: np.zeros(3), w: np.array(0.0)}
    half = {x: np.full(3, 0.5), w: np.array(0.5)}
    value = {"": np.array(4.5)}
    answers = (
        SystemAnswer("jax", "forward", "given", value, good, 2.2e-16, None, 0.3),
        SystemAnswer("jax", "reverse", "given", value, lost, 0.5, None, 0.4),
        SystemAnswer("jax", "second", "given", value, good, 3e-9, None, 0.4),
        SystemAnswer("finite", "forward", "given", value, good, None, None, 0.1),
        SystemAnswer("zygote", "reverse", "given", value, good, 1e-12, None, 2.0),
        SystemAnswer("forwarddiff", "forward", "given", value, good, 0.0, None, 1.0),
        SystemAnswer(
            "forwarddiff", "second", "given", error="MethodError: no method matching f(::Dual)"
        ),
        SystemAnswer("jax", "forward", "zeros", value, nan, float("nan")),
        SystemAnswer("jax", "reverse", "zeros", value, nan, float("nan")),
        SystemAnswer("jax", "second", "zeros", value, nan, float("nan")),
        SystemAnswer("finite", "forward", "zeros", value, half, None),
        SystemAnswer("zygote", "reverse", "zeros", error="BoundsError: attempt to access [1]"),
        SystemAnswer("forwarddiff", "forward", "zeros", value, zero, 0.33),
    )
    findings = (
        Finding(
            "out-of-bounds",
            "error",
            "an index is out of bounds: reverse mode drops the derivative that forward mode gives",
            ("jax",),
            "reverse",
            "given",
            x,
            (2,),
            Location("/home/ada/model.py", 9, "leaky", "tail = x[jnp.array([0, 5])]"),
            "gather",
            {"jax forward": 1.0, "jax reverse": 0.0, "finite": 1.0},
            'Read with `pb.take(x, indices, mode="clip")`, which means the same in every mode',
        ),
        Finding(
            "non-finite",
            "error",
            "the derivative is NaN where the value is finite",
            ("jax",),
            None,
            "zeros",
            x,
            (0,),
            place,
            "pow",
            {"jax": float("nan"), "finite": 0.5},
            "Choose the branch with `pb.cond`, or wrap the function in `pb.strong_zero`",
        ),
        Finding(
            "exception",
            "error",
            "zygote fails",
            ("zygote",),
            "reverse",
            "zeros",
            numbers={"zygote": "BoundsError: attempt to access [1]"},
        ),
        Finding(
            "mode-dependent",
            "warning",
            "the value under differentiation is another, because the function asks",
            mode=None,
            numbers={"plain": 4.0, "under differentiation": 4.5},
            advice="This is what within_gradient is for",
        ),
        Finding(
            "kink",
            "note",
            "the function has a kink: the derivative is 0 from the left and 1 from the right",
            ("jax", "forwarddiff"),
            "forward",
            "zeros",
            x,
            (1,),
            Location("/home/ada/model.py", 14, "leaky", "return jnp.maximum(x, 0).sum()"),
            "max",
            {"left": 0.0, "right": 1.0, "jax": 0.5, "forwarddiff": 0.0},
            "Any derivative between the two is a valid choice",
        ),
        Finding(
            "unsupported",
            "note",
            "forwarddiff has no second order through this function",
            ("forwarddiff",),
            "second",
            "given",
            numbers={"forwarddiff": "MethodError"},
        ),
    )
    steps = np.linspace(-1.0, 1.0, 41)
    curves = (
        SlopeCurve(
            x,
            (1,),
            steps,
            np.maximum(steps, 0) * (1 + 0.4 * steps),
            0.0,
            1.0,
            {"jax": 0.5, "finite": 0.5, "forwarddiff": 0.0},
            "zeros",
        ),
        SlopeCurve(
            w,
            (),
            steps,
            np.where(steps < 0, np.nan, np.sqrt(np.abs(steps))),
            float("nan"),
            float("inf"),
            {"jax": float("inf"), "zygote": float("nan"), "forwarddiff": -3.0},
        ),
    )
    sources = {
        "jaxpr": "{ lambda ; a:f64[3] b:f64[]. let c:f64[3] = max a 0.0:f64[] in (c,) }",
        "Julia": "function leaky(x, w)\n    y = ifelse.(x .> 0, sqrt.(x), 0)\n    sum(y)\nend",
    }
    systems = (JAX, FINITE, ZYGOTE, FORWARDDIFF, YOTA)
    return Report("leaky", systems, probes, answers, findings, curves, sources)


def clean_report() -> Report:
    """Report of a function in which nothing was found."""
    probe = Probe("given", (np.array([1.0, 2.0]),), {"": np.ones(())}, {})
    value, slope = {"": np.array(5.0)}, {"args[0]": np.array([2.0, 4.0])}
    answers = tuple(
        SystemAnswer(system, mode, "given", value, slope, deviation)
        for system, mode, deviation in [
            ("jax", "forward", 1e-16),
            ("jax", "reverse", 2e-16),
            ("finite", "forward", None),
        ]
    )
    return Report("square", (JAX, FINITE), (probe,), answers, ())


def hostile_report() -> Report:
    """Report with markup of every kind in every text that a user can choose."""
    path = f"args[0]['{SCRIPT}|*[red]']"
    name = f"{SCRIPT} [bold]no[/bold] | *x* `a"
    probe = Probe(SCRIPT, ({SCRIPT: 1.0},), {}, {})
    answer = SystemAnswer("jax", "reverse", SCRIPT, {SCRIPT: np.ones(())}, {path: np.ones(())}, 0.1)
    failed = SystemAnswer("finite", "forward", SCRIPT, error=f"{SCRIPT}: [/red]")
    finding = Finding(
        "minority",
        "error",
        name,
        ("jax",),
        "reverse",
        SCRIPT,
        path,
        None,
        Location(f"/{SCRIPT}.py", 1, SCRIPT, f"x = '{SCRIPT}' | `"),
        SCRIPT,
        {SCRIPT: SCRIPT, "jax": 1.0},
        f"{SCRIPT} [bold]",
    )
    curve = SlopeCurve(path, (), np.array([-1.0, 0.0, 1.0]), np.zeros(3), 0.0, 0.0, {SCRIPT: 0.0})
    return Report(
        name,
        (JAX, FINITE, Backend(SCRIPT, "julia", "reverse", SCRIPT, reason=SCRIPT)),
        (probe,),
        (answer, failed),
        (finding,),
        (curve,),
        {SCRIPT: SCRIPT},
    )
