# Windows that move over an array: pooling. All widths are Julia's axes, in a named tuple:
# `window`, `stride`, `low` and `high` padding, `base` and `dilation` (the dilations of the
# array and of the window).
#
# The work is done in runs: for one place in the window, a row of results along the first
# axis and the elements that they meet there. A run is a loop without branches, and it does
# not matter whether the window lies in the first axes (NCHW in JAX) or the channels do
# (NHWC). A result meets the elements of its window in the order of memory.

window_count(n, w, s, l, h, b, d) =
    Base.max(0, fld((n == 0 ? 0 : (n - 1) * b + 1) + l + h - ((w - 1) * d + 1), s) + 1)

output_size(dims, g) =
    map(window_count, dims, g.window, g.stride, g.low, g.high, g.base, g.dilation)

"""
    each_run(f, dims, Val(g), Val(whole))

Call `f(y, x, count, Val(places))` for each run: result number `y` meets element number `x`
of an array of the size `dims`, and so on in the steps `run_steps(Val(g))` of both. With
`whole`, results that have their whole window inside the first axis meet all `places` of it,
which are `apart(Val(g))` from each other; else there is a run for each place.
"""
@inline function each_run(
    f::F, dims::NTuple{N,Int}, ::Val{g}, whole=Val(false)
) where {F,N,g}
    N == 0 && return f(1, 1, 1, Val(1))
    short, merged, sizes = merged_axes(Val(g), dims)
    counts = output_size(sizes, merged)
    return runs_of_axis(f, Val(length(sizes)), sizes, counts, short, whole, 0, 0)
end

# Axes that the window leaves alone are one axis, where they are neighbours: fewer and
# longer runs.
@generated function merged_axes(::Val{g}, dims) where {g}
    n = length(g.window)
    idle(k) = (g.window[k], g.stride[k], g.low[k], g.high[k], g.base[k]) == (1, 1, 0, 0, 1)
    groups = Vector{Int}[]
    for k in 1:n
        k > 1 && idle(k) && idle(k - 1) ? push!(groups[end], k) : push!(groups, [k])
    end
    merged = map(values -> Tuple(values[first(group)] for group in groups), g)
    sizes = [:(*($([:(dims[$k]) for k in group]...))) for group in groups]
    return :(($(Val(merged)), $merged, ($(sizes...),)))
end

"The steps of results and elements in a run."
@inline function run_steps(::Val{g}) where {g}
    isempty(g.base) && return 1, 1
    g.base[1] == 1 && return 1, g.stride[1]
    common = gcd(g.stride[1], g.base[1])
    return Base.div(g.base[1], common), Base.div(g.stride[1], common)
end

# Which element of an axis a result meets, both from 0; -1 where it meets none.
@inline function element_of(result, place, n, ::Val{g}, ::Val{d}) where {g,d}
    at = result * g.stride[d] + place * g.dilation[d] - g.low[d]
    (at < 0) | (at > (n - 1) * g.base[d]) && return -1
    g.base[d] == 1 && return at
    q, r = divrem(at, g.base[d])
    return r == 0 ? q : -1
end

@inline function runs_of_axis(
    f::F, ::Val{d}, sizes, counts, g, whole, y_above, x_above
) where {F,d}
    for result in 0:counts[d]-1, place in 0:window_of(g, Val(d))-1
        element = element_of(result, place, sizes[d], g, Val(d))
        element < 0 && continue
        runs_of_axis(
            f, Val(d - 1), sizes, counts, g, whole,
            (y_above + result) * counts[d-1], (x_above + element) * sizes[d-1],
        )
    end
end
@inline function runs_of_axis(
    f::F, ::Val{1}, sizes, counts, g, whole, y_above, x_above
) where {F}
    n, count = sizes[1], counts[1]
    inside = whole_windows(n, count, g, whole)
    runs_of_row(f, n, 0:Base.min(first(inside), count)-1, g, y_above, x_above)
    if !isempty(inside)
        element = element_of(first(inside), 0, n, g, Val(1))
        f(y_above + first(inside) + 1, x_above + element + 1, length(inside),
            Val(window_of(g, Val(1))))
        runs_of_row(f, n, last(inside)+1:count-1, g, y_above, x_above)
    end
end
window_of(::Val{g}, ::Val{d}) where {g,d} = g.window[d]

# The results in a row whose windows are inside. Long windows are not worth unrolling.
whole_windows(n, count, ::Val, ::Val{false}) = count:count-1
function whole_windows(n, count, ::Val{g}, ::Val{true}) where {g}
    (g.base[1] == 1 && 1 <= g.window[1] <= 16) || return count:count-1
    from = Base.max(0, cld(g.low[1], g.stride[1]))
    to = fld(n - 1 + g.low[1] - (g.window[1] - 1) * g.dilation[1], g.stride[1])
    from > to && return count:count-1
    return from:Base.min(to, count - 1)
end

@inline function runs_of_row(f::F, n, results, g, y_above, x_above) where {F}
    isempty(results) && return
    y_step, _ = run_steps(g)
    for place in 0:window_of(g, Val(1))-1
        from, to = ends_of_run(place, n, results, g)
        from > to && continue
        element = element_of(from, place, n, g, Val(1))
        count = Base.div(to - from, y_step) + 1
        f(y_above + from + 1, x_above + element + 1, count, Val(1))
    end
end

# The first and the last of these results that meet an element at this place of the window.
@inline function ends_of_run(place, n, results, ::Val{g}) where {g}
    at = place * g.dilation[1] - g.low[1]
    from = Base.max(first(results), cld(-at, g.stride[1]))
    if g.base[1] > 1
        candidates = from:from+g.base[1]-1
        found = findfirst(r -> mod(r * g.stride[1] + at, g.base[1]) == 0, candidates)
        found === nothing && return 0, -1
        from = candidates[found]
    end
    return from, Base.min(last(results), fld((n - 1) * g.base[1] - at, g.stride[1]))
end

function moving(op::O, x, init, ::Val{g}) where {O,g}
    values = dense(as_array(x))
    y = fill!(
        Array{promote_type(eltype(x), typeof(init))}(undef, output_size(size(x), g)), init)
    isempty(x) && return as_value(y)
    meet(so_far, j) = op(so_far, @inbounds values[j])
    each_run(size(x), Val(g), Val(true)) do y_first, x_first, count, places
        y_step, x_step = run_steps(Val(g))
        @inbounds @simd ivdep for k in 0:count-1
            i, j = y_first + k * y_step, x_first + k * x_step
            y[i] = folded(meet, y[i], j, apart(Val(g)), places)
        end
    end
    return as_value(y)
end
apart(::Val{g}) where {g} = isempty(g.window) ? 1 : g.dilation[1]

# Written out, so that the loop around it has no loop inside.
@inline folded(op::O, y, j, step, ::Val{0}) where {O} = y
@inline folded(op::O, y, j, step, ::Val{n}) where {O,n} =
    folded(op, op(y, j), j + step, step, Val(n - 1))

@primitive reduce_window_sum(x, ::Val{g}) where {g} = moving(+, x, zero(eltype(x)), Val(g))
function pull(::Primitive{:reduce_window_sum}, ::Val{1}, ȳ, y, x, ::Val{g}) where {g}
    x̄, given = zeros_for(as_array(x), ȳ), dense(as_array(ȳ))
    isempty(x) && return x̄
    each_run(size(x), Val(g)) do y_first, x_first, count, _
        y_step, x_step = run_steps(Val(g))
        @inbounds @simd ivdep for k in 0:count-1
            i, j = y_first + k * y_step, x_first + k * x_step
            x̄[j] += given[i]
        end
    end
    return as_value(x̄)
end

for (name, op, keeps, init) in (
    (:reduce_window_max, :larger, :>=, :lowest),
    (:reduce_window_min, :smaller, :<=, :highest),
)
    @eval begin
        forward(p::Primitive{$(QuoteNode(name))}, x, g::Val) =
            moving_extreme(modes((x,)), p, x, g)
        plain_moving(::Primitive{$(QuoteNode(name))}, x, g) =
            moving($op, x, $init(eltype(x)), g)
        first_winners(::Primitive{$(QuoteNode(name))}, x, g) = winners_by($keeps, x, g)
        register($(QuoteNode(name)), Primitive{$(QuoteNode(name))}())
    end
end
moving_extreme(::Mode, p, x, g) = plain_moving(p, x, g)
const MovingExtreme = Union{Primitive{:reduce_window_max},Primitive{:reduce_window_min}}

# The numbers of the elements that win, 0 in a window without elements. As in XLA's
# select_and_scatter, an element wins from the one before it unless that one `keeps`: the
# first of those that tie stays, and a NaN does not.
function winners_by(keeps::K, x, ::Val{g}) where {K,g}
    values = dense(as_array(x))
    dims = output_size(size(x), g)
    winners, best = zeros(Int, dims), Array{eltype(values)}(undef, dims)
    isempty(x) && return winners
    fill!(best, zero(eltype(values)))
    better(won, j) = @inbounds begin
        wins = (won[1] == 0) | !keeps(won[2], values[j])
        ifelse(wins, j, won[1]), ifelse(wins, values[j], won[2])
    end
    each_run(size(x), Val(g), Val(true)) do y_first, x_first, count, places
        y_step, x_step = run_steps(Val(g))
        @inbounds @simd ivdep for k in 0:count-1
            i, j = y_first + k * y_step, x_first + k * x_step
            won = folded(better, (winners[i], best[i]), j, apart(Val(g)), places)
            winners[i], best[i] = won
        end
    end
    return winners
end

function pull(p::MovingExtreme, ::Val{1}, ȳ, y, x, g::Val)
    winners, given = first_winners(p, x, g), dense(as_array(ȳ))
    x̄ = zeros_for(as_array(x), ȳ)
    @inbounds for i in eachindex(winners, given)
        winners[i] == 0 || (x̄[winners[i]] += given[i])
    end
    return as_value(x̄)
end
function moving_extreme(::Duals, p, x, g)
    values, elements = primal(x), as_array(x)
    y = as_array(plain_moving(p, values, g))
    return as_value(map(first_winners(p, values, g), y) do i, v
        i == 0 && return convert(eltype(elements), v)
        # Where a NaN is the largest, it is the value, and not what wins.
        x = elements[i]
        isequal(primal(x), v) ? x : x + (v - primal(x))
    end)
end
