# Recurrent cells. The twin in Python is `pybridge/nn/_cells.py`. How their steps are taken and
# differentiated is in trajectory.jl.

"""
    Cell

The base of recurrent cells: what [`Recurrence`](@ref) carries along a sequence. A cell of one's own
defines `init`, [`initial_hidden`](@ref) and [`step`](@ref). The twin in Python is
`pybridge.nn.Cell`.
"""
abstract type Cell <: Layer end

"""
    initial_hidden(cell, params, batch...)

The hidden state that a cell starts from: arrays of size `(out, batch...)`, zeros for Flux's cells.
The source is `Flux.initialstates`.

# Examples
```jldoctest
julia> using PyBridge

julia> cell = PyBridge.GRUCell(2 => 3);

julia> params, _ = PyBridge.init((0x00000000, 0x0000002a), cell);

julia> PyBridge.initial_hidden(cell, params, 4) == zeros(Float32, 3, 4)
true
```
"""
function initial_hidden end

"""
    step(cell, params, x, hidden) -> (y, hidden)

One step of a cell of one's own. Flux's cells have theirs in one rule for all steps.
"""
function step end

"""
    RNNCell(in => out, activation=tanh; bias=true, init=glorot_uniform,
            recurrent_init=glorot_uniform)

One step of a plain recurrent network: `h = activation.(Wi * x .+ Wh * h .+ b)`.

[`apply`](@ref) takes `hidden`, of size `(out, batch)` or `(out,)`, zeros by default, for an input of
size `(in, batch)` or `(in,)`, and returns `((y, hidden), state)` with `y` and `hidden` both h.

Parameters are `weight_in` of size `(out, in)`, `weight_hidden` of size `(out, out)` and `bias` of
size `(out,)`. The twin in Python is `pybridge.nn.RNNCell`, the source `Flux.RNNCell`.

# Arguments
- `in => out`: how many features come in, and the size of the hidden state.
- `activation`: a function of a number, with a rule in ChainRules or differentiable by ForwardDiff.
- `bias`: whether there is one.
- `init`, `recurrent_init`: make `weight_in` and `weight_hidden`, as in `init(key, T, dims)`.

# Examples
```jldoctest
julia> using PyBridge

julia> cell = PyBridge.RNNCell(1 => 1, identity);

julia> params = (weight_in=[2.0;;], weight_hidden=[10.0;;], bias=[1.0]);

julia> (y, hidden), _ = PyBridge.apply(cell, params, (;), [3.0]; hidden=[1.0]);

julia> y
1-element Vector{Float64}:
 17.0
```
"""
struct RNNCell{F,I,R} <: Cell
    channels::Pair{Int,Int}
    activation::F
    bias::Bool
    init::I
    recurrent_init::R
end
function RNNCell(
    channels::Channels, activation=tanh; bias=true, init=glorot_uniform,
    recurrent_init=glorot_uniform
)
    channels = positive(:RNNCell, channels)
    return RNNCell(channels, activation, bias, init, recurrent_init)
end

"""
    LSTMCell(in => out; bias=true, init=glorot_uniform, recurrent_init=glorot_uniform)

One step of a long short-term memory. With the gates i, f, g, o, which are the quarters of
`Wi * x .+ Wh * h .+ b`: `c = σ(f) * c + σ(i) * tanh(g)` and `h = σ(o) * tanh(c)`.

`hidden` is the tuple `(h, c)`. Parameters are `weight_in` of size `(4out, in)`, `weight_hidden` of
size `(4out, out)` and `bias` of size `(4out,)`; all else is as in [`RNNCell`](@ref). The twin in
Python is `pybridge.nn.LSTMCell`, the source `Flux.LSTMCell`.

# Examples
```jldoctest
julia> using PyBridge

julia> cell = PyBridge.LSTMCell(2 => 3);

julia> params, state = PyBridge.init((0x00000000, 0x0000002a), cell);

julia> (y, (h, c)), _ = PyBridge.apply(cell, params, state, ones(Float32, 2, 5));

julia> size(h), size(c), y == h
((3, 5), (3, 5), true)
```
"""
struct LSTMCell{I,R} <: Cell
    channels::Pair{Int,Int}
    bias::Bool
    init::I
    recurrent_init::R
end

"""
    GRUCell(in => out; bias=true, init=glorot_uniform, recurrent_init=glorot_uniform)

One step of a gated recurrent unit, as in the first version of its paper (Cho et al., 2014). With the
thirds of `x̂ = Wi * x .+ b` and of `ĥ = Wh * h`: `r = σ(x̂₁ + ĥ₁)`, `z = σ(x̂₂ + ĥ₂)`,
`n = tanh(x̂₃ + r * ĥ₃)` and the new `h = (1 - z) * n + z * h`.

Parameters are `weight_in` of size `(3out, in)`, `weight_hidden` of size `(3out, out)` and `bias` of
size `(3out,)`; all else is as in [`RNNCell`](@ref). The twin in Python is `pybridge.nn.GRUCell`, the
source `Flux.GRUCell`.
"""
struct GRUCell{I,R} <: Cell
    channels::Pair{Int,Int}
    bias::Bool
    init::I
    recurrent_init::R
end

"""
    GRUv3Cell(in => out; bias=true, init=glorot_uniform, recurrent_init=glorot_uniform)

One step of a gated recurrent unit, as in the third version of its paper: as [`GRUCell`](@ref) but
for `n = tanh(x̂₃ + Wc * (r * h))`, with one more parameter, `weight_candidate` of size
`(out, out)`. As in Flux the last third of `weight_hidden` has no effect. The twin in Python is
`pybridge.nn.GRUv3Cell`, the source `Flux.GRUv3Cell`.
"""
struct GRUv3Cell{I,R} <: Cell
    channels::Pair{Int,Int}
    bias::Bool
    init::I
    recurrent_init::R
end

for name in (:LSTMCell, :GRUCell, :GRUv3Cell)
    @eval function $name(
        channels::Channels; bias=true, init=glorot_uniform, recurrent_init=glorot_uniform
    )
        channels = positive($(QuoteNode(name)), channels)
        return $name(channels, bias, init, recurrent_init)
    end
end

const FluxCell = Union{RNNCell,LSTMCell,GRUCell,GRUv3Cell}

gates_of(::RNNCell) = 1
gates_of(::LSTMCell) = 4
gates_of(::Union{GRUCell,GRUv3Cell}) = 3

function init(key, cell::FluxCell; T=Float32)
    in, out = cell.channels
    rows = gates_of(cell) * out
    params = (weight_in=drawn(cell, cell.init, key, 0, T, (rows, in)),
        weight_hidden=drawn(cell, cell.recurrent_init, key, 1, T, (rows, out)))
    if cell isa GRUv3Cell
        candidate = drawn(cell, cell.recurrent_init, key, 2, T, (out, out))
        params = merge(params, (; weight_candidate=candidate))
    end
    return cell.bias ? merge(params, (; bias=zeros(T, rows))) : params, (;)
end

function drawn(cell, init, key, number, T, dims)
    weight = init(fold_in(key, number), T, dims)
    size(weight) == dims || throw(DimensionMismatch(
        "$(title(cell)): expected init(key, T, dims) to return an array of size $dims, got " *
        "$(size(weight))."))
    return weight
end

function initial_hidden(cell::FluxCell, params, batch...)
    return fill_zeros(params.weight_hidden, last(cell.channels), batch...)
end
function initial_hidden(cell::LSTMCell, params, batch...)
    h = fill_zeros(params.weight_hidden, last(cell.channels), batch...)
    return h, h
end
# The weight may be tracked or dual, zeros are not.
fill_zeros(weight, size...) = fill!(similar(primal(weight), size...), 0)
ChainRulesCore.@non_differentiable fill_zeros(::Any...)
ChainRulesCore.@non_differentiable initial_hidden(::Any...)

function apply(cell::Cell, params, state, x; key=nothing, training=:auto, hidden=nothing)
    size(x, 1) > 0 && ndims(x) in (1, 2) || throw_size(cell, x, "(in,) or (in, batch)")
    sequence = reshape(x, size(x, 1), 1, size(x, 2))
    batch = size(x)[2:end]
    y, hidden = steps(cell, params, sequence, started(cell, params, batch, hidden), nothing)
    without_batch(a) = reshape(a, size(a, 1), batch...)
    return (without_batch(y), map_hidden(without_batch, hidden)), state
end

throw_size(layer, x, expected) = throw(DimensionMismatch(
    "$(title(layer)): expected an input of size $expected, got $(size(x))."))

map_hidden(f, hidden) = f(hidden)
map_hidden(f, (h, c)::Tuple{Any,Any}) = (f(h), f(c))
