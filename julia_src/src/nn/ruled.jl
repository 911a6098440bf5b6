"""
    ruled(f, args...)

Call `f(args...)`, and differentiate it by its `rrule` under every reverse-mode system:
Zygote and Yota read rules themselves, Tracker reads them here. Forward mode runs `f` on
dual numbers.

Where `f` returns a tuple, its first element carries the derivative and the others are plain
values.
"""
ruled(f, args...) = ruled(carrier(args), f, args...)
ruled(::AbstractCarrier, f, args...) = f(args...)

# Without it Zygote and Yota would look into the question what carries the derivative.
function ChainRulesCore.rrule(::typeof(ruled), f, args...)
    y, back = value_and_pullback(f, args...)
    return y, ȳ -> (NoTangent(), NoTangent(), pulled(back, f, args, ȳ)...)
end

# --- reverse mode over reverse mode ------------------------------------------------------
#
# A rule may write into arrays, which no reverse mode can look into. So a rule's two steps
# have rules themselves: the value's is the same once more, the pullback's is below.

value_and_pullback(f, args...) = ChainRulesCore.rrule(f, args...)
function ChainRulesCore.rrule(::typeof(value_and_pullback), f, args...)
    y, back = ChainRulesCore.rrule(f, args...)
    return (y, back), ȳs -> (NoTangent(), NoTangent(), pulled(back, f, args, first(ȳs))...)
end

"""
    pulled(back, f, args, ȳ)

The cotangents of `args`, of which those of an `f` with a pullback `back` are `back(ȳ)`.
"""
function pulled(back, f, args, ȳ)
    ȳ isa NoGradient && return map(_ -> NoTangent(), args)
    return map(unthunk, Base.tail(back(ȳ)))
end

function ChainRulesCore.rrule(::typeof(pulled), back, f, args, ȳ)
    function pulled_pullback(x̿s)
        x̿s isa NoGradient && return ntuple(_ -> NoTangent(), 5)
        x̄s, y̿ = pulled_again(f, args, ȳ, map(unthunk, Tuple(x̿s)))
        return NoTangent(), NoTangent(), NoTangent(), x̄s, y̿
    end
    return pulled(back, f, args, ȳ), pulled_pullback
end

"""
    pulled_again(f, args, ȳ, directions)

The cotangents of `args` and `ȳ` where `directions` are those of the cotangents of `args`.

The pairing of directions and cotangents is the derivative of ⟨ȳ, f(args)⟩ along the
directions. So its derivative by `ȳ` is that of `f` along them and, since second derivatives
do not depend on the order, its derivatives by `args` are those of their cotangents along them.
"""
function pulled_again(f, args, ȳ, directions)
    wrt = Tuple(filter(i -> !(directions[i] isa NoGradient), collect(eachindex(args))))
    isempty(wrt) && return NoTangent(), NoTangent()
    moved = map(i -> args[i], wrt)
    along = Direction{ntuple(identity, length(wrt))}(map(i -> directions[i], wrt))
    ẏ, x̄s = directional(moved, along) do moved
        xs = replace_leaves(args, Val(wrt), moved)
        y, back = ChainRulesCore.rrule(f, xs...)
        return differentiated(y), map(plain_cotangent, pulled(back, f, xs, ȳ))
    end
    x̿s = map(x̄ -> x̄ === nothing ? NoTangent() : x̄, x̄s)
    return Tangent{typeof(args)}(x̿s...), of_differentiated(ȳ, ẏ)
end

differentiated(y) = y
differentiated(y::Tuple) = first(y)

# Of a tuple the cotangent is a struct, and the cotangent of that has its field.
of_differentiated(ȳ, ẏ) = ẏ
function of_differentiated(ȳ::Tangent, ẏ)
    parts = ChainRulesCore.backing(ȳ)
    backing = Tangent{typeof(parts)}(ẏ, map(_ -> NoTangent(), Base.tail(parts))...)
    return Tangent{typeof(ȳ)}(; backing)
end

plain_cotangent(x̄) = x̄ isa NoGradient ? nothing : x̄

function ChainRulesCore.rrule(::typeof(pulled_again), f, args...)
    throw(ArgumentError(
        "PyBridge: expected at most two reverse modes, one over the other, around $f. " *
        "Got three: take the outer derivatives with ForwardDiff."))
end
