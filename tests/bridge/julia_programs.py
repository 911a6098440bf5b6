"""Julia programs of the kind in NNlib and Flux: right ones, and faulty ones with their findings.

A faulty one has the kinds one of which is to be found, and words of the finding's advice or the
number of its line.
"""

import numpy as np

RNG = np.random.default_rng(3)
X3, X6 = RNG.normal(size=3), RNG.normal(size=6)
A = RNG.normal(size=(3, 4))
SPD = A @ A.T + np.eye(3)
NO = "ChainRulesCore.NoTangent()"


def right():
    """Yield a name, the source and the arguments."""
    yield "gelu", "x -> sum(NNlib.gelu.(x))", X6
    yield "swish and mish", "x -> sum(NNlib.swish.(x) .+ NNlib.mish.(x))", X6
    yield "softplus", "x -> sum(NNlib.softplus.(x))", np.array([-100.0, 0.3, 100.0])
    yield "logσ", "x -> sum(NNlib.logσ.(x))", np.array([-100.0, 0.3, 100.0])
    yield "softmax", "x -> NNlib.softmax(x)[1]", X6
    yield "logsoftmax", "x -> -NNlib.logsoftmax(x)[2]", np.array([30.0, 0.0, 2.0])
    yield "logsumexp", "x -> NNlib.logsumexp(x)", np.array([1000.0, 990.0, 3.0])
    yield "two layers", "(w, v, x) -> sum(abs2, v' * tanh.(w * x) .- 1)", A, X3, X6[:4]
    yield (
        "attention",
        "(q, k, v) -> sum(v * NNlib.softmax(k' * q ./ sqrt(2)))",
        *RNG.normal(size=(3, 2, 3)),
    )
    yield (
        "layer norm",
        "x -> (c = x .- sum(x) / 6; sum(c ./ sqrt(sum(abs2, c) / 6 + 1e-5) .* (1:6)))",
        X6,
    )
    yield "cross entropy", "x -> -sum([0.2, 0.3, 0.5] .* NNlib.logsoftmax(x))", X3
    yield "norm", "import LinearAlgebra\nx -> LinearAlgebra.norm(x)", X3
    yield "quadratic form", "(a, x) -> x' * a * x", SPD, X3
    yield "solve", "(a, b) -> sum(a \\ b)", SPD, X3
    yield "a helper with a loop", POLYNOMIAL, 0.7
    yield (
        "recurrent",
        "(w, x) -> sum(foldl((h, i) -> tanh.(w * h .+ x), 1:3; init=zero(x)))",
        SPD,
        X3,
    )
    yield "guarded root", "x -> PyBridge.cond(PyBridge.primal(x) > 0, sqrt, zero, x)", 0.0
    yield "a rule that is right", rule("cube(x) = x^3", "cube", "x", "3x^2 * d"), 1.2
    yield "asks, by a helper", "h(x) = within_gradient(x)\nx -> h(x) ? 2x : x", 2.0
    yield "a word in a comment", "x -> x^2  # Dropout would ask within_gradient", 2.0
    yield "take", "x -> sum(PyBridge.take(x, [1, 3]) .^ 2)", X3


POLYNOMIAL = """
function f(x)
    y = one(x)
    for k in 1:4
        y = y * x + k
    end
    return y
end"""


def rule(definition, name, arguments, pulled):
    """Write a function with a rule, on the third line; the pullback multiplies with `d`."""
    return (
        f"{definition}\n\nChainRulesCore.rrule(::typeof({name}), {arguments}) = "
        f"{name}({arguments}), d -> ({NO}, {pulled})\n{arguments} -> sum({name}({arguments}))"
    )


def wrong():
    """Yield a name, kinds, a word or line, the source and the arguments."""
    ruled = ("minority", "finite", "reverse-forward")
    for name, definition, pulled, x in (
        ("swish without its second term", "f(x) = x .* NNlib.σ.(x)", "d .* NNlib.σ.(x)", X3),
        ("square, factor", "f(x) = x^2", "3x * d", 0.7),
        ("softplus, slope of tanh", "f(x) = log1p(exp(x))", "tanh(x) * d", 0.3),
        (
            "softmax without the mean",
            "f(x) = NNlib.softmax(x) .* (1:3)",
            "d .* NNlib.softmax(x)",
            X3,
        ),
        ("mean, not divided", "f(x) = sum(x) / length(x)", "fill(d, size(x))", X3),
        ("cumsum, not turned", "f(x) = cumsum(x)", "cumsum(ChainRulesCore.unthunk(d))", X3),
        ("product, sign", "f(x) = x .* sin.(x)", "d .* (sin.(x) .- x .* cos.(x))", X3),
    ):
        yield name, ruled, "The rrule of f is wrong", rule(definition, "f", "x", pulled), x
    yield (
        "second order cut off",
        ("second-order",),
        3,
        rule("f(x) = x^3", "f", "x", "3 * PyBridge.primal(x)^2 * d"),
        1.2,
    )
    yield (
        "rule with another value",
        ("value",),
        "The rrule of f computes another value",
        "f(x) = round(x; digits=2)\n\nChainRulesCore.rrule(::typeof(f), x) = "
        f"x, d -> ({NO}, zero(d))\nx -> f(x)",
        0.777,
    )
    # ChainRules' rule of `foldl` has no derivative by a keyword: Zygote and Yota lose it silently.
    yield (
        "a fold's start",
        ("minority",),
        None,
        "x -> foldl((h, i) -> tanh(h) * x, 1:3; init=x)",
        0.7,
    )
    written = ("exception", "minority", "finite")
    for name, line, body in (
        ("writes in a loop", 4, "y = similar(x)\nfor i in eachindex(x)\ny[i] = x[i]^2\nend"),
        ("writes by broadcast", 3, "y = zero(x)\ny .= 2 .* x"),
        ("writes into plain numbers", 3, "y = zeros(3)\ny .= 2 .* x"),
        ("pushes", 4, "y = eltype(x)[]\nfor v in x\npush!(y, v^2)\nend"),
        ("sorts in place", 3, "y = copy(x)\nsort!(y; by=-)\ny = y .* (1:3)"),
    ):
        yield name, written, line, f"function f(x)\n{body}\nreturn sum(y)\nend", X3
    norm = "import LinearAlgebra\nx -> LinearAlgebra.norm(x)"
    for name, kinds, line, source, x in (
        ("norm at 0", ("non-finite", "value"), 2, norm, np.zeros(2)),
        ("root at 0", ("non-finite",), 1, "x -> sqrt(sum(abs2, x))", np.zeros(2)),
        ("entropy at 0", ("non-finite",), 1, "p -> -sum(p .* log.(p))", np.array([0.0, 0.4, 0.6])),
        ("masked logarithm", ("non-finite",), 1, "x -> sum(ifelse.(x .> 0, log.(x), 0 .* x))",
         np.array([0.0, 1.0])),
        ("removable point", ("special-case",), 2,
         "function f(x)\nx == 0 ? 0.0 : x + x^2\nend", 0.0),
        ("exact guard", ("value",), 1, "x -> x == 0 ? 1.0 : sin(x) / x", 0.0),
        ("rounded on the way", ("finite",), 1, "x -> x + round(x * 1e8) / 1e8", 1.2345),
        ("cast to integers", ("zero",), 1, "x -> Float64(trunc(Int, 4x))", 1.3),
        ("floor alone", ("zero",), 1, "x -> floor(x)", 1.3),
        ("single precision", ("precision",), 1, "x -> sum(sin.(Float32.(x)))", X3),
        ("single precision, a number", ("precision",), 2,
         "function f(x)\nFloat64(sin(Float32(x)))\nend", 0.3),
    ):  # fmt: skip
        yield name, kinds, line, source, x
    yield "another value each time", ("random",), None, "x -> x * rand()", 2.0
    yield (
        "asks, and Yota does not see",
        ("minority",),
        None,
        "h(x) = within_gradient(x) ? 2x : x\nx -> h(x)",
        2.0,
    )
    yield "stops at zero", ("special-case",), 3, EARLY, np.array([0.0, 2.0, 3.0])


EARLY = """function f(x)
    p = one(eltype(x))
    for v in x; p *= v; p == 0 && break; end
    return p
end"""

# Of the right programs, what a system is known to get wrong, with the reason; an error there is not
# the checker's.
KNOWN = {
    "asks, by a helper": (
        "yota",
        "a plain `if` on the question: Yota traces the answer of a value",
    ),
    "quadratic form": (
        "reversediff",
        "ReverseDiff's way back of a row times a tracked matrix raises a DimensionMismatch",
    ),
}
