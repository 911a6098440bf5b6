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
    y, back = ChainRulesCore.rrule(f, args...)
    return y, ȳ -> (NoTangent(), back(ȳ)...)
end
