# Layers made of layers. The mode is found out once, for all parameters and the input, and
# handed down as an answer. Child number i, from 0, gets the key `fold_in(key, i)`. A mask goes
# to every child that takes one, as it is.

"""
    Chain(layers...)

One layer after the other. Parameters and state are tuples of the layers' own. Functions are
layers without parameters. The twin in Python is `pybridge.nn.Chain`, the source
`Flux.Chain`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Chain(x -> 2x, x -> x + 1);

julia> first(PyBridge.apply(layer, ((;), (;)), ((;), (;)), 3))
7
```
"""
struct Chain{L<:Tuple} <: Layer
    layers::L
end
Chain(layers...) = Chain(layers)

init(key, layer::Chain; T=Float32) = init_children(key, layer.layers, T)

function apply(layer::Chain, params, state, x; key=nothing, training=:auto, mask=nothing)
    check_children(layer, params, state)
    check_mask_taken(layer, mask)
    mode = settle_training(training, params, x)
    return chained(layer.layers, params, state, x, key, mode, mask)
end
takes_mask(layer::Chain) = any(takes_mask, layer.layers)

@generated function chained(
    layers::Tuple{Vararg{Any,N}}, params, states, x, key, training, mask
) where {N}
    ys = [:x; [Symbol(:y, i) for i in 1:N]]
    new = [Symbol(:state, i) for i in 1:N]
    steps = [:(($(ys[i+1]), $(new[i])) = apply_child(layers[$i], params[$i], states[$i], $(ys[i]),
        child_key(key, $(i - 1)), training, mask)) for i in 1:N]
    return Expr(:block, steps..., :(return $(ys[end]), $(Expr(:tuple, new...))))
end

"""
    SkipConnection(layer, connection)

Compute `connection(layer(x), x)`. Parameters and state are the layer's. The twin in Python
is `pybridge.nn.SkipConnection`, the source `Flux.SkipConnection`.

# Examples
```jldoctest
julia> using PyBridge

julia> first(PyBridge.apply(PyBridge.SkipConnection(x -> 2x, +), (;), (;), 3))
9
```
"""
struct SkipConnection{L,F} <: Layer
    layer::L
    connection::F
    function SkipConnection(layer, connection)
        check_connection(:SkipConnection, connection)
        return new{typeof(layer),typeof(connection)}(layer, connection)
    end
end

init(key, layer::SkipConnection; T=Float32) = init_child(child_key(key, 0), layer.layer, T)

function apply(
    layer::SkipConnection, params, state, x; key=nothing, training=:auto, mask=nothing
)
    check_mask_taken(layer, mask)
    mode = settle_training(training, params, x)
    y, state = apply_child(layer.layer, params, state, x, child_key(key, 0), mode, mask)
    return layer.connection(y, x), state
end
takes_mask(layer::SkipConnection) = takes_mask(layer.layer)

"""
    Parallel(connection, layers...)

Compute `connection(layer(x) for each layer...)`. A tuple gives each layer an input of its
own; one layer alone gets all of its elements, one after the other. Parameters and state are tuples
of the layers' own. The twin in Python is `pybridge.nn.Parallel`, the source `Flux.Parallel`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Parallel(+, x -> 2x, x -> x^2);

julia> first(PyBridge.apply(layer, ((;), (;)), ((;), (;)), 3))
15
```
"""
struct Parallel{F,L<:Tuple} <: Layer
    connection::F
    layers::L
end
function Parallel(connection, layers...)
    check_connection(:Parallel, connection)
    isempty(layers) && throw(ArgumentError(
        "Parallel: expected a connection and at least one layer, got no layer."))
    return Parallel(connection, layers)
end

init(key, layer::Parallel; T=Float32) = init_children(key, layer.layers, T)

function apply(layer::Parallel, params, state, x; key=nothing, training=:auto, mask=nothing)
    check_children(layer, params, state)
    check_inputs(layer, x)
    check_mask_taken(layer, mask)
    mode = settle_training(training, params, x)
    return side_by_side(layer.connection, layer.layers, params, state, x, key, mode, mask)
end
takes_mask(layer::Parallel) = any(takes_mask, layer.layers)

# Written out, because Yota has no rule for `connection(ys...)`.
@generated function side_by_side(
    connection, layers::Tuple{Vararg{Any,N}}, params, states, x, key, training, mask
) where {N}
    # One layer alone is called for each element, and its state goes from call to call.
    calls = N == 1 && x <: Tuple ? fieldcount(x) : N
    ys, new = [Symbol(:y, i) for i in 1:calls], [Symbol(:state, i) for i in 1:N]
    steps = map(1:calls) do i
        n = min(i, N)
        state = i > n ? new[n] : :(states[$n])
        own_key = i > n ? :(child_key(child_key(key, 0), $(i - 1))) : :(child_key(key, $(i - 1)))
        :(($(ys[i]), $(new[n])) = apply_child(layers[$n], params[$n], $state, input_of(x, $i),
            $own_key, training, mask_of(x, mask, $i)))
    end
    return Expr(:block, steps..., :(return connection($(ys...)), $(Expr(:tuple, new...))))
end

input_of(x, i) = x
input_of(xs::Tuple, i) = xs[i]
mask_of(x, mask, i) = mask
mask_of(::Tuple, masks::Tuple, i) = masks[i]

function check_inputs(layer, x)
    x isa Tuple && !takes_inputs(layer, length(x)) && throw(ArgumentError(
        "$(title(layer)): expected one input, or a tuple of $(length(layer.layers)), got a " *
        "tuple of $(length(x))."))
    return nothing
end
takes_inputs(layer, count) = count == length(layer.layers)
takes_inputs(layer::Parallel, count) =
    count == length(layer.layers) || (length(layer.layers) == 1 && count > 0)
ChainRulesCore.@non_differentiable check_inputs(::Any, ::Any)

# --- children -------------------------------------------------------------------------------

apply_child(layer::Layer, params, state, x, key, training, ::Nothing) =
    apply(layer, params, state, x; key, training)
function apply_child(layer::Layer, params, state, x, key, training, mask)
    takes_mask(layer) || return apply(layer, params, state, x; key, training)
    return apply(layer, params, state, x; key, training, mask)
end
apply_child(f, params, state, x, key, training, mask) = (f(x), state)

# Functions and most layers take no mask.
takes_mask(layer) = false
takes_mask(::Union{BatchNorm,InstanceNorm,GroupNorm,LayerNorm,Recurrence}) = true
takes_mask(::MultiHeadAttention) = true
ChainRulesCore.@non_differentiable takes_mask(::Any)

check_mask_taken(layer, ::Nothing) = nothing
function check_mask_taken(layer, mask)
    takes_mask(layer) && return nothing
    throw(ArgumentError(
        "$(title(layer)): expected a layer that takes a mask, as a normalisation, got none."))
end
ChainRulesCore.@non_differentiable check_mask_taken(::Any, ::Any)

init_child(key, layer::Layer, T) = init(key, layer; T)
init_child(key, f, T) = ((;), (;))

function init_children(key, layers, T)
    both = ntuple(i -> init_child(child_key(key, i - 1), layers[i], T), length(layers))
    return map(first, both), map(last, both)
end

child_key(::Nothing, i) = nothing
child_key(key, i) = fold_in(key, i)
ChainRulesCore.@non_differentiable child_key(::Any, ::Any)

function check_children(layer, params, state)
    length(params) == length(state) == length(layer.layers) && return nothing
    throw(ArgumentError(
        "$(title(layer)): expected parameters and state of $(length(layer.layers)) layers, got " *
        "$(length(params)) and $(length(state)). Take both from init."))
end
ChainRulesCore.@non_differentiable check_children(::Any...)
