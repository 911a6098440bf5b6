"""
    cond(pred, f, g, xs...)

Call `f(xs...)` where `pred` is true and `g(xs...)` where it is false. Exactly the branch
that is taken contributes to the value and to the derivative, under every AD system, and the
other one is never called.

Under ForwardDiff, compare [`primal`](@ref)`(x)` and not `x` where the value decides.

With an array predicate the branches are functions of numbers, applied element by element:
`f` gets the elements of `xs` where `pred` is true. Operands that are arrays have
`size(pred)`, numbers are shared.

Unlike `pred ? f(x) : g(x)`, this takes the right branch under Yota, too, which records
the branch before it knows that it differentiates: `cond` has an `rrule` that calls back into
the AD system, and rules see the truth.

The twin in Python is `pybridge.cond`.

# Arguments
- `pred`: `Bool` or an array of `Bool`.
- `f`, `g`: the branches; closures may capture differentiated values.
- `xs`: the operands: numbers, arrays, tuples, named tuples.

# Returns
What the branch returns; for an array predicate an array of `size(pred)`.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.cond(true, x -> x^2, x -> x, 3.0)
9.0

julia> PyBridge.cond([true, false], sqrt, zero, [4.0, -1.0])
2-element Vector{Float64}:
 2.0
 0.0
```
"""
cond(pred::Bool, f, g, xs...) = pred ? f(xs...) : g(xs...)

function cond(pred::AbstractArray{Bool}, f, g, xs...)
    check_elementwise(pred, xs)
    return map(pred, (elements(x, pred) for x in xs)...) do p, elems...
        p ? f(elems...) : g(elems...)
    end
end

function cond(pred, f, g, xs...)
    throw(ArgumentError("PyBridge.cond: expected a Bool or an array of Bool as the " *
                        "predicate, got a $(typeof(pred)). Compare first, as in `x > 0`."))
end

elements(x::AbstractArray, pred) = x
elements(x, pred) = fill(x, size(pred))

function check_elementwise(pred, xs)
    for (i, x) in pairs(xs)
        x isa AbstractArray && size(x) != size(pred) && throw(DimensionMismatch(
            "PyBridge.cond: expected operand $i to have the predicate's size $(size(pred)), " *
            "got $(size(x)). Broadcast it first, or capture it in the branches."))
    end
end

"""
    inner_rrule(config, f, xs...) -> (y, pullback)

Run a function that a rule calls, such as a branch, under the AD system that `config` stands for.
Back ends whose `rrule_via_ad` is not fit for that replace it.
"""
inner_rrule(config::RuleConfig, f, xs...) = rrule_via_ad(config, f, xs...)

function ChainRulesCore.rrule(
    config::RuleConfig{>:HasReverseMode}, ::typeof(cond), pred::Bool, f, g, xs...
)
    y, back = inner_rrule(config, pred ? f : g, xs...)
    function cond_pullback(ȳ)
        branch, operands... = back(ȳ)
        return (NoTangent(), NoTangent(), pred ? branch : NoTangent(),
            pred ? NoTangent() : branch, operands...)
    end
    return y, cond_pullback
end

# Elementwise: gather the elements of a branch, map it over them, scatter the results. The
# branch never meets an element that is not its own, and each is differentiated once.
function ChainRulesCore.rrule(
    config::RuleConfig{>:HasReverseMode}, ::typeof(cond), pred::AbstractArray{Bool}, f, g,
    xs...
)
    check_elementwise(pred, xs)
    taken, others = findall(pred), findall(!, pred)
    yt, back_f = elementwise_rrule(config, f, taken, xs)
    yf, back_g = elementwise_rrule(config, g, others, xs)
    y = similar(pred, promote_type(eltype(yt), eltype(yf)))
    y[taken] = yt
    y[others] = yf
    function cond_pullback(ȳ)
        ȳ = unthunk(ȳ)
        f̄, x̄ts = back_f(ȳ isa AbstractZero ? ȳ : ȳ[taken])
        ḡ, x̄fs = back_g(ȳ isa AbstractZero ? ȳ : ȳ[others])
        x̄s = map(xs, x̄ts, x̄fs) do x, x̄t, x̄f
            x isa AbstractArray ? scatter(x, taken, x̄t, others, x̄f) : total(x̄t) + total(x̄f)
        end
        return (NoTangent(), NoTangent(), f̄, ḡ, x̄s...)
    end
    return y, cond_pullback
end

function elementwise_rrule(config, f, places, xs)
    pairs = map(places) do i
        inner_rrule(config, f, map(x -> x isa AbstractArray ? x[i] : x, xs)...)
    end
    # An empty `map` has no element type to offer; Union{} promotes to the other branch's.
    ys = isempty(pairs) ? Union{}[] : map(first, pairs)
    function back(ȳs)
        cotangents = map(eachindex(pairs)) do k
            last(pairs[k])(ȳs isa AbstractZero ? ȳs : ȳs[k])
        end
        f̄ = mapreduce(c -> unthunk(first(c)), +, cotangents; init=ZeroTangent())
        x̄s = ntuple(j -> map(c -> unthunk(c[j+1]), cotangents), length(xs))
        return f̄, x̄s
    end
    return ys, back
end

total(x̄s) = reduce(+, x̄s; init=ZeroTangent())

function scatter(x, taken, x̄t, others, x̄f)
    x̄ = zeros(float(eltype(x)), size(x))
    for (places, values) in ((taken, x̄t), (others, x̄f)), (i, v) in zip(places, values)
        v isa AbstractZero || (x̄[i] = v)
    end
    return x̄
end
