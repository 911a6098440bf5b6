# Broadcasts of few elements in the quick run. Base compiles a loop for each function and each type of
# argument, in some 30 ms; this one serves them all. What is done to an element is the same, and so is
# the order. It is included into `Base.Broadcast`.

"""
An element takes some 5 us here, so as many as these take a tenth of the time in which a loop is compiled:
the loop is faster only where a test runs it more than ten times.
"""
const FEW = 512

function materialize(@nospecialize(bc::Broadcasted))
    dims = is_plain(bc) ? shape(bc) : nothing
    (dims === nothing || !(prod(dims) in 1:FEW)) && return copy(instantiate(bc))
    isempty(dims) && return element(bc, dims)
    values = elements(bc, dims)
    T = Union{}
    for x in values
        T = Base.promote_typejoin(T, typeof(x))
    end
    return fill_with!(T === Bool ? BitArray(undef, dims) : Array{T}(undef, dims), values)
end

"A part of an array that has each of its elements once: all are read before any is written."
const Part = SubArray{<:Any,<:Any,<:Array,<:Tuple{Vararg{Union{Real,AbstractRange}}}}

function materialize!(@nospecialize(to), @nospecialize(bc::Broadcasted))
    if to isa Union{Array,Part} && length(to) <= FEW && is_plain(bc)
        dims = size(to)
        broadcast_shape(dims, shape(bc)) == dims && return fill_with!(to, elements(bc, dims))
    end
    return materialize!(combine_styles(to, bc), to, bc)
end

broadcast(@nospecialize(f), @nospecialize(args...)) = materialize(broadcasted(f, args...))

"Whether all of a broadcast's arguments are indexed from 1, and no package has its own way with them."
function is_plain(@nospecialize(x))
    x isa Union{Array,Number,Base.RefValue} && return true
    x isa Broadcasted || return x isa AbstractArray && !Base.has_offset_axes(x)
    x.style isa DefaultArrayStyle || return false
    for i in 1:nfields(x.args)
        is_plain(getfield(x.args, i)) || return false
    end
    return true
end

function shape(@nospecialize(x))
    # Julia 1.10 has no such field; to ask for the size takes code for each type of array.
    x isa Array && hasfield(Array, :size) && return getfield(x, :size)
    x isa Broadcasted || return x isa AbstractArray ? map(Int, size(x)) : ()
    dims = ()
    for i in 1:nfields(x.args)
        dims = broadcast_shape(dims, shape(getfield(x.args, i)))
    end
    return dims
end

elements(@nospecialize(bc), dims) = Any[element(bc, Tuple(I)) for I in CartesianIndices(dims)]

function element(@nospecialize(x), @nospecialize(at))
    x isa AbstractArray && return x[position(x, at)]
    x isa Broadcasted || return x[]
    n = nfields(x.args)
    n == 1 && return x.f(element(getfield(x.args, 1), at))
    n == 2 && return x.f(element(getfield(x.args, 1), at), element(getfield(x.args, 2), at))
    return x.f(Any[element(getfield(x.args, i), at) for i in 1:n]...)
end

function position(@nospecialize(x), @nospecialize(at))
    k, stride, dims = 1, 1, shape(x)
    for d in 1:nfields(dims)
        n = getfield(dims, d)::Int
        n == 1 || (k += stride * (getfield(at, d)::Int - 1))
        stride *= n
    end
    return k
end

function fill_with!(@nospecialize(array), values)
    for k in eachindex(values)
        array[k] = values[k]
    end
    return array
end
