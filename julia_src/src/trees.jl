# Arguments, results and gradients are trees: tuples and named tuples with numbers and arrays
# as leaves. Here they are walked, and what an AD system returns is made dense.

const Branch = Union{Tuple,NamedTuple}
const Leaf = Union{Number,AbstractArray{<:Number}}

"""
    leaves(tree) -> Vector{Any}

List the numbers and arrays of a tree, depth first.
"""
leaves(tree) = leaves!(Any[], tree)
leaves!(out, x::Branch) = (foreach(child -> leaves!(out, child), x); out)
leaves!(out, ::Nothing) = out
leaves!(out, x) = push!(out, x)

"""
    maptree(f, tree, trees...)

Apply `f` to the leaves of trees of equal structure.
"""
maptree(f, x::Branch, xs::Branch...) = map((children...) -> maptree(f, children...), x, xs...)
maptree(f, x::Nothing, xs...) = nothing
maptree(f, x, xs...) = f(x, xs...)

"""
    dense(x, x̄)

Give the cotangent `x̄` the structure, size and element type of the argument `x`, whatever
the AD system returned: `nothing`, `NoTangent`, a thunk, a `Tangent`, a `Fill`, a one-hot
array, a complex number for a real argument.
"""
dense(x::Branch, x̄) = dense_children(x, unthunk(x̄))
dense(x::Number, x̄) = dense_number(x, unthunk(x̄))
dense(x::AbstractArray, x̄) = dense_array(x, unthunk(x̄))
dense(x::Nothing, x̄) = nothing

const NoGradient = Union{Nothing,AbstractZero}

dense_children(x::Tuple, x̄::NoGradient) = map(child -> dense(child, nothing), x)
dense_children(x::NamedTuple, x̄::NoGradient) = map(child -> dense(child, nothing), x)
dense_children(x::Tuple, x̄) = ntuple(i -> dense(x[i], x̄[i]), length(x))
function dense_children(x::NamedTuple{names}, x̄) where {names}
    fields = x̄ isa Tangent ? ChainRulesCore.backing(x̄) : x̄
    return NamedTuple{names}(map(n -> dense(x[n], get(fields, n, nothing)), names))
end

dense_number(x::Number, x̄::NoGradient) = zero(float(x))
dense_number(x::Real, x̄::Number) = convert(float(typeof(x)), real(x̄))
dense_number(x::Number, x̄::Number) = convert(float(typeof(x)), x̄)

dense_array(x, x̄::NoGradient) = zeros(float(eltype(x)), size(x))
function dense_array(x, x̄::AbstractArray)
    out = Array{float(eltype(x))}(undef, size(x))
    for (i, v) in zip(eachindex(out), x̄)
        out[i] = v isa NoGradient ? 0 : eltype(x) <: Real ? real(unthunk(v)) : unthunk(v)
    end
    return out
end
function dense_array(x, x̄::AbstractArray{<:Real})
    size(x̄) == size(x) || length(x̄) == length(x) || throw(DimensionMismatch(
        "the AD system returned a gradient of size $(size(x̄)) for an argument of size $(size(x))"))
    return copyto!(Array{float(eltype(x))}(undef, size(x)), x̄)
end

# The order in which a tree becomes one vector is that of JAX's ravel: leaf after leaf, each
# leaf with its last index running fastest. Python reshapes the result without a copy.
row_major(x::Number) = [x]
row_major(x::AbstractVector) = x
row_major(x::AbstractArray{T,0}) where {T} = vec(x)
row_major(x::AbstractArray) = vec(permutedims(x, ndims(x):-1:1))

"""
    ravel(tree) -> Vector

Put all elements of a tree into one vector, in JAX's order.
"""
function ravel(tree)
    v = Vector{number_type(tree)}(undef, number_count(tree))
    place!(v, 1, tree)
    return v
end

number_type(x) = eltype(x)
number_type(::Nothing) = Bool
number_type(x::Branch) = mapreduce(number_type, promote_type, x; init=Bool)

number_count(x) = length(x)
number_count(::Nothing) = 0
number_count(x::Branch) = sum(number_count, x; init=0)

place!(v, start, ::Nothing) = start
place!(v, start, x::Number) = (v[start] = x; start + 1)
place!(v, start, x) = (copyto!(v, start, row_major(x)); start + length(x))
place!(v, start, x::Branch) = foldl((start, child) -> place!(v, start, child), x; init=start)

"""
    unravel(tree, v)

Build a tree like `tree` from the elements of the vector `v`: the inverse of [`ravel`](@ref).
"""
function unravel(tree, v::AbstractVector)
    return first(unravel_from(tree, v, 0))
end

unravel_from(x::Nothing, v, start) = nothing, start
unravel_from(x::Number, v, start) = v[start+1], start + 1
function unravel_from(x::AbstractArray, v, start)
    part = v[start+1:start+length(x)]
    ndims(x) <= 1 && return reshape(part, size(x)), start + length(x)
    return permutedims(reshape(part, reverse(size(x))), ndims(x):-1:1), start + length(x)
end
unravel_from(x::Tuple{}, v, start) = (), start
function unravel_from(x::Tuple, v, start)
    head, next = unravel_from(first(x), v, start)
    tail, stop = unravel_from(Base.tail(x), v, next)
    return (head, tail...), stop
end
function unravel_from(x::NamedTuple{names}, v, start) where {names}
    children, stop = unravel_from(values(x), v, start)
    return NamedTuple{names}(children), stop
end

"""
    with_arguments(f, args, ::Val{argnums}) -> (g, selected)

Close `f` over all but the arguments with the (1-based) numbers `argnums`.
"""
function with_arguments(f, args::Tuple, ::Val{argnums}) where {argnums}
    selected = map(i -> args[i], argnums)
    argnums === ntuple(identity, length(args)) && return f, selected
    # An index table beats searching: for each position the place in `xs`, or 0.
    places = ntuple(i -> something(findfirst(==(i), argnums), 0), length(args))
    g(xs...) = f(ntuple(i -> places[i] == 0 ? args[i] : xs[places[i]], Val(length(args)))...)
    return g, selected
end
