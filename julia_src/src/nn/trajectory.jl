# The steps of recurrent cells along a sequence, with one rule for all of them: what an AD system
# would record is every operation of every step. Hidden states are one matrix here, that of an
# LSTM has h above c.

"""
    steps(cell, params, x, hidden, counts) -> (y, hidden)

Take all steps along the second axis of `x`, of size `(in, time, batch)`. `counts` is `nothing` or
an array of `Bool` of size `(1, time, batch)`, false where a step is padding.
"""
steps(cell::FluxCell, args...) = all_steps(cell, args...)
steps(cell::Cell, args...) = each_step(cell, args...)
# The rule for all steps knows no derivative by what an activation holds.
steps(cell::RNNCell{F}, args...) where {F} =
    Base.issingletontype(F) ? all_steps(cell, args...) : each_step(cell, args...)

function all_steps(cell, params, x, hidden, counts)
    (; weight_in, weight_hidden) = params
    check_features(cell, x)
    inputs = counts === nothing ? x : ruled(blanked, x, counts)
    gates = dense(identity, weight_in, optional_bias(params), as_eltype(weight_in, inputs))
    states = ruled(trajectory, cell, weight_hidden, candidate_of(cell, params), gates,
        stacked(cell, hidden, size(x, 3)), counts)
    out = last(cell.channels)
    y = states[1:out, :, :]
    last_state = states[:, size(states, 2), :]
    return counts === nothing ? y : ruled(blanked, y, counts), unstacked(cell, last_state, out)
end

function each_step(cell, params, x, hidden, counts)
    counts === nothing || (x = ruled(without_padding, x, counts))
    ys = []
    for t in axes(x, 2)
        y, new = step(cell, params, x[:, t, :], hidden)
        if counts !== nothing
            keep = counts[1, t:t, :]
            y = ruled(blanked, y, keep)
            hidden = map_pairs((new, old) -> chosen(keep, new, old), new, hidden)
        else
            hidden = new
        end
        ys = vcat(ys, [y])
    end
    return stack(ys; dims=2), hidden
end

# Other cells have no third weight: what stands for it is not used.
candidate_of(cell, params) = params.weight_hidden
candidate_of(::GRUv3Cell, params) = params.weight_candidate

map_pairs(f, a, b) = f(a, b)
map_pairs(f, a::Tuple, b::Tuple) = map(f, a, b)
chosen(keep, new, old) = ruled(blanked, new, keep) .+ ruled(blanked, old, .!keep)

function check_features(cell, x)
    size(x, 1) == first(cell.channels) && return nothing
    throw(DimensionMismatch("$(title(cell)): expected an input with $(first(cell.channels)) " *
                            "features on its first axis, got $(size(x, 1))."))
end
ChainRulesCore.@non_differentiable check_features(::Any, ::Any)

# One hidden state for each sequence: one for all is repeated.
stacked(cell, h, batch) = repeated_state(h, batch)
stacked(::LSTMCell, (h, c), batch) = vcat(repeated_state(h, batch), repeated_state(c, batch))
repeated_state(h::AbstractMatrix, batch) = h
repeated_state(h, batch) = reshape(h, :, 1) .* fill_ones(h, 1, batch)
fill_ones(h, size...) = fill!(similar(primal(h), size...), 1)
ChainRulesCore.@non_differentiable fill_ones(::Any...)

unstacked(cell, state, out) = state
unstacked(::LSTMCell, state, out) = (state[1:out, :], state[out+1:2out, :])

"Set what does not count to zero, also where it is NaN."
blanked(x, counts) = ifelse.(counts, x, zero(eltype(x)))

"""
Put the first step of each sequence that counts in the place of padding, which may be NaN, or where
a cell of one's own has no derivative. A sequence in which no step counts is zero.
"""
function without_padding(x, counts)
    first_steps = blanked(x, counts .& (cumsum(counts; dims=2) .== 1))
    return ifelse.(counts, x, sum(first_steps; dims=2))
end

# Of either nothing moves that does not count.
function ChainRulesCore.rrule(
    f::Union{typeof(blanked),typeof(without_padding)}, x, counts
)
    return f(x, counts), ȳ -> (NoTangent(), blanked(unthunk(ȳ), counts), NoTangent())
end

"""
    trajectory(cell, weight, candidate, gates, start, counts)

The hidden states after each step, of size `(rows, time, batch)`. `gates` is the input's part of the
gates for all steps; `candidate` is the third weight of a `GRUv3Cell`.
"""
function trajectory(cell, weight, candidate, gates, start, counts)
    T = promote_type(eltype(weight), eltype(candidate), eltype(gates), eltype(start))
    states = similar(gates, T, size(start, 1), size(gates, 2), size(gates, 3))
    state = start
    for t in axes(gates, 2)
        new = advance(cell, weight, candidate, gates[:, t, :], state)
        state = counts === nothing ? new : ifelse.(counts[1, t:t, :], new, state)
        states[:, t, :] = state
    end
    return states
end

function ChainRulesCore.rrule(
    ::typeof(trajectory), cell, weight, candidate, gates, start, counts
)
    states = trajectory(cell, weight, candidate, gates, start, counts)
    function trajectory_pullback(states̄)
        states̄ = unthunk(states̄)
        T = promote_type(eltype(states̄), eltype(states))
        gates̄ = similar(gates, T)
        weight̄, candidatē = zeros_like(T, weight), zeros_like(T, candidate)
        statē = zeros_like(T, start)
        for t in reverse(axes(gates, 2))
            statē = statē .+ states̄[:, t, :]
            keep = counts === nothing ? true : counts[1, t:t, :]
            before = t == 1 ? start : states[:, t-1, :]
            moved, recurrent, changed, beforē = retreat(
                cell, weight, candidate, gates[:, t, :], before, ifelse.(keep, statē, zero(T)))
            gates̄[:, t, :] = moved
            weight̄ .+= recurrent * before_hidden(cell, before)'
            changed === nothing || (candidatē .+= changed)
            statē = ifelse.(keep, beforē, statē)
        end
        third = cell isa GRUv3Cell ? ProjectTo(candidate)(candidatē) : NoTangent()
        return (NoTangent(), NoTangent(), ProjectTo(weight)(weight̄), third,
            ProjectTo(gates)(gates̄), ProjectTo(start)(statē), NoTangent())
    end
    return states, trajectory_pullback
end

zeros_like(T, x) = fill!(similar(x, T), zero(T))
before_hidden(cell, state) = state
before_hidden(::LSTMCell, state) = state[1:end÷2, :]

# --- one step, and its cotangents -------------------------------------------------------------
#
# `retreat` returns those of the gates, of `weight * h`, of the candidate's weight (or nothing) and
# of the state before.

function advance(cell::RNNCell, weight, _, gates, h)
    return NNlib.fast_act(cell.activation, gates).(gates .+ weight * h)
end

function step(cell::RNNCell, params, x, hidden)
    check_features(cell, x)
    product = params.weight_in * as_eltype(params.weight_in, x) .+ params.weight_hidden * hidden
    y = activated(cell.activation, product, optional_bias(params))
    return y, y
end

function retreat(cell::RNNCell, weight, _, gates, h, h̄)
    inner = gates .+ weight * h
    ā = h̄ .* derivatives(NNlib.fast_act(cell.activation, gates), inner)
    return ā, ā, nothing, weight' * ā
end

function parts(gates, count)
    rows = size(gates, 1) ÷ count
    return ntuple(i -> gates[(i-1)*rows+1:i*rows, :], count)
end

function advance(cell::LSTMCell, weight, _, gates, state)
    h, c = parts(state, 2)
    write, forget, value, read = parts(gates .+ weight * h, 4)
    c = @. sigmoid_fast(forget) * c + sigmoid_fast(write) * tanh_fast(value)
    return vcat(sigmoid_fast.(read) .* tanh_fast.(c), c)
end

function retreat(cell::LSTMCell, weight, _, gates, state, statē)
    (h, c), (h̄, c̄) = parts(state, 2), parts(statē, 2)
    i, f, v, o = parts(gates .+ weight * h, 4)
    i, f, o, v = sigmoid_fast.(i), sigmoid_fast.(f), sigmoid_fast.(o), tanh_fast.(v)
    t = @. tanh_fast(f * c + i * v)
    c̄ = @. c̄ + h̄ * o * (1 - t^2)
    ā = vcat(@.(c̄ * v * i * (1 - i)), @.(c̄ * c * f * (1 - f)), @.(c̄ * i * (1 - v^2)),
        @.(h̄ * t * o * (1 - o)))
    return ā, ā, nothing, vcat(weight' * ā, c̄ .* f)
end

function advance(cell::Union{GRUCell,GRUv3Cell}, weight, candidate, gates, h)
    r, z, n, _ = gated(cell, weight, candidate, gates, h)
    return @. (1 - z) * n + z * h
end

"Reset and update gate, the candidate, and what the reset gate multiplies."
function gated(cell, weight, candidate, gates, h)
    r, z, value = parts(gates, 3)
    r̂, ẑ, old = parts(weight * h, 3)
    r, z = sigmoid_fast.(r .+ r̂), sigmoid_fast.(z .+ ẑ)
    cell isa GRUCell && return r, z, tanh_fast.(value .+ r .* old), old
    return r, z, tanh_fast.(value .+ candidate * (r .* h)), h
end

function retreat(cell::Union{GRUCell,GRUv3Cell}, weight, candidate, gates, h, h̄)
    r, z, n, old = gated(cell, weight, candidate, gates, h)
    n̄ = @. h̄ * (1 - z) * (1 - n^2)
    z̄ = @. h̄ * (h - n) * z * (1 - z)
    q = cell isa GRUCell ? n̄ : candidate' * n̄
    r̄ = @. q * old * r * (1 - r)
    third = cell isa GRUCell ? n̄ .* r : zero(n̄)
    recurrent = vcat(r̄, z̄, third)
    beforē = h̄ .* z .+ weight' * recurrent
    cell isa GRUCell && return vcat(r̄, z̄, n̄), recurrent, nothing, beforē
    return vcat(r̄, z̄, n̄), recurrent, n̄ * (r .* h)', beforē .+ q .* r
end

"The derivative of an elementwise function, by its rule or in forward mode."
function derivatives(f, xs)
    ChainRulesCore.rrule(f, one(eltype(xs))) === nothing &&
        return directional(moved -> f.(first(moved)), (xs,), Direction{(1,)}((one.(xs),)))
    return map(x -> unthunk(last(last(ChainRulesCore.rrule(f, x))(one(x)))), xs)
end
