# Functions that bring their own rule: JAX's custom_jvp and custom_vjp, and primitives whose
# derivative JAX wrote as a program.

"""
    Ruled(f, value, push, back)

The function `f` with a rule. `value(xs...)` returns the value within a derivative and what
`back` needs; `back(kept, ȳs)` returns a cotangent for each inexact argument, and
`push(xs, ẋs)` the value and its tangent. All work on tuples. A rule may miss `push` or
`back`: then it is `nothing`. `back` is JAX's program: it multiplies complex cotangents by
the transpose, where ChainRules' rules multiply by the adjoint.
"""
struct Ruled{F,V,P,B} <: AbstractPrimitive
    f::F
    value::V
    push::P
    back::B
end
register(:ruled, Ruled)

forward(r::Ruled, xs...) = r.f(xs...)

function ChainRulesCore.rrule(r::Ruled, xs::Vararg{Any,N}) where {N}
    args = map(settled, xs)
    r.back === nothing &&
        throw(ArgumentError("this function has a rule for forward mode only"))
    y, kept = r.value(args...)
    return y, ȳ -> (NoTangent(), ruled_cotangents(r, kept, y, unthunk(ȳ), args)...)
end

ruled_cotangents(r, kept, y, ȳ::Union{AbstractZero,Nothing}, xs) = map(_ -> NoTangent(), xs)
function ruled_cotangents(r, kept, y, ȳ, xs)
    given = y isa Tuple ? map(filled, y, parts_of(ȳ, length(y))) : (filled(y, ȳ),)
    inexact = Tuple(filter(is_inexact_pair, collect(zip(y isa Tuple ? y : (y,), given))))
    found = Iterators.Stateful(r.back(kept, map(conj ∘ last, inexact)))
    return map(x -> is_inexact(x) ? conj(popfirst!(found)) : NoTangent(), xs)
end
is_inexact_pair((y, ȳ)) = is_inexact(y)
filled(y, ȳ) = settled(ȳ)
filled(y, ::Union{AbstractZero,Nothing}) = is_inexact(y) ? zero(y) : NoTangent()

"""
    ClosedOver(f)

A function with a rule of JAX's which closes over a value that carries a derivative. The
rule has none by it, so there is the function's value only.
"""
struct ClosedOver{F} <: AbstractPrimitive
    f::F
end
register(:closed_over, ClosedOver)

forward(c::ClosedOver, xs...) = c.f(xs...)
ChainRulesCore.rrule(::ClosedOver, xs::Vararg{Any,N}) where {N} = no_rule_by_closed_over()
no_rule_by_closed_over() = throw(ArgumentError(
    "expected a derivative by the arguments of a function with custom_jvp or custom_vjp, " *
    "got one by a value that it closes over, which its rule does not know. Hand the " *
    "value over as an argument, and let the rule differentiate by it, or lower with " *
    "custom_rules=\"inline\"."))
