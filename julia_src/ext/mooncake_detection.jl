# The questions, as Mooncake reads them: a method table of its own holds the answers, which
# nobody else's code sees. Flux's and NNlib's layers ask NNlib's question.

Mooncake.@mooncake_overlay PyBridge.within_gradient(x) = true
Mooncake.@mooncake_overlay PyBridge.is_differentiating(xs...) = !isempty(xs)
Mooncake.@mooncake_overlay NNlib.within_gradient(x) = true

# A gradient around this one asks again, in the rule, and adds its own. The barriers keep the
# compiler from putting in the 0 that is the answer outside.
Mooncake.@mooncake_overlay PyBridge.differentiation_order(x) = order_within(x)
order_within(x) = Base.inferencebarrier(PyBridge.plain_order)(x)::Int
order_of(x) = 1 + Base.inferencebarrier(PyBridge.differentiation_order)(Mooncake.primal(x))::Int

Mooncake.@is_primitive MinimalCtx Tuple{typeof(order_within),Any}
Mooncake.rrule!!(f::CoDual{typeof(order_within)}, x::CoDual) =
    Mooncake.zero_fcodual(order_of(x)), Mooncake.NoPullback(f, x)
Mooncake.frule!!(::Dual{typeof(order_within)}, x::Dual) = Mooncake.zero_dual(order_of(x))

# Mooncake's dual numbers, with which it runs some functions forward in chunks.
const Chunked = Mooncake.Nfwd.NDual
PyBridge.within_gradient(::Union{Chunked,AbstractArray{<:Chunked}}) = true
NNlib.within_gradient(::Union{Chunked,AbstractArray{<:Chunked}}) = true
PyBridge.primal(x::Chunked) = x.value
PyBridge.primal(x::AbstractArray{<:Chunked}) = map(PyBridge.primal, x)
PyBridge.primal_type(::Type{<:Chunked{T}}) where {T} = T
PyBridge.differentiation_order(x::Chunked) = 1
PyBridge.differentiation_order(x::AbstractArray{<:Chunked}) = 1
