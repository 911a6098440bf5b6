# Lowered programs under ReverseDiff: each primitive is recorded as one call, by its rule.

using PyBridge.Lowering: Lowering

struct Records <: Lowering.Mode end
Lowering.mode(::Union{Tracked,TrackedComplex}) = Records()

Lowering.invoke_as(::Records, p::Lowering.Discrete, xs...) =
    Lowering.forward(p, map(PyBridge.primal ∘ Lowering.settled, xs)...)

function Lowering.invoke_as(::Records, p::Lowering.AbstractPrimitive, xs...)
    values = map(Lowering.settled ∘ bare, xs)
    check_once(values)
    y, pull = ChainRulesCore.rrule(p, values...)
    any(Lowering.is_inexact, y isa Tuple ? y : (y,)) || return y
    return recorded(ȳ -> cotangents(xs, values, pull(ȳ)), xs, y)
end

# The value is that of plain numbers; what is recorded is the right-hand side less its product.
function Lowering.linear_solve_as(::Records, programs, matvec, vecmat, solve, transposed, b)
    plain = map(xs -> map(PyBridge.primal, xs), (matvec, vecmat, solve, transposed))
    y = Lowering.as_tuple(Lowering.linear_solve(programs, plain..., map(PyBridge.primal, b)))
    x = y[1:length(b)]
    product = Lowering.as_tuple(programs[1](matvec..., x...))
    adjoint(x̄) = Lowering.adjoint_solved(programs, plain..., x̄)
    solution = Lowering.Solution(x, adjoint)
    found = Lowering.as_tuple(solution(map(Lowering.Lax.sub, b, product)...))
    return Lowering.only_or_all((found..., y[length(b)+1:end]...))
end
