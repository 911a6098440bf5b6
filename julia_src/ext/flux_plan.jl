# The arrays of a model, and its plan (see src/nn/rebuild.jl).

# Integers and masks belong to the model; what is trained, or written to in training, has floats.
const FloatArray = AbstractArray{<:Union{AbstractFloat,Complex{<:AbstractFloat}}}

is_array(x) = x isa FloatArray && Functors.isleaf(x)

function PyBridge.find_arrays(model)
    seen = Base.IdSet{Any}()
    params, state = Pair{Tuple,AbstractArray}[], Pair{Tuple,AbstractArray}[]
    visit!(params, seen, model, (), Flux.trainable)
    visit!(state, seen, model, (), Functors.children)
    return params, state
end

function visit!(found, seen, x, path, children)
    if is_array(x)
        x in seen && return nothing
        push!(seen, x)
        push!(found, path => x)
        return nothing
    end
    Functors.isleaf(x) && return nothing
    x isa AbstractDict && refuse_dictionary(x, path)
    below = children(x)
    foreach(name -> visit!(found, seen, below[name], (path..., name), children), keys(below))
end

function refuse_dictionary(x, path)
    throw(ArgumentError("flux: expected layers in tuples, vectors, named tuples or structs, got " *
        "a $(nameof(typeof(x))) at $(join(path, '.')). Its order is not defined, and with it " *
        "which dropout layer gets which key; use a named tuple."))
end

"What a walk needs to know and finds out."
mutable struct Walk
    const training::Bool
    const params::IdDict{Any,Int}
    const state::IdDict{Any,Int}
    needs_key::Bool
    has_mode::Bool
end

function PyBridge.plan_model(model, training)
    numbered(found) = IdDict{Any,Int}(last(pair) => i for (i, pair) in enumerate(found))
    walk = Walk(training, map(numbered, PyBridge.find_arrays(model))..., false, false)
    plan = part(model, (), walk)
    return plan, walk.needs_key, walk.has_mode || !isempty(walk.state)
end

function part(x, path, walk)
    is_array(x) && return array_part(x, walk)
    x isa Union{Adjoint,Transpose} && return wrapped_part(x, path, walk)
    Functors.isleaf(x) && return Keep(x)
    children, make = Functors.functor(x)
    paths = key_paths(x, keys(children), path)
    parts = map((name, path) -> part(children[name], path, walk), Tuple(keys(children)), paths)
    if children isa AbstractVector
        parts = collect(PyBridge.Part, parts)
    elseif children isa NamedTuple
        parts = in_mode(x, NamedTuple{keys(children)}(parts), path, walk)
    end
    all(name -> parts[name] isa Keep && parts[name].value === children[name], keys(children)) &&
        return Keep(x)
    return Node(parts, maker(x, parts, make))
end

function array_part(x, walk)
    place = if haskey(walk.params, x)
        Parameter{walk.params[x]}()
    else
        StateArray{walk.state[x]}()
    end
    # An array without axes crosses the bridge as a number; the state is kept as an array.
    return ndims(x) == 0 && place isa Parameter ? Wrapped(fill, only, place) : place
end

function wrapped_part(x, path, walk)
    flip = x isa Adjoint ? adjoint : transpose
    parent = part(flip(x), path, walk)
    return parent isa Keep ? Keep(x) : Wrapped(flip, flip, parent)
end

# Layers hold their mode in a field `active`; what the model itself has set stays.
function in_mode(x, parts, path, walk)
    if get(parts, :active, nothing) == Keep(nothing)
        walk.has_mode = true
        parts = merge(parts, (active=Keep(walk.training),))
    end
    if x isa Union{Dropout,AlphaDropout} && parts.active.value
        walk.needs_key |= x.p > 0
        parts = merge(parts, (rng=MaskSource(path, Float64(x.p)),))
    end
    return parts
end

# --- constructors ----------------------------------------------------------------------------

maker(x, parts, make) = make
maker(x::BatchNorm, parts, make) = NormMaker{BatchNorm,writes(x, parts)}()
maker(x::InstanceNorm, parts, make) = NormMaker{InstanceNorm,writes(x, parts)}()
maker(x::GroupNorm, parts, make) = NormMaker{GroupNorm,false}()

writes(x, parts) = x.track_stats && parts.active.value

"""
Make a normalisation layer. Its type has one parameter for both β and γ, of which one alone may be
dual or tracked; where it `Writes` statistics, these are `Running`. `Rebuilt` marks the type as one
that only PyBridge makes.
"""
struct NormMaker{Layer,Writes} end
struct Rebuilt end
const RebuiltNorm = Union{BatchNorm{<:Any,>:Rebuilt},InstanceNorm{<:Any,>:Rebuilt},
    GroupNorm{<:Any,>:Rebuilt}}

function (::NormMaker{Layer,Writes})(parts) where {Layer,Writes}
    Writes && (parts = merge(parts, (μ=running(parts.μ), σ²=running(parts.σ²))))
    shared = Union{typeof(parts.β),typeof(parts.γ),Rebuilt}
    types = (typeof(parts.λ), shared, typeof(parts.ϵ))
    Layer === GroupNorm && return GroupNorm{types...}(parts...)
    return Layer{types...,typeof(parts.μ)}(parts...)
end

# Yota adds up the cotangents of the fields, each of which lacks the other fields. ChainRulesCore
# has no sum for that where the type is mutable.
function Base.:+(a::Tangent{P}, b::Tangent{P}) where {P<:RebuiltNorm}
    x, y = ChainRulesCore.backing(a), ChainRulesCore.backing(b)
    both = Tuple(intersect(keys(x), keys(y)))
    sums = NamedTuple{both}(map(name -> x[name] + y[name], both))
    fields = merge(x, y, sums)
    return Tangent{P,typeof(fields)}(fields)
end

# --- keys ------------------------------------------------------------------------------------

# Child number i of a container gets fold_in(key, i), from 0. What holds nothing but a container,
# or one layer, hands its key down.
key_paths(x, names, path) = ntuple(i -> (path..., i - 1), length(names))
key_paths(x::Union{Flux.Chain,Maxout}, names, path) = (path,)
key_paths(x::Union{Parallel,PairwiseFusion}, names, path) =
    ((path..., length(x.layers)), path)  # the connection, and the layers
key_paths(x::WeightNorm, names, path) = map(_ -> path, Tuple(names))
