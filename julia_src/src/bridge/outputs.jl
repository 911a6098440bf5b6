# What a function returns for arguments of known types and sizes, before there are values.

"""
    find_outputs(id, spec, dims, layout) -> String

Spec and extents of a function's result, for the Python side. Where Julia's inference knows that the
result is made of numbers, nothing is run. Else it is called once, with [`sample`](@ref)s.
"""
function find_outputs(id, spec, dims, layout)
    f, spec = FUNCTIONS[parse(Int, id)], parse_spec(spec, layout == "reversed")
    dims = map(text -> Tuple(parse.(Int, Base.split(text, ','; keepempty=false))),
        Tuple(Base.split(dims, ';')))
    T = result_type(f, map(julia_type, spec))
    is_numeric(T) && return string(spec_text(T), '|')
    leaves = map((T, dims) -> sample(T, dims), leaf_types(spec), dims)
    y = sendable(call_with(f, spec, leaves))
    return string(spec_text(typeof(y)), '|', join(put_shapes!(Int[], y, false), ','))
end

result_type(f, types) = Base.promote_op(f, types...)

is_numeric(T) = T <: Wired && isconcretetype(T)
is_numeric(::Type{Union{}}) = false
is_numeric(::Type{T}) where {T<:Branch} =
    isconcretetype(T) && all(is_numeric, fieldtypes(T))

julia_type(::LeafSpec{T,0}) where {T} = T
julia_type(::LeafSpec{T,N}) where {T,N} = Array{T,N}
julia_type(::NothingSpec) = Nothing
julia_type(spec::Tuple) = Tuple{map(julia_type, spec)...}
julia_type(spec::NamedTuple{names}) where {names} =
    NamedTuple{names,Tuple{map(julia_type, values(spec))...}}

"""
    sample(T, dims)

Ones, and for square matrices ones plus the identity: values that may be divided by, taken
the logarithm of, used as an index or as a sum of weights, and matrices that have an inverse and
a Cholesky factor.
"""
sample(T, ::Tuple{}) = one(T)
function sample(T, dims)
    x = ones(T, dims)
    is_square = length(dims) == 2 && dims[1] == dims[2]
    return is_square && is_differentiable(T) ? x .+ (axes(x, 1) .== axes(x, 2)') : x
end
