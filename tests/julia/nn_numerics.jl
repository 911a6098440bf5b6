# The numbers of cases that users met, masks, number types, errors.

const UNIT = ((scale=[1.0], bias=[0.0]), (mean=[0.0], var=[1.0]))
const FOUR = [1.0 2.0 3.0 4.0]
const UNIT2 = (params=(scale=ones(2), bias=zeros(2)), state=(mean=zeros(2), var=ones(2)))

@testset "nn: batchnorm of [1, 2, 3, 4]" begin
    y, state = PyBridge.batchnorm(UNIT..., FOUR; training=true)
    @test isapprox(y, [-1.3416354 -0.4472118 0.4472118 1.3416354]; rtol=1e-7)
    @test state.mean ≈ [0.25] && isapprox(state.var, [1.0666667]; rtol=1e-7)
    y, again = PyBridge.batchnorm(UNIT[1], state, FOUR; training=false)
    @test isapprox(y, [0.726181 1.694423 2.662664 3.630906]; rtol=1e-6)
    @test again == state

    y, _ = PyBridge.batchnorm(UNIT..., [0.0 1e-3 2e-3]; training=true)
    @test isapprox(y, [-0.3061862 0 0.3061862]; rtol=1e-6)

    y, _ = PyBridge.batchnorm(map(x -> Float32.(x), UNIT[1]), map(x -> Float32.(x), UNIT[2]),
        Float32[10001 10002 10003 10004]; training=true)
    @test maximum(abs, y - [-1.3416 -0.4472 0.4472 1.3416]) < 1e-3

    @testset "$system: gradient" for system in by_turns(SYSTEMS)
        params, state = UNIT
        f(x) = sum([1.0 0 0 0] .* PyBridge.batchnorm(params, state, x)[1])
        _, (gradient,) = value_and_gradient(system, f, FOUR)
        @test isapprox(gradient, [0.268330 -0.357768 -0.089443 0.178882]; atol=1e-6)
    end

    @testset "$system: plain statistics, updated once" for system in by_turns(SYSTEMS)
        params, state = UNIT
        function f(x)
            y, new = PyBridge.batchnorm(params, state, x; training=true)
            return sum(abs2, [1.0 2 3 4] .* y), new
        end
        (_, new), _ = PyBridge.value_aux_and_gradient(
            PyBridge.BACKENDS[system], f, (FOUR,), Val((1,)))
        @test new isa @NamedTuple{mean::Vector{Float64}, var::Vector{Float64}}
        @test new.mean == [0.25] && new.var ≈ [16 / 15]
    end
end

@testset "nn: constant input has a finite Jacobian" begin
    params, state = UNIT
    for (f, x) in ((x -> PyBridge.batchnorm(params, state, x; training=true)[1], fill(3.0, 1, 4)),
        (x -> PyBridge.instancenorm((;), (;), x)[1], fill(3.0, 4, 1, 1)),
        (x -> PyBridge.groupnorm((;), (;), x; groups=1)[1], fill(3.0, 4, 1)),
        (x -> PyBridge.layernorm((;), (;), x; size=(4,))[1], fill(3.0, 4)))

        @test all(iszero, f(x))
        for system in by_turns(SYSTEMS)
            _, J = PyBridge.jacobian(PyBridge.BACKENDS[system], f, (x,), Val((1,)))
            @test all(isfinite, J) && any(!iszero, J)
        end
    end
end

@testset "nn: second derivatives, forward over reverse and forward" begin
    w = noise((2, 2, 3), 4)
    affine = (scale=[1.5, 0.5], bias=[0.1, 0.2])
    running = (mean=[0.1, 0.2], var=[1.0, 2.0])
    along = (scale=[1.5 0.5; 1.0 2.0], bias=[0.1 0.2; 0.3 0.4])
    for (f, params) in (
        (((x, p),) -> PyBridge.batchnorm(p, running, x; training=true)[1]) => affine,
        (((x, p),) -> PyBridge.batchnorm(p, running, x; training=false)[1]) => affine,
        (((x, p),) -> PyBridge.groupnorm(p, (;), x; groups=1)[1]) => affine,
        (((x, p),) -> PyBridge.layernorm(p, (;), x; size=(2, 2))[1]) => along)

        x = noise((2, 2, 3), 2)
        loss(x, p) = sum(w .* sin.(f((x, p))))
        forward, mixed = map((:forwarddiff, :zygote)) do system
            PyBridge.hessian(PyBridge.BACKENDS[system], loss, (x, params), Val((1, 2)))
        end
        @test forward ≈ mixed
    end
end

# Zygote needs minutes to compile its own pullbacks, so the long run has them.
@testset "nn: second derivatives, reverse over reverse" begin
    w = noise((2, 2, 3), 4)
    along = (scale=[1.5 0.5; 1.0 2.0], bias=[0.1 0.2; 0.3 0.4])
    state = (mean=[0.1, 0.2], var=[1.0, 2.0])
    function loss(x)
        params = (scale=x[1, :, 1], bias=x[2, :, 2])
        y, _ = PyBridge.batchnorm(params, state, x)
        y, _ = PyBridge.layernorm(along, (;), y; size=(2, 2))
        return sum(w .* sin.(PyBridge.dropout((0x00000000, 0x0000002a), y, 0.3)))
    end
    x = noise((2, 2, 3), 2)
    LONG && @test Zygote.hessian_reverse(loss, x) ≈ Zygote.hessian(loss, x)

    others = (x -> PyBridge.batchnorm((;), state, x; training=false)[1],
        x -> PyBridge.instancenorm((;), (;), x; training=true)[1],
        x -> PyBridge.groupnorm((;), (;), x; groups=1)[1],
        x -> PyBridge.apply(PyBridge.LayerNorm((2, 2), tanh), along, (;), x)[1],
        x -> PyBridge.alphadropout((0x00000000, 0x0000002a), x, 0.3))
    for f in (LONG ? others : ())
        g(x) = sum(w .* sin.(f(x)))
        @test Zygote.hessian_reverse(g, x) ≈ Zygote.hessian(g, x)
    end

    # What stands inside a third one is an error and not a derivative that is left out.
    @test_throws ArgumentError PyBridge.ChainRulesCore.rrule(
        PyBridge.pulled_again, PyBridge.rescaled, (x, x, (1,)), x, (x, x, nothing))
end

@testset "nn: masks" begin
    x = noise((3, 2, 4), 5)
    mask = reshape([1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1] .== 1, 3, 1, 4)
    hole = ifelse.(mask, x, NaN)
    affine = (scale=[1.5, 0.5], bias=[0.1, 0.2])
    running = (mean=[0.1, 0.2], var=[1.0, 2.0])
    layers = (
        "batchnorm" => (p, x) -> PyBridge.batchnorm(p, running, x; training=true, mask)[1],
        "batchnorm, test" => (p, x) -> PyBridge.batchnorm(p, running, x; training=false, mask)[1],
        "instancenorm" => (p, x) -> PyBridge.instancenorm(p, (;), x; mask)[1],
        "groupnorm" => (p, x) -> PyBridge.groupnorm(p, (;), x; groups=1, mask)[1],
        "layernorm" => (p, x) -> PyBridge.layernorm((;), (;), x; size=(3, 2), mask)[1])

    y, state = PyBridge.batchnorm(affine, running, hole; training=true, mask)
    for c in 1:2
        values = x[:, c, :][mask[:, 1, :]]
        mean = sum(values) / 9
        var = sum(abs2, values .- mean) / 9
        expected = (x[:, c, :] .- mean) .* (affine.scale[c] / sqrt(var + 1e-5)) .+ affine.bias[c]
        @test y[:, c, :] ≈ ifelse.(mask[:, 1, :], expected, 0)
        @test state.mean[c] ≈ 0.9 * running.mean[c] + 0.1 * mean
        @test state.var[c] ≈ 0.9 * running.var[c] + 0.1 * var * 9 / 8
    end

    w = noise(size(x), 3)
    @testset "$system: $name" for (system, (name, f)) in combined(SYSTEMS, layers)
        @test f(affine, hole) == f(affine, x)
        @test all(iszero, f(affine, hole)[.!(mask .| falses(size(x)))])
        loss(p, x) = sum(abs2, w .* f(p, x))
        _, gradient = value_and_gradient(system, loss, affine, hole)
        @test is_gradient(gradient, loss, affine, x)
        @test all(iszero, gradient[2][.!(mask .| falses(size(x)))])
    end

    # An instance without any value is zero, and does not count in the statistics.
    nothing_left = cat(trues(3, 1, 3), falses(3, 1, 1); dims=3)
    y, state = PyBridge.instancenorm((;), running, x; training=true, mask=nothing_left)
    _, expected = PyBridge.instancenorm((;), running, x[:, :, 1:3]; training=true)
    @test all(iszero, y[:, :, 4]) && close_to(state, expected)
end

@testset "nn: number types" begin
    x = Float16.(noise((3, 2, 4), 5) .+ 100)
    params, state = PyBridge.init((UInt32(0), UInt32(0)), PyBridge.BatchNorm(2); T=Float16)
    @test params.scale isa Vector{Float16} && state.mean isa Vector{Float32}
    y, state = PyBridge.batchnorm(params, state, x; training=true)
    expected, _ = PyBridge.batchnorm(UNIT2.params, UNIT2.state, Float64.(x); training=true)
    @test y isa Array{Float16} && state.var isa Vector{Float32}
    @test maximum(abs, y - expected) < 2e-3
    gradient = only(Zygote.gradient(x -> sum(abs2, PyBridge.batchnorm(
        params, state, x; training=true)[1] .* Float16.(noise((3, 2, 4), 1))), x))
    @test gradient isa Array{Float16} && all(isfinite, gradient)

    weight = (weight=ones(Float32, 1, 2),)
    @test PyBridge.apply(PyBridge.Dense(2 => 1; bias=false), weight, (;), [1.0, 2.0])[1] == Float32[3]
    @test PyBridge.apply(PyBridge.Dense(2 => 1; bias=false), weight, (;), [1, 2])[1] isa Vector{Float32}
    gradient = only(Zygote.gradient(x -> sum(PyBridge.apply(
        PyBridge.Dense(2 => 1; bias=false), weight, (;), x)[1]), [1.0, 2.0]))
    @test gradient isa Vector{Float64}
end

@testset "nn: Flux.LayerNorm squares eps" begin
    x = [1.0, 1.01]
    documented = (x .- 1.005) ./ sqrt(0.005^2 + 1e-2)
    ours, _ = PyBridge.layernorm((;), (;), x; size=(2,), eps=1e-2)
    flux = Flux.LayerNorm(2; affine=false, eps=1e-2)(x)
    @test ours ≈ documented
    # An unexpected pass means that Flux is repaired, and from_flux has to follow.
    @test !(flux ≈ documented) && flux ≈ (x .- 1.005) ./ sqrt(0.005^2 + 1e-4)
end

"Value and gradient of `sum(w .* maxpool(x))`, window by window."
function pooled_by_hand(layer, x, w)
    space = ndims(x) - 2
    before = length(layer.pad) == space ? layer.pad : layer.pad[1:2:end]
    y, gradient = zero(w), zero(x)
    for window in CartesianIndices(w)
        places = [i for i in CartesianIndices(x) if all(1:ndims(x)) do d
            d > space && return i[d] == window[d]
            0 < i[d] + before[d] - (window[d] - 1) * layer.stride[d] <= layer.window[d]
        end]
        y[window], winner = findmax(x[places])
        gradient[places[winner]] += w[window]
    end
    return sum(w .* y), gradient
end

pooled_sum(layer, w) = x -> sum(w .* PyBridge.apply(layer, (;), (;), x)[1])

@testset "nn: maxpool gives the gradient to the largest value" begin
    pool = PyBridge.MaxPool((2,))
    close = reshape(Float32[1, 1.0001, 2, 1.9998, -3, -2.9997], 6, 1, 1)
    exact = [0, 1, 1, 0, 0, 1]
    @testset "$system" for system in by_turns(SYSTEMS)
        value, (gradient,) = value_and_gradient(system, pooled_sum(pool, 1), close)
        @test value ≈ 1.0001f0 + 2 - 2.9997f0
        @test vec(gradient) == exact && eltype(gradient) == Float32
    end
    # An unexpected pass means that NNlib is repaired, and that `maxima` can go.
    flux = vec(only(Zygote.gradient(x -> sum(Flux.MaxPool((2,))(x)), close)))
    @test flux != exact && flux == [1, 0, 1, 0, 1, 0]

    # More values than ForwardDiff takes at once.
    tied, all_of_it = ones(16, 1, 1), PyBridge.MaxPool((16,))
    flux = ForwardDiff.gradient(x -> sum(Flux.MaxPool((16,))(x)), tied)
    @test flux != (1:16 .== 1) && sum(flux) > 1
    special = reshape([NaN, 3, -Inf, -Inf, Inf, 1, NaN, NaN, -0.0, 0.0], 10, 1, 1)
    @testset "$system: ties and special values" for system in by_turns(SYSTEMS)
        @test vec(value_and_gradient(system, pooled_sum(all_of_it, 1), tied)[2][1]) == (1:16 .== 1)
        # Plain `sum`: of w .* y with an Inf Tracker's derivative is NaN.
        f(x) = sum(PyBridge.apply(pool, (;), (;), x)[1])
        @test vec(value_and_gradient(system, f, special)[2][1]) == [0, 1, 0, 0, 1, 0, 0, 0, 1, 0]
    end

    for system in (:forwarddiff, :zygote), x in (tied, noise((16, 1, 1), 3)),
        layer in (pool, all_of_it)

        loss(x) = sum(sin.(PyBridge.apply(layer, (;), (;), x)[1]))
        _, winners = pooled_by_hand(layer, x, ones(16 ÷ only(layer.window), 1, 1))
        H = reshape(PyBridge.hessian(PyBridge.BACKENDS[system], loss, (x,), Val((1,))), 16, 16)
        @test H ≈ [i == j ? -winners[i] * sin(x[i]) : 0.0 for i in 1:16, j in 1:16]
    end
end

@testset "nn: maxpool window by window" begin
    windows = (
        ((9, 2, 3), (3,), (2,), (1, 2)), ((7, 1, 2), (2,), (3,), (1,)), ((8, 2, 1), (4,), (1,), 0),
        ((6, 7, 2, 2), (3, 2), (1, 2), (2, 1, 0, 1)), ((5, 4, 1, 2), (2, 3), (2, 1), (1, 2)),
        ((5, 4, 3, 2, 1), (2, 3, 2), (1, 2, 1), (1, 0, 2, 1, 0, 1)),
        ((4, 5, 4, 1, 2), (3, 2, 2), (2, 2, 1), 1))
    for (system, (size, window, stride, pad)) in combined(SYSTEMS, windows), ties in (false, true)
        layer = PyBridge.MaxPool(window; stride, pad)
        x = Float32.(noise(size, length(window)))
        # No -0.0, which `findmax` takes for less than 0.0.
        ties && (x = round.(2 .* x) ./ 2 .+ 0)
        # Eighths, which add up without rounding.
        w = Float32.(round.(8 .* noise(Base.size(PyBridge.apply(layer, (;), (;), x)[1]), 5)) ./ 8)
        expected, slope = pooled_by_hand(layer, x, w)
        @testset "$system: $size, $window, ties $ties" begin
            value, (gradient,) = value_and_gradient(system, pooled_sum(layer, w), x)
            @test value ≈ expected && gradient == slope
            @test eltype(gradient) == Float32
        end
    end
end

@testset "nn: embedding" begin
    layer = PyBridge.Embedding(3 => 2)
    params = (weight=[1.0 2 3; 4 5 6],)
    ids = [3 1; 1 1]
    y, _ = PyBridge.apply(layer, params, (;), ids)
    @test y == Flux.Embedding(params.weight)(ids)
    @test PyBridge.apply(layer, params, (;), 2)[1] == [2, 5]
    hot = [false true; false false; true false]
    @test PyBridge.apply(layer, params, (;), hot)[1] == [3 1; 6 4]
    w = noise(size(y), 2)
    for system in by_turns(SYSTEMS)
        f(params) = sum(w .* PyBridge.apply(layer, params, (;), ids)[1])
        @test is_gradient(value_and_gradient(system, f, params)[2], f, params)
    end
    @test_throws BoundsError PyBridge.apply(layer, params, (;), [0])
    @test_throws BoundsError PyBridge.apply(layer, params, (;), [4])
    @test_throws ArgumentError PyBridge.apply(layer, params, (;), [1.0])
end

@testset "nn: errors" begin
    params, state = UNIT[1], (mean=[0.5], var=[2.0])
    @test_throws ArgumentError PyBridge.batchnorm(UNIT[1], state, [1.0;;]; training=true)
    @test state == (mean=[0.5], var=[2.0])
    @test PyBridge.batchnorm(UNIT[1], state, [1.0;;]; training=false)[2] == state
    for system in SYSTEMS
        @test_throws Exception value_and_gradient(
            system, x -> sum(PyBridge.batchnorm(params, state, x)[1]), [1.0;;])
    end
    # A mask that leaves one value is no error: the running statistics stay.
    y, kept = PyBridge.batchnorm(UNIT..., FOUR; training=true, mask=[true false false false])
    @test kept == UNIT[2] && iszero(y)
    @test_throws DimensionMismatch PyBridge.batchnorm(UNIT..., FOUR; mask=trues(1, 3))
    @test_throws ArgumentError PyBridge.batchnorm(UNIT..., FOUR; mask=[1 1 1 1])
    key = (UInt32(0), UInt32(0))
    unfit = ((PyBridge.Dense(2 => 1), (3, 1)), (PyBridge.Conv((2,), 2 => 1), (4, 3, 1)),
        (PyBridge.Conv((2,), 2 => 1), (4, 4, 2, 1)), (PyBridge.ConvTranspose((2,), 2 => 1), (4, 2)),
        (PyBridge.MaxPool((2,)), (4, 2)), (PyBridge.BatchNorm(2), (3, 4)), (PyBridge.BatchNorm(2), (2,)),
        (PyBridge.InstanceNorm(2), (2, 3)), (PyBridge.GroupNorm(2, 1), (3, 3)),
        (PyBridge.LayerNorm(2, 2), (2, 3)))
    for (layer, size) in unfit
        @test_throws DimensionMismatch PyBridge.apply(
            layer, PyBridge.init(key, layer; T=Float64)..., ones(size); training=false)
    end
    for make in (PyBridge.Dense, PyBridge.Embedding, PyBridge.GRU, PyBridge.LSTMCell)
        @test_throws MethodError make(2 => 1.5)
    end
    @test_throws MethodError PyBridge.Conv((2,), 2 => 1.5)
    @test_throws ArgumentError PyBridge.Conv((2,), 3 => 2; groups=2)
    @test_throws ArgumentError PyBridge.Conv((2, 2), 3 => 2; pad=(1, 2, 3))
    @test_throws ArgumentError PyBridge.Conv((2, 2), 3 => 2; stride=(1, 2, 3))
    @test_throws ArgumentError PyBridge.GroupNorm(3, 2)
    @test_throws ArgumentError PyBridge.Parallel(+)
    @test_throws "SkipConnection: expected a function as connection, got 3" PyBridge.SkipConnection(
        DENSE, 3)
    @test_throws ArgumentError PyBridge.Parallel(2.0, DENSE)
    @test_throws ArgumentError PyBridge.PairwiseFusion([1.0], DENSE)
    @test_throws ArgumentError PyBridge.init(key, PyBridge.WeightNorm(DENSE, :scale))
    @test_throws ArgumentError PyBridge.init(key, PyBridge.WeightNorm(DENSE, :bias))
    @test_throws ArgumentError PyBridge.apply(PyBridge.Chain(DENSE), (), (), ones(3))
    @test_throws ArgumentError PyBridge.apply(
        PyBridge.Parallel(+, sin, cos), ((;), (;)), ((;), (;)), (1.0, 2.0, 3.0))
    @test_throws ArgumentError PyBridge.apply(PyBridge.Parallel(+, sin), ((;),), ((;),), ())
    @test_throws DimensionMismatch PyBridge.init(
        key, PyBridge.Dense(2 => 1; init=(key, T, dims) -> zeros(T, 1)))
end

@testset "nn: options that make no layer" begin
    P = PyBridge
    refused = (
        "Dense" => (() -> P.Dense(0 => 2), () -> P.Dense(2 => -1)),
        "Conv" => (() -> P.Conv((0,), 1 => 1), () -> P.Conv((), 1 => 1), () -> P.Conv((2,), 1 => 0),
            () -> P.Conv((2,), 2 => 2; groups=0), () -> P.DepthwiseConv((2,), 0 => 0)),
        "ConvTranspose" => (() -> P.ConvTranspose((-1,), 1 => 1), () -> P.ConvTranspose((2,), 0 => 1),
            () -> P.ConvTranspose((2, 2), 1 => 1; stride=(3, 2), outpad=2)),
        "stride" => (() -> P.Conv((2,), 1 => 1; stride=0), () -> P.CrossCor((2,), 1 => 1; dilation=0),
            () -> P.ConvTranspose((2,), 1 => 1; outpad=-1), () -> P.MeanPool((2,); stride=-1)),
        "pad" => (() -> P.Conv((2,), 1 => 1; pad=-1), () -> P.MeanPool((2,); pad=(0, -1)),
            () -> P.MaxPool((2,); pad=1.0)),
        "MaxPool" => (() -> P.MaxPool((0,)), () -> P.MaxPool(()), () -> P.MaxPool((2, 3); pad=2)),
        "MeanPool" => (() -> P.MeanPool((2, -2)),),
        "AdaptiveMaxPool" => (() -> P.AdaptiveMaxPool((0,)), () -> P.AdaptiveMaxPool(())),
        "AdaptiveMeanPool" => (() -> P.AdaptiveMeanPool((2, -1)),),
        "Embedding" => (() -> P.Embedding(0 => 2),), "EmbeddingBag" => (() -> P.EmbeddingBag(2 => 0),),
        "BatchNorm" => (() -> P.BatchNorm(0), () -> P.BatchNorm(2; eps=-1e-5),
            () -> P.BatchNorm(2; eps=NaN), () -> P.BatchNorm(2; momentum=1.1)),
        "InstanceNorm" => (() -> P.InstanceNorm(-1), () -> P.InstanceNorm(2; momentum=-0.1)),
        "GroupNorm" => (() -> P.GroupNorm(0, 1), () -> P.GroupNorm(4, 0), () -> P.GroupNorm(4, -2),
            () -> P.GroupNorm(4, 2; eps=-1.0)),
        "LayerNorm" => (() -> P.LayerNorm(2, 0), () -> P.LayerNorm(2; eps=NaN)),
        "Scale" => (() -> P.Scale(0), () -> P.Scale(2, -1, tanh)),
        "Bilinear" => (() -> P.Bilinear(0 => 2), () -> P.Bilinear((2, 1) => 0)),
        "RNNCell" => (() -> P.RNN(0 => 2),), "LSTMCell" => (() -> P.LSTM(2 => 0),),
        "GRUCell" => (() -> P.GRU(2 => -1),), "GRUv3Cell" => (() -> P.GRUv3Cell(-2 => 1),),
        "MultiHeadAttention" => (() -> P.MultiHeadAttention(4; nheads=0),
            () -> P.MultiHeadAttention(4; nheads=-2)))
    for (name, makes) in refused, make in makes
        @test_throws ArgumentError make()
        @test_throws "$name" make()
    end
    for layer in (P.MaxPool((2, 3); pad=(1, 2)), P.MeanPool((2,); pad=2),
        P.ConvTranspose((2, 2), 1 => 1; stride=(3, 2), outpad=(2, 1)), P.BatchNorm(1; eps=0, momentum=1),
        P.Conv((2,), 1 => 1; pad=(0, 1)), P.ConvTranspose((2,), 1 => 1; stride=3, pad=P.SamePad()))

        @test layer isa P.Layer
    end
    # Numbers of other types.
    three, tiny = Int32(3), 1.0f-5
    @test P.Dense(three => 2) == P.Dense(3 => 2)
    @test P.Bilinear((three, 3) => 2) == P.Bilinear(3 => 2)
    @test P.LSTMCell(three => 2) == P.LSTMCell(3 => 2)
    @test P.Conv((2,), three => three; groups=three) == P.Conv((2,), 3 => 3; groups=3)
    @test P.MultiHeadAttention(three; nheads=three) == P.MultiHeadAttention(3; nheads=3)
    @test P.InstanceNorm(three; eps=tiny, momentum=1) == P.InstanceNorm(3; eps=Float64(tiny), momentum=1.0)
    @test P.GroupNorm(three, three; eps=0) == P.GroupNorm(3, 3; eps=0.0)
    @test P.LayerNorm(three; eps=tiny) == P.LayerNorm(3; eps=Float64(tiny))
end

@testset "nn: inputs that leave nothing" begin
    key = (UInt32(0), UInt32(0))
    run(layer, x) = first(PyBridge.apply(layer, PyBridge.init(key, layer; T=Float64)..., x))
    convs = (PyBridge.Conv((3,), 2 => 1; dilation=2), PyBridge.DepthwiseConv((5,), 2 => 2),
        PyBridge.CrossCor((5,), 2 => 1), PyBridge.ConvTranspose((2,), 2 => 1; pad=3))
    pools = (PyBridge.MaxPool((6,); pad=0), PyBridge.MeanPool((8,); pad=1), PyBridge.AdaptiveMaxPool((5,)))
    all_of_space = (PyBridge.GlobalMeanPool(), PyBridge.GlobalMaxPool())
    refused = [[(layer, (n, 2, 1)) for layer in (convs..., pools...) for n in (0, 4)];
        [(layer, (0, 2, 1)) for layer in (all_of_space..., PyBridge.MaxPool((2,); pad=1))];
        [(layer, (4, 2)) for layer in (convs..., pools..., all_of_space...)];
        [(layer, (9, 2, 0)) for layer in convs];
        (PyBridge.MultiHeadAttention(2; nheads=1), (2, 0, 3))]
    for (layer, size) in refused
        name = string(nameof(typeof(layer)))
        @test_throws "$name: expected" run(layer, ones(size))
    end
    # What is as large as its window has one element of output.
    @test size(run(convs[1], ones(5, 2, 1))) == size(run(pools[2], ones(6, 1, 1))) == (1, 1, 1)
    @test size(run(convs[4], ones(6, 2, 1))) == (1, 1, 1)
    @test size(run(pools[1], ones(6, 2, 0))) == (1, 2, 0)
    for layer in (DENSE, PyBridge.Maxout(DENSE, DENSE), PyBridge.WeightNorm(DENSE))
        @test size(run(layer, ones(3, 0, 5))) == (4, 0, 5)
    end
end

@testset "nn: initialisers" begin
    key = (UInt32(0), UInt32(42))
    dims = (3, 3, 20, 40)
    fans = Flux.nfan(dims...)
    @test PyBridge.nfan(dims) == fans
    @test PyBridge.nfan((4, 3)) == Flux.nfan(4, 3) && PyBridge.nfan((4,)) == Flux.nfan(4)
    spread(x) = sqrt(sum(abs2, x) / length(x))
    # The deviation of uniform numbers is their bound divided by sqrt(3).
    for (init, deviation) in (
        (PyBridge.glorot_uniform, sqrt(2 / sum(fans))), (PyBridge.glorot_normal, sqrt(2 / sum(fans))),
        (PyBridge.kaiming_uniform, sqrt(2 / fans[1])), (PyBridge.kaiming_normal, sqrt(2 / fans[1])),
        (PyBridge.lecun_normal, sqrt(1 / fans[1])), (PyBridge.normal_init, 1.0))

        weight = init(key, Float32, dims)
        @test weight isa Array{Float32,4} && size(weight) == dims
        @test isapprox(spread(weight), deviation; rtol=0.05)
        @test isapprox(sum(weight) / length(weight), 0; atol=0.05 * deviation)
        @test init(key, Float16, dims) == Float16.(weight)
    end
    bound = sqrt(6 / sum(fans))
    @test maximum(abs, PyBridge.glorot_uniform(key, Float64, dims)) <= bound
    @test PyBridge.glorot_uniform(gain=2)(key, Float64, dims) ≈
          2 * PyBridge.glorot_uniform(key, Float64, dims)
    cut = PyBridge.truncated_normal(key, Float64, (100, 100); mean=1, std=2, lo=0, hi=2)
    @test extrema(cut) == clamp.(extrema(cut), 0, 2) && isapprox(sum(cut) / 1e4, 1; atol=0.05)
    @test_throws ArgumentError PyBridge.truncated_normal(key, Float32, (2,); lo=1, hi=0)
    for (size, product) in (((5, 3), Q -> Q' * Q), ((3, 5), Q -> Q * Q'))
        @test product(PyBridge.orthogonal(key, Float64, size; gain=2)) ≈ 4 * [i == j for i in 1:3, j in 1:3]
    end
    @test_throws ArgumentError PyBridge.orthogonal(key, Float64, (3,))
    for (size, settings) in (((3, 5), (;)), ((3,), (;)), ((3, 3, 2), (; gain=2)), ((3, 3, 1, 1), (; shift=1)))
        @test PyBridge.identity_init(key, Float32, size; settings...) ==
              Flux.identity_init(size...; settings...)
    end
    @test PyBridge.zeros_init(key, Float32, (2,)) == Float32[0, 0]
    @test PyBridge.ones_init(key, Float32, (2,)) == Float32[1, 1]
end

@testset "nn: an overflow of the squares is no zero" begin
    key = (UInt32(0), UInt32(0))
    layers = (PyBridge.BatchNorm(2), PyBridge.BatchNorm(2; track_stats=false),
        PyBridge.InstanceNorm(2), PyBridge.GroupNorm(2, 1), PyBridge.LayerNorm(4, 2))
    @testset "$system: $layer" for (system, layer) in combined(SYSTEMS, layers)
        params, state = PyBridge.init(key, layer)
        x = Float32.(noise((4, 2, 3), 1))
        w = Float32.(noise((4, 2, 3), 2))
        f(x) = sum(w .* PyBridge.apply(layer, params, state, x; training=true)[1])
        for size in (1f30, 1f20)
            y, (gradient,) = value_and_gradient(system, f, size .* x)
            @test isnan(y) && all(isnan, gradient)
        end
        y, (gradient,) = value_and_gradient(system, f, x)
        @test isfinite(y) && all(isfinite, gradient) && any(!iszero, gradient)
    end
    layer = PyBridge.BatchNorm(1)
    params, state = PyBridge.init(key, layer)
    _, state = PyBridge.apply(layer, params, state, Float32[1f30 2f30]; training=true)
    @test all(isinf, state.var)
    @test all(isnan, PyBridge.apply(layer, params, state, Float32[1 2]; training=false)[1])
end

@testset "nn: masks through containers" begin
    x = noise((3, 2, 4), 5)
    mask = reshape([1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1] .== 1, 3, 1, 4)
    hole = ifelse.(mask, x, NaN)
    norm, group = PyBridge.BatchNorm(2), PyBridge.GroupNorm(2, 2)
    w = noise(size(x), 3)
    containers = (
        PyBridge.Chain(norm, y -> 2 .* y, group),
        PyBridge.SkipConnection(PyBridge.Chain(identity, norm), (y, x) -> y .+ 1),
        PyBridge.Parallel((a, b) -> a .- 2 .* b, norm, PyBridge.Chain(group)))
    by_hand(layer::PyBridge.Layer, p, s, x) =
        PyBridge.apply(layer, p, s, x; training=true, mask)[1]
    by_hand(layer::PyBridge.Chain, p, s, x) =
        foldl((y, i) -> by_hand(layer.layers[i], p[i], s[i], y), eachindex(layer.layers); init=x)
    by_hand(layer::PyBridge.SkipConnection, p, s, x) =
        layer.connection(by_hand(layer.layer, p, s, x), x)
    by_hand(layer::PyBridge.Parallel, p, s, x) = layer.connection(
        map((layer, p, s) -> by_hand(layer, p, s, x), layer.layers, p, s)...)
    by_hand(f, p, s, x) = f(x)
    @testset "$system: $(nameof(typeof(layer)))" for (system, layer) in
        combined(SYSTEMS, containers)

        params, state = randomised(layer, Float64)
        f(p, x) = sum(abs2, w .* PyBridge.apply(layer, p, state, x; training=true, mask)[1])
        y, gradient = value_and_gradient(system, f, params, hole)
        @test y ≈ sum(abs2, w .* by_hand(layer, params, state, x))
        @test is_gradient(gradient, f, params, x)
        @test all(iszero, gradient[2][.!(mask .| falses(size(x)))])
    end

    # A mask for each of the inputs, and a container without a layer that takes one.
    pair = PyBridge.Parallel(tuple, norm, norm)
    params, state = randomised(pair, Float64)
    (y, z), _ = PyBridge.apply(
        pair, params, state, (hole, x); training=false, mask=(mask, trues(1, 1, 1)))
    alone(i; mask=nothing) =
        PyBridge.apply(norm, params[i], state[i], x; training=false, mask)[1]
    @test y == alone(1; mask) && z == alone(2)
    @test_throws ArgumentError PyBridge.apply(
        PyBridge.Chain(sin), ((;),), ((;),), x; mask)
end
