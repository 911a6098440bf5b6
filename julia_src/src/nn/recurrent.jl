# Layers that carry a hidden state along sequences. The twin in Python is
# `pybridge/nn/_recurrent.py`.

"""
    Recurrence(cell; return_state=false)

Apply a recurrent cell to each step of a sequence.

The input has size `(in, time)` or `(in, time, batch)`; the output has the cell's outputs in place of
the features. Parameters are the cell's. The twin in Python is `pybridge.nn.Recurrence`, the source
`Flux.Recurrence`.

[`apply`](@ref) takes two more options:
- `hidden`: the hidden state to start from, one for each sequence or one for all, zeros by default;
  `(h, c)` for an LSTM.
- `mask`: an array of `Bool` of size `(time, batch)` or `(1, time, batch)`, false where a step is
  padding. It leaves the hidden state as it is, its output is 0, and it may be NaN.

# Arguments
- `cell`: a [`Cell`](@ref).
- `return_state`: whether the output is `(y, hidden)`, with the hidden state after the last step.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Recurrence(PyBridge.RNNCell(1 => 1, identity); return_state=true);

julia> params = (weight_in=[1.0;;], weight_hidden=[1.0;;], bias=[0.0]);

julia> (y, hidden), _ = PyBridge.apply(layer, params, (;), [1.0 2.0 3.0]);

julia> y
1×3 Matrix{Float64}:
 1.0  3.0  6.0
```
"""
struct Recurrence{C<:Cell} <: Layer
    cell::C
    return_state::Bool
end
Recurrence(cell::Cell; return_state=false) = Recurrence(cell, return_state)

init(key, layer::Recurrence; T=Float32) = init(key, layer.cell; T)

function apply(
    layer::Recurrence, params, state, x; key=nothing, training=:auto, hidden=nothing,
    mask=nothing
)
    ndims(x) in (2, 3) && size(x, 2) > 0 ||
        throw_size(layer, x, "(in, time) or (in, time, batch), with one step or more")
    batch = size(x)[3:end]
    counts = counting(layer, mask, size(x)[2:end])
    y, hidden = steps(layer.cell, params, reshape(x, size(x, 1), size(x, 2), :),
        started(layer.cell, params, batch, hidden), counts)
    y = reshape(y, size(y, 1), size(y, 2), batch...)
    layer.return_state || return y, state
    return (y, map_hidden(h -> reshape(h, size(h, 1), batch...), hidden)), state
end

"""
    RNN(in => out, activation=tanh; return_state=false, options...)

A [`Recurrence`](@ref) of an [`RNNCell`](@ref), whose options it takes. The twin in Python is
`pybridge.nn.RNN`, the source `Flux.RNN`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.RNN(2 => 3);

julia> params, state = PyBridge.init((0x00000000, 0x0000002a), layer);

julia> size(first(PyBridge.apply(layer, params, state, ones(Float32, 2, 7, 5))))
(3, 7, 5)
```
"""
function RNN(channels::Channels, activation=tanh; return_state=false, options...)
    return Recurrence(RNNCell(channels, activation; options...); return_state)
end

"""
    LSTM(in => out; return_state=false, options...)

A [`Recurrence`](@ref) of an [`LSTMCell`](@ref), whose options it takes. The twin in Python is
`pybridge.nn.LSTM`, the source `Flux.LSTM`.
"""
LSTM(channels::Channels; return_state=false, options...) =
    Recurrence(LSTMCell(channels; options...); return_state)

"""
    GRU(in => out; return_state=false, options...)

A [`Recurrence`](@ref) of a [`GRUCell`](@ref), whose options it takes. The twin in Python is
`pybridge.nn.GRU`, the source `Flux.GRU`.
"""
GRU(channels::Channels; return_state=false, options...) =
    Recurrence(GRUCell(channels; options...); return_state)

"""
    GRUv3(in => out; return_state=false, options...)

A [`Recurrence`](@ref) of a [`GRUv3Cell`](@ref), whose options it takes. The twin in Python is
`pybridge.nn.GRUv3`, the source `Flux.GRUv3`.
"""
GRUv3(channels::Channels; return_state=false, options...) =
    Recurrence(GRUv3Cell(channels; options...); return_state)

"The hidden state to start from, in the weights' number type; refuse one of another size."
started(cell, params, batch, ::Nothing) = initial_hidden(cell, params, prod(batch))
function started(cell, params, batch, hidden)
    zeros = initial_hidden(cell, params, prod(batch))
    check_hidden(cell, hidden, zeros, batch)
    return fitted(hidden, zeros)
end
fitted(h, zeros) = as_eltype(zeros, reshape_state(h, zeros))
fitted((h, c)::Tuple{Any,Any}, zeros) = (fitted(h, zeros[1]), fitted(c, zeros[2]))
reshape_state(h, zeros) = length(h) == length(zeros) ? reshape(h, size(zeros)) : h

function check_hidden(cell, hidden, zeros, batch)
    (hidden isa Tuple) == (zeros isa Tuple) && (!(hidden isa Tuple) || length(hidden) == 2) ||
        throw(ArgumentError("$(title(cell)): expected hidden to be " *
            (zeros isa Tuple ? "a tuple (h, c)" : "an array") * ", got a $(typeof(hidden))."))
    given, wanted = hidden isa Tuple ? (hidden, zeros) : ((hidden,), (zeros,))
    for (h, zero) in zip(given, wanted)
        out = size(zero, 1)
        size(h) in ((out,), (out, batch...)) && continue
        shared = isempty(batch) ? ", as the input has no batch" : ", or $((out,)) for the whole batch"
        throw(DimensionMismatch("$(title(cell)): expected hidden of size $((out, batch...))" *
                                "$shared, got $(size(h))."))
    end
    return nothing
end
ChainRulesCore.@non_differentiable check_hidden(::Any...)

"The mask with the size (1, time, batch)."
counting(layer, ::Nothing, expected) = nothing
function counting(layer, mask, expected)
    eltype(mask) === Bool || throw(ArgumentError(
        "$(title(layer)): expected an array of Bool as mask, got $(typeof(mask))."))
    size(mask) in (expected, (1, expected...)) || throw(DimensionMismatch(
        "$(title(layer)): expected a mask of size $expected, got $(size(mask))."))
    return reshape(mask, 1, first(expected), :)
end
ChainRulesCore.@non_differentiable counting(::Any...)
