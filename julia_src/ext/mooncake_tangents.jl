# Mooncake's tangents and ChainRules' cotangents, one made of the other.

const Continuous = Union{Base.IEEEFloat,Complex{<:Base.IEEEFloat}}

"""
    natural(x, t)

The tangent `t` of `x` as ChainRules writes it: a number for a number, an array for an array,
named tuples for the fields of structs.
"""
natural(x, t) = t isa Mooncake.NoTangent ? ChainRulesCore.NoTangent() : of_tangent(x, t)
of_tangent(x::Continuous, t) = t
of_tangent(x::Array{<:Continuous}, t) = t
of_tangent(x::Array, t) = map(natural, x, t)
of_tangent(x::AbstractArray{<:Continuous}, t) = Base.invokelatest(push_elements, x, t)
of_tangent(x::Union{Tuple,NamedTuple}, t) = map(natural, x, t)
function of_tangent(x, t)
    names = fieldnames(typeof(t.fields))
    return NamedTuple{names}(map(n -> of_field(x, n, t.fields[n]), names))
end

of_field(x, name, t) = natural(getfield(x, name), t)
of_field(x, name, t::Mooncake.PossiblyUninitTangent) =
    Mooncake.is_init(t) ? natural(getfield(x, name), t.tangent) : nothing

# A layer's statistics go where Mooncake asks for plain memory.
Mooncake.arrayify(x::PyBridge.Running, t::Mooncake.TangentOrFData) =
    x, PyBridge.Running(last(Mooncake.arrayify(x.array, Mooncake._fields(t).array)))

"""
    as_tangent(x, x̄)

Mooncake's tangent of `x` for a cotangent of ChainRules.
"""
as_tangent(x, x̄) = filled(Mooncake.zero_tangent(x), x, x̄)

# `t` is a tangent of zeros.
function filled(t, x, x̄)
    x̄ = unthunk(x̄)
    return t isa Mooncake.NoTangent || x̄ isa NoGradient ? t : filled_with(x̄, t, x)
end
filled_with(x̄, t::T, x::Continuous) where {T} = T <: Real ? T(real(x̄)) : T(x̄)
filled_with(x̄, t, x::Array{<:Continuous}) = copyto!(t, PyBridge.dense(x, x̄))
filled_with(x̄, t, x::Array) = map!(filled, t, t, x, x̄)
filled_with(x̄, t, x::AbstractArray{<:Continuous}) =
    Base.invokelatest(pull_elements, x, PyBridge.dense(x, x̄))
filled_with(x̄, t, x::Tuple) = ntuple(i -> filled(t[i], x[i], x̄[i]), length(x))
filled_with(x̄, t, x::NamedTuple) = filled_fields(x̄, t, x)
filled_with(x̄, t, x) = filled_struct(x̄, t, x)
filled_struct(x̄, t::T, x) where {T<:Mooncake.Tangent} = T(filled_fields(x̄, t.fields, x))
function filled_struct(x̄, t::Mooncake.MutableTangent, x)
    t.fields = filled_fields(x̄, t.fields, x)
    return t
end

# What a view, a transpose or a `Symmetric` shows of its parent, twice perhaps, is for its own
# `getindex` to say.
pull_elements(x, x̄) = last(run_back(run_forth((elements, x)), x̄))
push_elements(x, t) = Mooncake.tangent(push_duals(Dual(elements, Mooncake.NoTangent()), Dual(x, t)))
function elements(x)
    y = Array{eltype(x)}(undef, size(x))
    for (i, j) in zip(eachindex(y), eachindex(IndexCartesian(), x))
        y[i] = x[j]
    end
    return y
end

function filled_fields(x̄, fields::NamedTuple{names}, x) where {names}
    given = x̄ isa ChainRulesCore.Tangent ? ChainRulesCore.backing(x̄) : x̄
    issubset(keys(given), names) || throw(ArgumentError("PyBridge under Mooncake: expected the " *
        "cotangent of a $(typeof(x)) to have its fields $names, got $(keys(given)). Return a " *
        "tuple or a named tuple from the function."))
    return NamedTuple{names}(map(names) do name
        filled_field(get(given, name, nothing), fields[name], x, name)
    end)
end
filled_field(x̄, t, x, name) = filled(t, getfield(x, name), x̄)
filled_field(x̄, t::T, x, name) where {T<:Mooncake.PossiblyUninitTangent} =
    Mooncake.is_init(t) ? T(filled(t.tangent, getfield(x, name), x̄)) : t
