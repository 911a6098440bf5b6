# A model as a function of its arrays. A plan is made once, from the model; `rebuild` then puts
# any arrays in the place of the model's own: dual numbers, tracked arrays. The model itself is
# never written to. Plans are made in ext/PyBridgeFluxExt.jl.

"What a plan is made of."
abstract type Part end

"A part of the model that is used as it is."
struct Keep{T} <: Part
    value::T
end

"The place of parameter number `I`."
struct Parameter{I} <: Part end

"The place of array number `I` of the state."
struct StateArray{I} <: Part end

"An array that wraps another one, such as a transpose; `unwrap` takes its cotangent apart."
struct Wrapped{F,G,P<:Part} <: Part
    wrap::F
    unwrap::G
    parent::P
end

"A layer or container; `make` gets its children in their places."
struct Node{C,F} <: Part
    children::C
    make::F
end

"The place of a dropout layer's generator; `path` numbers the children down to the layer."
struct MaskSource{N} <: Part
    path::NTuple{N,Int}
    p::Float64
end

"""
    rebuild(plan, params, state, key)

Make a model from its plan and its arrays.

# Arguments
- `plan`: a [`Part`](@ref).
- `params`, `state`: tuples of arrays.
- `key`: two `UInt32` words, or `nothing`.
"""
rebuild(p::Keep, params, state, key) = p.value
rebuild(::Parameter{I}, params, state, key) where {I} = params[I]
rebuild(::StateArray{I}, params, state, key) where {I} = state[I]
rebuild(p::Wrapped, params, state, key) = p.wrap(rebuild(p.parent, params, state, key))
rebuild(p::Node, params, state, key) =
    p.make(map(child -> rebuild(child, params, state, key), p.children))
rebuild(p::MaskSource, params, state, ::Nothing) = MaskRNG(p.p)
rebuild(p::MaskSource, params, state, key) =
    MaskRNG(p.p, foldl(fold_in, p.path; init=(UInt32(key[1]), UInt32(key[2]))))

# One rule for all: no AD system looks into constructors, and a parameter that stands in several
# places gets the sum of their cotangents.
function ChainRulesCore.rrule(::typeof(rebuild), plan::Part, params, state, key)
    model = rebuild(plan, params, state, key)
    function rebuild_pullback(model̄)
        params̄ = Any[ZeroTangent() for _ in params]
        add_cotangents!(params̄, plan, unthunk(model̄))
        return (NoTangent(), NoTangent(), Tangent{typeof(params)}(params̄...), NoTangent(),
            NoTangent())
    end
    return model, rebuild_pullback
end

add_cotangents!(params̄, ::Part, x̄) = nothing
add_cotangents!(params̄, ::Part, ::NoGradient) = nothing
add_cotangents!(params̄, ::Parameter, ::NoGradient) = nothing
add_cotangents!(params̄, ::Wrapped, ::NoGradient) = nothing
add_cotangents!(params̄, ::Node, ::NoGradient) = nothing
function add_cotangents!(params̄, ::Parameter{I}, x̄) where {I}
    params̄[I] += x̄
    return nothing
end
function add_cotangents!(params̄, p::Wrapped, x̄)
    parent = x̄ isa AbstractArray ? p.unwrap(x̄) : unthunk(cotangent_part(x̄, :parent))
    return add_cotangents!(params̄, p.parent, parent)
end
function add_cotangents!(params̄, p::Node, x̄)
    for name in keys(p.children)
        add_cotangents!(params̄, p.children[name], unthunk(cotangent_part(x̄, name)))
    end
    return nothing
end

# A field that has no cotangent may be missing.
cotangent_part(x̄::Tangent, name) = cotangent_part(ChainRulesCore.backing(x̄), name)
cotangent_part(x̄::NamedTuple, name) = get(x̄, name, nothing)
# Zygote's cotangent of a mutable struct.
cotangent_part(x̄::Ref, name) = cotangent_part(x̄[], name)
cotangent_part(x̄::NoGradient, name) = nothing
cotangent_part(x̄, name) = x̄[name]

# --- what a call is made of ------------------------------------------------------------------

"""
    ModelCall{training}(plan)

A model as the function that Python calls: `(params, state, x, key) -> (y, state)` in training,
`-> y` in test mode. The mode is in the plan: the layers of a rebuilt model hold it.
"""
struct ModelCall{Training,P<:Part}
    plan::P
end
ModelCall{Training}(plan) where {Training} = ModelCall{Training,typeof(plan)}(plan)

function (f::ModelCall{true})(params, state, x, key)
    arrays = own(state)
    y = rebuild(f.plan, params, arrays, key)(x)
    return y, arrays
end
(f::ModelCall{false})(params, state, x, key) = rebuild(f.plan, params, state, key)(x)

# Layers write their new statistics into these, which are where the old ones are.
own(state) = map(own_array, state)
own_array(x::Number) = fill(x)
own_array(x::AbstractArray) = Array(x)
own_array(x::DenseArray) = copyto!(similar(x), x)  # a GPU's arrays among them
ChainRulesCore.@non_differentiable own(::Any)

"""
    Running(array)

Running statistics that a layer writes to. What arrives with a derivative loses it: under
ForwardDiff and Tracker the layer's new statistics are dual or tracked.
"""
struct Running{T,N} <: AbstractArray{T,N}
    array::Array{T,N}
end
Base.size(r::Running) = size(r.array)
Base.IndexStyle(::Type{<:Running}) = IndexLinear()
Base.getindex(r::Running, i::Int) = r.array[i]
Base.setindex!(r::Running, v, i::Int) = setindex!(r.array, primal(v), i)

"Statistics that a layer can write to. On a GPU its kernels, and cuDNN's, want the array itself."
running(array::Array) = Running(array)
running(array::AbstractArray) = array

"""
    MaskRNG(p, key=nothing)

A generator for a Flux dropout layer of probability `p`: its masks are JAX's for the key, a tuple
of two `UInt32`. The second and later masks come from `fold_in(key, n)`, n = 1, 2, ...; without a
key everything is kept. [`rekey!`](@ref) starts again with another key.

# Examples
```jldoctest
julia> using PyBridge, Random

julia> rng = PyBridge.MaskRNG(0.5, (0x00000000, 0x0000002a));

julia> rand!(rng, zeros(4)) .> 0.5  # what Flux.Dropout(0.5; rng) keeps
4-element BitVector:
 1
 0
 0
 0
```
"""
mutable struct MaskRNG <: AbstractRNG
    const p::Float64
    key::Union{Nothing,NTuple{2,UInt32}}
    calls::Int
end
MaskRNG(p, key=nothing) = MaskRNG(p, key, 0)

"""
    rekey!(rng::MaskRNG, key) -> rng

Let the next mask be the first one of `key`, a tuple of two `UInt32`.
"""
function rekey!(rng::MaskRNG, key)
    rng.key, rng.calls = key, 0
    return rng
end

# Fills 2 where the mask keeps and 0 where it drops, so that Flux's `rand > p` is the mask for
# every `p` and element type, also where `p` is rounded to 0 or 1.
function Random.rand!(rng::MaskRNG, x::Array{T}) where {T}
    rng.key === nothing && return fill!(x, T(2))
    key = rng.calls == 0 ? rng.key : fold_in(rng.key, rng.calls)
    rng.calls += 1
    return map!(kept -> ifelse(kept, T(2), zero(T)), x, keep_mask(key, rng.p, size(x)))
end
