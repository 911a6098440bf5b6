# Pooling by choice: of each window one element is chosen, and something is done at its
# place. The geometry is that of windows.jl.

# What the element that is chosen so far asks of the next one, to stay.
better(::Val{:ge}) = >=
better(::Val{:le}) = <=

"""
    select_and_gather_add(t, x, Val(choice), Val(g))

The elements of `t` at the places that are chosen in `x`; the choice is `:ge` or `:le`.
"""
@primitive select_and_gather_add(t, x, ::Val{c}, ::Val{g}) where {c,g} =
    taken(t, winners_by(better(Val(c)), primal(x), Val(g)))
pull(
    ::Primitive{:select_and_gather_add}, ::Val{1}, ȳ, y, t, x, ::Val{c}, ::Val{g}
) where {c,g} = put_back(t, winners_by(better(Val(c)), primal(x), Val(g)), ȳ)

"""
    select_and_scatter_add(source, x, Val(choice), Val(g))

Add the elements of `source` up at the places that are chosen in `x`.
"""
@primitive select_and_scatter_add(source, x, ::Val{c}, ::Val{g}) where {c,g} =
    put_back(primal(x), winners_by(better(Val(c)), primal(x), Val(g)), source)
pull(
    ::Primitive{:select_and_scatter_add}, ::Val{1}, ȳ, y, source, x, ::Val{c}, ::Val{g}
) where {c,g} = taken(ȳ, winners_by(better(Val(c)), primal(x), Val(g)))

# The choice itself is piecewise constant.
const Selection =
    Union{Primitive{:select_and_gather_add},Primitive{:select_and_scatter_add}}
pull(::Selection, ::Val{2}, ȳ, y, t, x, c, g) = NoTangent()

"""
    select_and_scatter(x, source, init, better, combine, Val(g))

The same with any two functions of numbers, from `init` on. JAX does not differentiate it.
"""
@discrete select_and_scatter(x, source, init, better, combine, ::Val{g}) where {g} =
    scattered(x, source, init, better, combine, g)
function scattered(x, source, init, better, combine, g)
    y = fill!(similar(x), init)
    for (out, place) in pairs(winners_by(better, x, Val(g)))
        place == 0 || (y[place] = combine(y[place], source[out]))
    end
    return y
end
