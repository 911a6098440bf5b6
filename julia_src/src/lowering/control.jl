# Control flow. The bodies are functions of the lowered program; the AD system that runs
# goes through them itself, by a rule that calls it back, so a body's `within_gradient` is
# true there.

"""
    scan(body, Val(length), Val(backwards), consts, carry, xs)

Run `body(consts..., carry..., slices...)` for each slice along the last axis of `xs`; it
returns the next carry and a slice of each result. Returns both, as one tuple. There is at
least one slice.
"""
function scan(
    body, ::Val{len}, ::Val{backwards}, consts::Tuple, carry::Tuple, xs::Tuple
) where {len,backwards}
    results = Vector{Any}(undef, len)
    for i in (backwards ? reverse(1:len) : 1:len)
        out = body(consts..., carry..., map(x -> Lax.row(x, i), xs)...)
        carry, results[i] = split_after(out, Val(length(carry)))
    end
    return (carry..., map((rows...) -> Lax.stack(rows...), results...)...)
end
register(:scan, scan)

split_after(xs::Tuple, ::Val{n}) where {n} =
    ntuple(i -> xs[i], Val(n)), ntuple(i -> xs[n+i], length(xs) - n)

function ChainRulesCore.rrule(
    config::RuleConfig{>:HasReverseMode}, ::typeof(scan), body, ::Val{len},
    ::Val{backwards}, consts::Tuple, carry::Tuple, xs::Tuple
) where {len,backwards}
    order = collect(backwards ? reverse(1:len) : 1:len)
    results, backs = Vector{Any}(undef, len), Vector{Any}(undef, len)
    start, n = carry, Val(length(carry))
    for i in order
        out, backs[i] = inner_rrule(config, body, consts..., carry...,
            map(x -> forward(Primitive{:row}(), settled(x), i), xs)...)
        carry, results[i] = split_after(out, n)
    end
    ys = map((rows...) -> stacked(rows), results...)
    function scan_pullback(ȳ)
        ȳs = parts_of(unthunk(ȳ), length(carry) + length(ys))
        carried, given = split_after(ȳs, n)
        c̄s, x̄s = map(_ -> ZeroTangent(), consts), map(x -> slices(x, len), xs)
        for i in reverse(order)
            ȳ_rows =
                map(g -> g isa AbstractZero ? g : as_value(selectdim_copy(g, i)), given)
            _, parts... = backs[i]((carried..., ȳ_rows...))
            dense_parts = map(tidy, Tuple(parts))
            now, rest = split_after(dense_parts, Val(length(consts)))
            c̄s = map(+, c̄s, now)
            carried, rows = split_after(rest, n)
            foreach((x̄, row) -> x̄[i] = row, x̄s, rows)
        end
        return (NoTangent(), NoTangent(), NoTangent(), NoTangent(),
            as_tangent(consts, c̄s), as_tangent(start, carried),
            as_tangent(xs, map(joined_slices, xs, x̄s)))
    end
    return (carry..., ys...), scan_pullback
end

slices(x, len) = Vector{Any}(undef, len)
joined_slices(x, x̄s) = all(x̄ -> x̄ isa AbstractZero, x̄s) ? ZeroTangent() :
    stacked(map(x̄ -> x̄ isa AbstractZero ? zero(as_value(selectdim_copy(x, 1))) : x̄, x̄s))
tidy(x̄) = unthunk(x̄)
tidy(::Nothing) = ZeroTangent()
as_tangent(xs::Tuple, x̄s) = Tangent{typeof(xs)}(x̄s...)
parts_of(ȳ::Union{AbstractZero,Nothing}, n) = ntuple(_ -> ZeroTangent(), n)
parts_of(ȳ, n) = ntuple(i -> tidy(ȳ[i]), n)

"""
    while_loop(test, body, test_consts, body_consts, carry)

Repeat `carry = body(body_consts..., carry...)` while `test(test_consts..., carry...)`.
"""
function while_loop(test, body, test_consts::Tuple, body_consts::Tuple, carry::Tuple)
    while test(test_consts..., carry...)
        carry = body(body_consts..., carry...)
    end
    return carry
end
register(:while_loop, while_loop)

function ChainRulesCore.rrule(
    config::RuleConfig{>:HasReverseMode}, ::typeof(while_loop), test, body,
    test_consts::Tuple, body_consts::Tuple, carry::Tuple
)
    start, backs = carry, Any[]
    while test(test_consts..., carry...)
        carry, back = inner_rrule(config, body, body_consts..., carry...)
        push!(backs, back)
    end
    function while_pullback(ȳ)
        carried = parts_of(unthunk(ȳ), length(start))
        c̄s = map(_ -> ZeroTangent(), body_consts)
        for back in Iterators.reverse(backs)
            _, parts... = back(carried)
            now, carried = split_after(map(tidy, Tuple(parts)), Val(length(body_consts)))
            c̄s = map(+, c̄s, now)
        end
        return (NoTangent(), NoTangent(), NoTangent(), NoTangent(),
            as_tangent(body_consts, c̄s), as_tangent(start, carried))
    end
    return carry, while_pullback
end

# Branches: PyBridge's own, under which exactly the branch taken is differentiated. A
# lowered index counts from 0.
choose(index::Bool, no, yes, xs...) = PyBridge.cond(index, yes, no, xs...)
switch(index, branches, xs...) =
    PyBridge.switch(Base.clamp(index, 0, length(branches) - 1) + 1, branches, xs...)
register(:cond, choose)
register(:switch, switch)
