# The rule of a JAX function, which Zygote and Yota read, and the rules of the rule: Zygote
# over Zygote differentiates the call of `rrule` and that of the pullback.

"The pullback of a JAX function at `args`, where its value is `y`."
struct JaxPullback{A,Y,P}
    f::JaxFunction
    args::A
    y::Y
    pull::P
end

function (back::JaxPullback)(ȳ)
    ȳ = unthunk(ȳ)
    ȳ isa AbstractZero && return (NoTangent(), map(_ -> NoTangent(), back.args)...)
    x̄s = back.pull(ȳ)
    return (NoTangent(), map(x -> regrow!(x̄s, x), back.args)...)
end

function ChainRulesCore.rrule(f::JaxFunction, args...)
    trees = map(plain, args)
    y, pull = jax_vjp(carrier(trees), f, trees)
    return y, JaxPullback(f, args, y, pull)
end

function ChainRulesCore.rrule(::typeof(ChainRulesCore.rrule), f::JaxFunction, args...)
    y, back = ChainRulesCore.rrule(f, args...)
    function rule_pullback(cotangents)
        ȳ, of_back = map(unthunk, Tuple(cotangents))
        of_args = of_back isa AbstractZero ? map(_ -> NoTangent(), args) : of_back.args
        sent = sendable(args)
        sums = map(+, dense_leaves(sent, Base.tail(back(ȳ))), dense_leaves(sent, of_args))
        x̄s = collect(Any, sums)
        return (NoTangent(), NoTangent(), map(x -> regrow!(x̄s, x), args)...)
    end
    return (y, back), rule_pullback
end

function ChainRulesCore.rrule(back::JaxPullback, ȳ)
    function pullback_pullback(cotangents)
        _, x̿s... = map(plain_tree, Tuple(unthunk(cotangents)))
        all(x̿ -> x̿ isa AbstractZero, x̿s) && return NoTangent(), NoTangent()
        of_args, of_ȳ = pull_twice(back.f, back.args, back.y, unthunk(ȳ), x̿s)
        seed = regrow!(of_ȳ, back.y)
        return (Tangent{typeof(back)}(; args=regrow!(of_args, back.args)),
            ȳ isa Tangent ? Tangent{typeof(ȳ)}(; backing=seed) : seed)
    end
    return back(ȳ), pullback_pullback
end

# The cotangent of a Tangent, as Zygote builds it, has the Tangent's own field.
plain_tree(x̿) = unthunk(x̿)
function plain_tree(x̿::Tangent)
    fields = ChainRulesCore.backing(x̿)
    keys(fields) === (:backing,) && return plain_tree(fields.backing)
    return map(plain_tree, fields)
end

"""
    jax_jvp(f, args, ẋs) -> (y, ẏ)

Push tangents through a JAX function. A number and its tangent lie side by side, as in a dual number
with one partial.
"""
function jax_jvp(f::JaxFunction, args, ẋs)
    trees = map(plain, args)
    xs = sendable(trees)
    sent = maptree((x, ẋ) -> is_inexact(x) ? side_by_side(x, ẋ) : x, xs, dense(trees, ẋs))
    mask = join(Int(is_inexact(x)) for x in leaves(xs))
    pairs, _ = ask(f.reference, request("call", "value", sent; mask, counts="1"), leaves(sent))
    y = maptree(pair -> has_tangent(pair) ? one_side(pair, 1) : pair, pairs)
    ẏs = Any[one_side(pair, 2) for pair in leaves(pairs) if has_tangent(pair)]
    return y, regrow!(ẏs, y)
end

side_by_side(x::Number, ẋ) = [x, oftype(x, ẋ)]
side_by_side(x::Array, ẋ) = stack((x, oftype(x, ẋ)); dims=1)
has_tangent(pair) = pair isa Array && is_inexact(pair)
one_side(pair::Vector, i) = pair[i]
one_side(pair::Array, i) = copy(selectdim(pair, 1, i))

"""
    pull_twice(f, args, y, ȳ, x̿s) -> (of_args, of_ȳ)

Pull `x̿s` back through the pullback of `f`, as a function of the arguments and of `ȳ`:
lists for those leaves of both that are no integers.
"""
function pull_twice(f, args, y, ȳ, x̿s)
    carrier((args, x̿s)) isa Plain || throw(ArgumentError(
        "a JAX function in Julia: derivatives beyond the second are ForwardDiff's alone"))
    sent, ȳs = sendable(args), dense_leaves(y, ȳ)
    wanted = request("pullback", "transpose", sent, ȳs)
    _, residuals = ask(f.reference, wanted, leaves((sent, ȳs)))
    seeds = dense_leaves(sent, x̿s)
    both = collect(Any, first(ask(residuals, spec_of(seeds), leaves(seeds))))
    return both[1:end-length(ȳs)], both[end-length(ȳs)+1:end]
end

"Take the cotangent of `x` off a list of its leaves' cotangents."
function regrow!(x̄s, x::Branch)
    children = map(child -> regrow!(x̄s, child), x)
    all(child -> child isa NoTangent, children) && return NoTangent()
    return x isa Tuple ? Tangent{typeof(x)}(children...) : Tangent{typeof(x)}(; children...)
end
regrow!(x̄s, ::Union{Nothing,AbstractZero}) = NoTangent()
function regrow!(x̄s, x)
    fields = regrow!(x̄s, fields_of(x))
    return fields isa NoTangent ? fields : Tangent{typeof(x)}(; ChainRulesCore.backing(fields)...)
end
regrow!(x̄s, x::AbstractDict) = throw(ArgumentError(
    "a JAX function in Julia: expected arguments that have a tangent, got a $(typeof(x)). " *
    "Make it a NamedTuple: `(; d...)` for a Dict with Symbols for keys."))
regrow!(x̄s, x::Number) = is_inexact(x) ? ProjectTo(x)(popfirst!(x̄s)) : NoTangent()
function regrow!(x̄s, x::AbstractArray)
    x isa AbstractVector && is_container(x) && return map(child -> regrow!(x̄s, child), x)
    is_inexact(x) || return NoTangent()
    x̄ = popfirst!(x̄s)
    return ProjectTo(x)(x̄ isa Number ? fill(x̄) : reshape(x̄, axes(x)))
end
