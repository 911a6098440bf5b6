# Recurrent layers, attention and bags: what Flux's tests of the table do not have. Masks, hidden
# states, keys, cells of one's own, errors.

const RECURRENT = (PyBridge.RNN, PyBridge.LSTM, PyBridge.GRU, PyBridge.GRUv3)

"The outputs and the last hidden state as one vector."
flattened((y, hidden)::Tuple) = vcat(reshape(y, :), hidden_vector(hidden))
hidden_vector(h) = reshape(h, :)
hidden_vector((h, c)::Tuple) = vcat(reshape(h, :), reshape(c, :))

@testset "nn: masks and hidden states of $(nameof(typeof(make(3 => 2).cell)))" for make in RECURRENT
    layer = make(3 => 2; return_state=true)
    params, state = randomised(layer, Float64)
    x = noise((3, 4, 2), 5)
    mask = [true true; true true; true false; true false]
    hole = ifelse.(reshape(mask, 1, 4, 2), x, NaN)
    h = noise((2, 2), 6)
    hidden = layer.cell isa PyBridge.LSTMCell ? (h, noise((2, 2), 7)) : h
    (y, last), _ = PyBridge.apply(layer, params, state, hole; hidden, mask)
    # Each sequence alone, without its padding.
    for (i, n) in enumerate((4, 2))
        own = hidden isa Tuple ? map(a -> a[:, i], hidden) : hidden[:, i]
        (alone, ends), _ = PyBridge.apply(layer, params, state, x[:, 1:n, i]; hidden=own)
        @test y[:, 1:n, i] ≈ alone
        @test iszero(y[:, n+1:end, i])
        @test hidden_vector(last isa Tuple ? map(a -> a[:, i], last) : last[:, i]) ≈
              hidden_vector(ends)
    end
    # In two parts, with the hidden state handed over, and step by step with the cell.
    (first_half, between), _ = PyBridge.apply(layer, params, state, x[:, 1:2, :]; hidden)
    (second_half, ends), _ = PyBridge.apply(layer, params, state, x[:, 3:4, :]; hidden=between)
    (whole, last), _ = PyBridge.apply(layer, params, state, x; hidden)
    @test hcat(first_half, second_half) ≈ whole && hidden_vector(ends) ≈ hidden_vector(last)
    (step, _), _ = PyBridge.apply(layer.cell, params, state, x[:, 1, :]; hidden)
    @test step ≈ whole[:, 1, :]

    w = noise(size(flattened((whole, last))), 3)
    f(p, x, h) = sum(
        w .* flattened(PyBridge.apply(layer, p, state, x; hidden=h, mask)[1]) .^ 2)
    @testset "$system" for system in by_turns(LONG ? SYSTEMS : (:zygote, :forwarddiff))
        _, gradient = value_and_gradient(system, f, params, hole, hidden)
        @test is_gradient(gradient, f, params, x, hidden)
        @test all(iszero, gradient[2][:, 3:4, 2])
    end
    # Forward over reverse, through the rule of all steps.
    slope(x) = Zygote.gradient(x -> f(params, x, hidden), x)[1]
    direction = noise(size(x), 9)
    want = (slope(x .+ 1e-6 .* direction) .- slope(x .- 1e-6 .* direction)) ./ 2e-6
    @test isapprox(ForwardDiff.derivative(t -> slope(x .+ t .* direction), 0.0), want; rtol=1e-6)
end

"A cell of one's own: a running sum, which forgets."
struct Fading <: PyBridge.Cell
    size::Int
end
PyBridge.init(key, cell::Fading; T=Float32) = ((; rate=fill(T(0.5), cell.size)), (;))
PyBridge.initial_hidden(cell::Fading, params, batch...) = zeros(cell.size, batch...)
function PyBridge.step(cell::Fading, params, x, hidden)
    new = params.rate .* hidden .+ x
    return new, new
end

@testset "nn: a cell of one's own" begin
    layer = PyBridge.Recurrence(Fading(2); return_state=true)
    params, state = (rate=[0.5, 0.25],), (;)
    x = noise((2, 3, 2), 1)
    (y, hidden), _ = PyBridge.apply(layer, params, state, x)
    @test y[:, 2, :] ≈ params.rate .* x[:, 1, :] .+ x[:, 2, :] && hidden == y[:, 3, :]
    (y, hidden), _ = PyBridge.apply(layer, params, state, x; mask=[true true; true false; false true])
    @test iszero(y[:, 3, 1]) && hidden[:, 1] ≈ params.rate .* x[:, 1, 1] .+ x[:, 2, 1]
    f(p, x) = sum(abs2, PyBridge.apply(layer, p, state, x)[1][1])
    for system in (:zygote, :forwarddiff)
        @test is_gradient(value_and_gradient(system, f, params, x)[2], f, params, x)
    end
end

"A cell of one's own that has no derivative at 0."
struct OfLogarithms <: PyBridge.Cell end
PyBridge.initial_hidden(::OfLogarithms, params, batch...) = zeros(1, batch...)
function PyBridge.step(::OfLogarithms, params, x, hidden)
    new = hidden ./ 2 .+ params.w .* log.(x)
    return new, new
end

@testset "nn: padding is nothing that a cell sees, $hole" for hole in (0.0, 1.0, NaN)
    layer, mask = PyBridge.Recurrence(OfLogarithms()), reshape([false, true, true, false], 4, 1)
    x = reshape([hole, 2.0, 3.0, hole], 1, 4, 1)
    f(p, x) = sum(PyBridge.apply(layer, p, (;), x; mask)[1])
    for system in (:zygote, :forwarddiff)
        _, (p, dx) = value_and_gradient(system, f, (w=[1.0],), x)
        @test p.w ≈ [1.5log(2) + log(3)]
        @test dx[:] ≈ [0, 1.5 / 2, 1 / 3, 0]
    end
end

@testset "nn: attention" begin
    layer = PyBridge.MultiHeadAttention(4; nheads=2)
    params, state = randomised(layer, Float64)
    x = noise((4, 3, 2), 5)
    mask = PyBridge.make_causal_mask(x)
    @test mask == NNlib.make_causal_mask(x)
    bias = noise((3, 1, 2), 8)
    (y, scores), _ = PyBridge.apply(layer, params, state, x; mask, bias)
    theirs = flux_attention(layer)(params, state)
    for (ours, want) in zip((y, scores), theirs(x, x, x, bias; mask))
        @test ours ≈ want
    end
    (y, _), _ = PyBridge.apply(layer, params, state, (x, noise((4, 5, 2), 2)); mask=trues(5, 3))
    @test y ≈ theirs(x, noise((4, 5, 2), 2))[1]
    f(p, x, bias) = sum(abs2, vcat(map(
        a -> reshape(a, :), PyBridge.apply(layer, p, state, x; mask, bias)[1])...))
    @testset "$system" for system in (LONG ? SYSTEMS : (:zygote, :forwarddiff))
        _, gradient = value_and_gradient(system, f, params, x, bias)
        @test is_gradient(gradient, f, params, x, bias)
    end
    nobody = falses(3, 3)
    (y, scores), _ = PyBridge.apply(layer, params, state, x; mask=nobody)
    @test iszero(y) && iszero(scores)
    @test all(iszero, Zygote.gradient(
        x -> sum(PyBridge.apply(layer, params, state, x; mask=nobody)[1][1]), x)[1])

    key = (UInt32(3), UInt32(4))
    dropping = PyBridge.MultiHeadAttention(4; nheads=2, dropout_prob=0.5)
    (_, plain), _ = PyBridge.apply(layer, params, state, x)
    (_, dropped), _ = PyBridge.apply(
        dropping, params, state, x; key, training=PyBridge.Settled(true))
    @test dropped ≈ PyBridge.dropout(PyBridge.fold_in(key, 4), plain, 0.5; training=PyBridge.Settled(true))
end

@testset "nn: bags" begin
    weight = noise((2, 5), 1)
    x = [1 5; 2 2; 5 1]
    bags = [[5], [1, 2, 3], [3, 3]]
    for (reduction, theirs) in ((PyBridge.mean_along, Flux.EmbeddingBag(weight)),
        (sum, Flux.EmbeddingBag(weight, sum)), (maximum, Flux.EmbeddingBag(weight, maximum)))

        layer = PyBridge.EmbeddingBag(5 => 2, reduction)
        apply(p, x) = PyBridge.apply(layer, p, (;), x)[1]
        @test apply((; weight), x) ≈ theirs(x)
        @test apply((; weight), ([1, 2, 3, 3, 5], [1, 4])) ≈ theirs([1, 2, 3, 3, 5], [1, 4])
        hot = x[1:1, :] .== 1:5
        @test apply((; weight), reshape(hot, 5, 1, 2)) ≈ theirs(x[1:1, :])
        @test apply((; weight), bags) ≈ theirs(bags)
        @test apply((; weight), reshape(bags, 3, 1)) ≈ theirs(reshape(bags, 3, 1))
        @test apply((; weight), [bag' .== 1:5 for bag in bags]) ≈ theirs(bags)
    end
    forms = (x, bags, ([5, 1, 2, 3, 3, 3], [1, 2, 5]))
    cases = [(reduction, given) for reduction in (PyBridge.mean_along, sum) for given in forms]
    for (system, (reduction, given)) in combined(SYSTEMS, cases)
        layer = PyBridge.EmbeddingBag(5 => 2, reduction)
        f(p) = sum(abs2, PyBridge.apply(layer, p, (;), given)[1])
        @test is_gradient(value_and_gradient(system, f, (; weight))[2], f, (; weight))
    end
end

@testset "nn: ties and NaN of Maxout" begin
    layer = PyBridge.Maxout(x -> x, x -> 2 .* x)
    trees = (((;), (;)), ((;), (;)))
    f(x) = sum(PyBridge.apply(layer, trees..., x)[1])
    for system in SYSTEMS
        @test value_and_gradient(system, f, [1.0, -1.0, 0.0])[2][1] == [2, 1, 2]
    end
    both = PyBridge.Maxout(x -> x, x -> zero(x))
    @test isnan(only(PyBridge.apply(both, trees..., [NaN])[1]))
end

@testset "nn: errors of the layers for sequences" begin
    key = (UInt32(0), UInt32(0))
    gru, lstm = PyBridge.GRU(3 => 2), PyBridge.LSTM(3 => 2)
    run(layer, x; options...) =
        PyBridge.apply(layer, PyBridge.init(key, layer; T=Float64)..., x; options...)
    x = ones(3, 5, 4)
    @test_throws DimensionMismatch run(gru, x[:, 1:0, :])
    @test_throws DimensionMismatch run(gru, x[1:2, :, :])
    @test_throws DimensionMismatch run(gru, ones(3))
    @test_throws DimensionMismatch run(gru, x; hidden=ones(2, 3))
    @test_throws ArgumentError run(gru, x; hidden=(ones(2, 4), ones(2, 4)))
    @test_throws ArgumentError run(lstm, x; hidden=ones(2, 4))
    @test_throws DimensionMismatch run(lstm, x; hidden=(ones(2, 4), ones(1, 4)))
    @test_throws DimensionMismatch run(gru, x; mask=trues(4, 5))
    @test_throws ArgumentError run(gru, x; mask=ones(5, 4))
    attention = PyBridge.MultiHeadAttention(3; nheads=3)
    @test_throws DimensionMismatch run(attention, x[1:2, :, :])
    @test_throws DimensionMismatch run(attention, (x, ones(3, 2, 4), x))
    @test_throws DimensionMismatch run(attention, x; mask=trues(4, 5))
    @test_throws ArgumentError run(attention, x; mask=ones(5, 5))
    @test_throws ArgumentError PyBridge.MultiHeadAttention(3; nheads=2)
    @test_throws ArgumentError PyBridge.Maxout()
    @test_throws ArgumentError PyBridge.PairwiseFusion(+)
    @test_throws ArgumentError PyBridge.Upsample()
    @test_throws ArgumentError PyBridge.Upsample(:cubic; scale=2)
    @test_throws ArgumentError PyBridge.Upsample(; scale=1.5)
    @test_throws ArgumentError PyBridge.PixelShuffle(0)
    for (layer, size) in ((PyBridge.Upsample(:bilinear; scale=2), (3, 1, 1)),
        (PyBridge.Upsample(; size=(5,)), (3, 1, 1)), (PyBridge.PixelShuffle(2), (2, 2, 6, 1)),
        (PyBridge.AdaptiveMaxPool((4,)), (3, 1, 1)), (PyBridge.AdaptiveMeanPool((2, 2)), (3, 1, 1)),
        (PyBridge.Scale(2, 3), (3, 3)), (PyBridge.Bilinear((2, 3) => 1), (2, 1)),
        (PyBridge.CrossCor((2,), 2 => 1), (4, 3, 1)))

        @test_throws DimensionMismatch run(layer, ones(size))
    end
    bag = PyBridge.EmbeddingBag(3 => 2)
    for wrong in (2, zeros(Int, 0, 2), ([1, 2], [2]), ([1, 2], [1, 1]), ([1, 2], [1, 3]),
        Vector{Int}[], [[1], Int[]], [[1], trues(3, 1)], [trues(3)], [ones(Int, 2, 2)])

        @test_throws ArgumentError run(bag, wrong)
    end
    @test_throws BoundsError run(bag, [4])
end
