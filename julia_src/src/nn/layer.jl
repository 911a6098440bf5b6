# What all layers share. The twin in Python is `pybridge/nn/_layer.py` with `_mode.py`.

"""
    Layer

The configuration of a layer: an immutable struct without arrays. Parameters and state are made
by [`init`](@ref) and handed to [`apply`](@ref).
"""
abstract type Layer end

"How many features or channels come in and go out: `in => out`."
const Channels = Pair{<:Integer,<:Integer}

"""
    params, state = init(key, layer; T=Float32)

Make the parameters and the state of a layer.

# Arguments
- `key`: the two words of a JAX key, a tuple or a vector of `UInt32`.
- `layer`: a [`Layer`](@ref).
- `T`: the element type of the arrays.

# Returns
Two named tuples of arrays, or tuples of these where the layer is a container; empty where there
is nothing.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.init((0x00000000, 0x0000002a), PyBridge.Dropout(0.5))
(NamedTuple(), NamedTuple())
```
"""
function init end

"""
    y, state = apply(layer, params, state, x; key=nothing, training=:auto)

Apply a layer.

# Arguments
- `layer`: a [`Layer`](@ref).
- `params`, `state`: as [`init`](@ref) made them, or as the last `apply` returned them.
- `x`: the input.
- `key`: the two words of a JAX key, for layers that draw random numbers in training.
- `training`: `true`, `false`, or `:auto` to train exactly where a derivative is being taken.

# Returns
The output and the new state.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Dropout(0.5);

julia> key = (0x00000000, 0x0000002a);

julia> y, _ = PyBridge.apply(layer, (;), (;), ones(4); key, training=true);

julia> y
4-element Vector{Float64}:
 2.0
 0.0
 0.0
 0.0
```
"""
function apply end

"""
    StatelessLayer

A layer that has no state, draws nothing and is the same in training: all of it is its
[`output`](@ref).
"""
abstract type StatelessLayer <: Layer end

"""
    output(layer::StatelessLayer, params, x)

The output of a [`StatelessLayer`](@ref); a layer of one's own of that kind defines this and
[`init`](@ref). In Python any layer of one's own defines `forward`.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.output(PyBridge.Dense(2 => 1, abs), (weight=[1.0 -2.0], bias=[0.5]), [1.0, 3.0])
1-element Vector{Float64}:
 4.5
```
"""
function output end

apply(layer::StatelessLayer, params, state, x; key=nothing, training=:auto) =
    output(layer, params, x), state

# The keywords of a call are several steps for Zygote, which take longer than a small layer.
function ChainRulesCore.rrule(config::RuleConfig{>:HasReverseMode}, ::typeof(apply),
    layer::StatelessLayer, params, state, x; key=nothing, training=:auto)
    y, back = inner_rrule(config, output, layer, params, x)
    function apply_pullback(cotangents)
        ȳ = first(cotangents)
        ȳ isa AbstractZero && return ntuple(Returns(NoTangent()), 5)
        _, layer̄, params̄, x̄ = back(ȳ)
        return NoTangent(), layer̄, params̄, NoTangent(), x̄
    end
    return (y, state), apply_pullback
end

"""
    Settled(training)

A mode that a container has found for all of its layers. `resolve_training` takes it as it is:
a layer whose own input carries no derivative is no contradiction then.
"""
struct Settled
    training::Bool
end

"""
    resolve_training(training, xs...) -> Bool

Tell whether a layer trains, from what the user said and from whether `xs` carry a derivative.
`:auto` follows the detection. An explicit mode wins, with a warning, once, where the detection
contradicts it.

Under Yota only rules see the truth, so act on the answer with [`cond`](@ref).

The twin in Python is `resolve_training` in `pybridge/nn/_mode.py`.

# Arguments
- `training`: `true`, `false`, `:auto`, or a [`Settled`](@ref) mode.
- `xs`: the layer's input and parameters.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.resolve_training(:auto, [1.0, 2.0])
false
```
"""
resolve_training(training, xs...) = choose_mode(training, is_differentiating(xs...))

"""
    settle_training(training, xs...) -> Settled

Find the mode of a container: like [`resolve_training`](@ref), in the form in which a container
hands it down to its layers.
"""
settle_training(training, xs...) = Settled(resolve_training(training, xs...))

choose_mode(training::Settled, detected) = training.training

function choose_mode(training::Bool, detected)
    training == detected || warn_of_mode(training)
    return training
end

# A log message holds a `try`, which systems that derive code refuse.
function warn_of_mode(training)
    if training
        @warn "PyBridge: a layer was told training=true where no derivative is being taken. It " *
              "trains. With training=:auto it would not." maxlog = 1
    else
        @warn "PyBridge: a layer was told training=false where a derivative is being taken. It " *
              "does not train. With training=:auto it would." maxlog = 1
    end
    return nothing
end
ChainRulesCore.@non_differentiable warn_of_mode(::Any)

function choose_mode(training, detected)
    training === :auto && return detected
    throw(ArgumentError(
        "PyBridge: expected training to be true, false or :auto, got $(repr(training))."))
end

# Inside a gradient of a system that works by rules every value counts as differentiated.
function ChainRulesCore.rrule(::typeof(resolve_training), training, xs...)
    chosen = choose_mode(training, !isempty(xs))
    return chosen, _ -> (NoTangent(), NoTangent(), map(_ -> NoTangent(), xs)...)
end
function ChainRulesCore.rrule(::typeof(settle_training), training, xs...)
    chosen = Settled(choose_mode(training, !isempty(xs)))
    return chosen, _ -> (NoTangent(), NoTangent(), map(_ -> NoTangent(), xs)...)
end
