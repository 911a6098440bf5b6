# Lowered programs under Tracker: each primitive is tracked as one call, by its rule.

using PyBridge.Lowering: Lowering

struct Tracks <: Lowering.Mode end
Lowering.mode(::Tracked) = Tracks()

"A call that has been made: its value and the way back."
struct Done{Y,B}
    y::Y
    back::B
end
Tracker._forward(done::Done, args...) = done.y, done.back

Lowering.invoke_as(::Tracks, p::Lowering.Discrete, xs...) =
    Lowering.forward(p, map(PyBridge.primal, xs)...)

function Lowering.invoke_as(::Tracks, p::Lowering.AbstractPrimitive, xs...)
    args = map(tracked, xs)
    data = map(number_or_array ∘ Tracker.data, args)
    y, pull = ChainRulesCore.rrule(p, data...)
    y isa Tuple || Lowering.is_inexact(y) || return y
    function back(ȳ)
        given = Tracker.data(ȳ)
        seed = y isa Tuple ? map(seed_of, y, Tuple(given)) : number_or_array(given)
        _, x̄s... = pull(seed)
        cotangents = map(args, data, x̄s) do arg, x, x̄
            Tracker.istracked(arg) ? trackable(PyBridge.dense(x, x̄)) : nothing
        end
        return Tracker.nobacksies(:lowered, cotangents)
    end
    kept = y isa Tuple ? map(trackable, y) : trackable(y)
    out = Tracker.track(Done(kept, back), args...)
    y isa Tuple || return out
    return ntuple(i -> Lowering.is_inexact(y[i]) ? pick(out, i) : y[i], length(y))
end
seed_of(y, ȳ) = Lowering.is_inexact(y) ? number_or_array(Tracker.data(ȳ)) : NoTangent()

# Tracker tracks real numbers and arrays: a complex number is tracked in an array without axes.
trackable(x) = x
trackable(x::Complex) = fill(x)
number_or_array(x) = x
number_or_array(x::AbstractArray{<:Complex,0}) = x[]

Lowering.linear_solve_as(::Tracks, args...) =
    Lowering.solve_by_residual(Lowering.linear_solve, args...)
