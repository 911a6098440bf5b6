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

Lowering.linear_solve_as(::Records, args...) =
    Lowering.solve_by_residual(Lowering.linear_solve, args...)
