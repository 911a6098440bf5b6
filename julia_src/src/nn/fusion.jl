# More layers made of layers. The twin in Python is `pybridge/nn/_fusion.py`.

"""
    Maxout(layers...)

The elementwise largest of the outputs of several layers. At a tie the derivative is that of the last
of the equal outputs; NaN comes through. Parameters and state are tuples of the layers' own. The twin
in Python is `pybridge.nn.Maxout`, the source `Flux.Maxout`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Maxout(identity, x -> -x);

julia> first(PyBridge.apply(layer, ((;), (;)), ((;), (;)), [1.0, -2.0]))
2-element Vector{Float64}:
 1.0
 2.0
```
"""
struct Maxout{L<:Tuple} <: Layer
    layers::L
    function Maxout(layers...)
        isempty(layers) && throw(ArgumentError("Maxout: expected at least one layer, got none."))
        return new{typeof(layers)}(layers)
    end
end

init(key, layer::Maxout; T=Float32) = init_children(key, layer.layers, T)

function apply(layer::Maxout, params, state, x; key=nothing, training=:auto, mask=nothing)
    check_children(layer, params, state)
    check_mask_taken(layer, mask)
    mode = settle_training(training, params, x)
    return largest_output(layer.layers, params, state, x, key, mode, mask)
end
takes_mask(layer::Maxout) = any(takes_mask, layer.layers)

@generated function largest_output(
    layers::Tuple{Vararg{Any,N}}, params, states, x, key, training, mask
) where {N}
    ys, new = [Symbol(:y, i) for i in 1:N], [Symbol(:state, i) for i in 1:N]
    steps = [:(($(ys[i]), $(new[i])) = apply_child(layers[$i], params[$i], states[$i], x,
        child_key(key, $(i - 1)), training, mask)) for i in 1:N]
    largest = foldl((a, b) -> :(ruled(larger, $a, $b)), ys)
    return Expr(:block, steps..., :(return $largest, $(Expr(:tuple, new...))))
end

takes_first(a, b) = (a > b) | isnan(a)
larger(a, b) = ifelse.(takes_first.(a, b), a, b)
function ChainRulesCore.rrule(::typeof(larger), a, b)
    wins = takes_first.(a, b)
    function larger_pullback(ȳ)
        ȳ = unthunk(ȳ)
        return NoTangent(), ProjectTo(a)(ifelse.(wins, ȳ, zero(eltype(ȳ)))),
            ProjectTo(b)(ifelse.(wins, zero(eltype(ȳ)), ȳ))
    end
    return larger(a, b), larger_pullback
end

"""
    PairwiseFusion(connection, layers...)

Apply layers in turn, each to its input combined with the output of the one before it: for the input
`(x1, x2, ...)` the output is `(y1, y2, ...)` with `y1 = layer1(x1)`,
`y2 = layer2(connection(y1, x2))` and so on. One array stands for all inputs. Parameters and state are
tuples of the layers' own. The twin in Python is `pybridge.nn.PairwiseFusion`, the source
`Flux.PairwiseFusion`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.PairwiseFusion(+, x -> -x, abs);

julia> first(PyBridge.apply(layer, ((;), (;)), ((;), (;)), (1.0, -2.0)))
(-1.0, 3.0)
```
"""
struct PairwiseFusion{F,L<:Tuple} <: Layer
    connection::F
    layers::L
end
function PairwiseFusion(connection, layers...)
    check_connection(:PairwiseFusion, connection)
    isempty(layers) && throw(ArgumentError(
        "PairwiseFusion: expected a connection and at least one layer, got no layer."))
    return PairwiseFusion(connection, layers)
end

init(key, layer::PairwiseFusion; T=Float32) = init_children(key, layer.layers, T)

function apply(layer::PairwiseFusion, params, state, x; key=nothing, training=:auto, mask=nothing)
    check_children(layer, params, state)
    check_inputs(layer, x)
    check_mask_taken(layer, mask)
    mode = settle_training(training, params, x)
    return fused(layer.connection, layer.layers, params, state, x, key, mode, mask)
end
takes_mask(layer::PairwiseFusion) = any(takes_mask, layer.layers)

@generated function fused(
    connection, layers::Tuple{Vararg{Any,N}}, params, states, x, key, training, mask
) where {N}
    ys, new = [Symbol(:y, i) for i in 1:N], [Symbol(:state, i) for i in 1:N]
    steps = map(1:N) do i
        input = i == 1 ? :(input_of(x, 1)) : :(connection($(ys[i-1]), input_of(x, $i)))
        :(($(ys[i]), $(new[i])) = apply_child(layers[$i], params[$i], states[$i], $input,
            child_key(key, $(i - 1)), training, mask))
    end
    return Expr(:block, steps..., :(return $(Expr(:tuple, ys...)), $(Expr(:tuple, new...))))
end
