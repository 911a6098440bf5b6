# The table of layers that the tests of nn go through: name => (layer, size of the input, the
# same layer of Flux with the given parameters and state, names of its fields).

"Random weights for a layer, none of them at its initial value."
function randomised(layer, T, seed=1)
    params, state = PyBridge.init((UInt32(0), UInt32(seed)), layer; T)
    numbers = Ref(seed)
    draw(x) = (numbers[] += 1; T.(noise(size(x), numbers[])))
    positive(x) = (numbers[] += 1; T.(1 .+ abs.(noise(size(x), numbers[]))))
    # Variances and magnitudes are positive.
    return named(draw, positive, params), named(draw, positive, state)
end
named(draw, positive, tree::Tuple) = map(child -> named(draw, positive, child), tree)
function named(draw, positive, tree::NamedTuple{names}) where {names}
    children = map(names, values(tree)) do name, child
        child isa AbstractArray || return named(draw, positive, child)
        return name in (:var, :g) ? positive(child) : draw(child)
    end
    return NamedTuple{names}(children)
end

"Numbers between -1 and 1, without a generator that changes with Julia's version."
noise(size, seed) = reshape([sin(12.9898 * i + 78.233 * seed + 0.1 * i^2) for i in 1:prod(size)], size)

flux_dense(layer) = (p, s) -> Flux.Dense(p.weight, get(p, :bias, false), layer.activation)

function flux_conv(layer; pad=layer.pad)
    settings = (; layer.stride, pad, layer.dilation, layer.groups)
    return (p, s) -> Flux.Conv(p.weight, get(p, :bias, false), layer.activation; settings...)
end

function flux_transpose(layer; pad=layer.pad)
    settings = (; layer.stride, pad, layer.outpad, layer.dilation, layer.groups)
    return (p, s) -> Flux.ConvTranspose(
        p.weight, get(p, :bias, false), layer.activation; settings...)
end

function flux_norm(type, layer)
    return (p, s) -> type(layer.activation, get(p, :bias, nothing), get(p, :scale, nothing),
        copied(get(s, :mean, nothing)), copied(get(s, :var, nothing)), layer.eps,
        layer.momentum, layer.affine, layer.track_stats, nothing, layer.channels)
end
copied(x) = x === nothing ? nothing : copy(x)

function flux_group(layer)
    return (p, s) -> Flux.GroupNorm(layer.groups, layer.activation, get(p, :bias, nothing),
        get(p, :scale, nothing), nothing, nothing, layer.eps, 0.1, layer.affine, false, nothing,
        layer.channels)
end

# Flux 0.16 squares eps, see nn_numerics.jl.
function flux_layer(layer)
    function build(p, s)
        diag = isempty(p) ? Base.Fix1(broadcast, layer.activation) :
               Flux.Scale(p.scale, p.bias, layer.activation)
        return Flux.LayerNorm(layer.activation, diag, sqrt(layer.eps), layer.size, layer.affine)
    end
    return build
end

# Flux's cells, and the layers around them.
flux_cell(cell::PyBridge.RNNCell, p) =
    Flux.RNNCell(cell.activation, p.weight_in, p.weight_hidden, get(p, :bias, false))
flux_cell(::PyBridge.LSTMCell, p) =
    Flux.LSTMCell(p.weight_in, p.weight_hidden, get(p, :bias, false))
flux_cell(::PyBridge.GRUCell, p) = Flux.GRUCell(p.weight_in, p.weight_hidden, get(p, :bias, false))
flux_cell(::PyBridge.GRUv3Cell, p) =
    Flux.GRUv3Cell(p.weight_in, p.weight_hidden, get(p, :bias, false), p.weight_candidate)
flux_recurrence(layer) = (p, s) -> Flux.Recurrence(flux_cell(layer.cell, p))

function flux_attention(layer)
    dense(p) = Flux.Dense(p.weight, get(p, :bias, false))
    return (p, s) -> Flux.MultiHeadAttention(layer.nheads, dense(p.q_proj), dense(p.k_proj),
        dense(p.v_proj), Flux.Dropout(layer.dropout.p), dense(p.out_proj))
end

# Of a layer that returns a tuple. Yota has no rule for `first`.
output(y) = y[1]

flux_bilinear(layer) = (p, s) -> Flux.Bilinear(p.weight, get(p, :bias, false), layer.activation)

plain_case(layer, size, build) = (; layer, size, build)

const DENSE = PyBridge.Dense(3 => 4, NNlib.relu)
const CONV = PyBridge.Conv((3, 2), 2 => 4, tanh; stride=(2, 1), pad=1)
const NORMS = (PyBridge.BatchNorm(3), PyBridge.BatchNorm(4, NNlib.relu))

const LAYERS = [
    "Dense" => (DENSE, (3, 5), flux_dense(DENSE)),
    "Dense of a vector" => (DENSE, (3,), flux_dense(DENSE)),
    "Dense with more axes" => (DENSE, (3, 2, 2), flux_dense(DENSE)),
    ["Dense without bias, $σ" => let layer = PyBridge.Dense(3 => 2, σ; bias=false)
        (layer, (3, 5), flux_dense(layer))
    end for σ in (identity, tanh, NNlib.gelu)]...,
    ["Conv $name" => (layer, size, flux_conv(layer)) for (name, size, layer) in (
        ("1-D", (7, 2, 2), PyBridge.Conv((3,), 2 => 3, NNlib.sigmoid; pad=1)),
        ("2-D", (6, 5, 2, 2), CONV),
        ("3-D", (4, 4, 3, 1, 2), PyBridge.Conv((2, 2, 2), 1 => 2; bias=false)),
        ("dilated", (7, 7, 1, 2), PyBridge.Conv((3, 2), 1 => 2; dilation=(2, 3))),
        ("grouped", (4, 4, 4, 2), PyBridge.Conv((2, 2), 4 => 6; groups=2)),
        ("padded on one side", (5, 4, 1, 2), PyBridge.Conv((2, 2), 1 => 2; pad=(1, 0, 2, 1))),
    )]...,
    "Conv SamePad" => let layer = PyBridge.Conv((4, 3), 1 => 2; stride=2, pad=PyBridge.SamePad())
        (layer, (6, 5, 1, 2), flux_conv(layer; pad=Flux.SamePad()))
    end,
    ["ConvTranspose $name" => (layer, size, flux_transpose(layer)) for (name, size, layer) in (
        ("1-D", (4, 2, 2), PyBridge.ConvTranspose((3,), 2 => 3, tanh; stride=2, outpad=1)),
        ("2-D", (3, 3, 4, 2), PyBridge.ConvTranspose((3, 2), 4 => 2; pad=(1, 0), groups=2)),
        ("3-D", (2, 2, 2, 1, 2), PyBridge.ConvTranspose((2, 2, 2), 1 => 2; dilation=2)),
    )]...,
    "ConvTranspose SamePad" => let pad = PyBridge.SamePad(),
        layer = PyBridge.ConvTranspose((4, 3), 1 => 2; stride=2, pad)

        (layer, (3, 4, 1, 2), flux_transpose(layer; pad=Flux.SamePad()))
    end,
    ["MaxPool $size" => (PyBridge.MaxPool(window; pad, stride), size,
        (p, s) -> Flux.MaxPool(window; pad, stride))
     for (size, window, pad, stride) in (((6, 2, 2), (2,), 0, 2), ((5, 6, 2, 2), (2, 3), 1, 2),
        ((4, 4, 3, 1, 2), (2, 2, 2), 0, 1))]...,
    ["MeanPool $size" => (PyBridge.MeanPool(window; pad, stride), size,
        (p, s) -> Flux.MeanPool(window; pad, stride))
     for (size, window, pad, stride) in (((6, 2, 2), (2,), 0, 2), ((5, 6, 2, 2), (2, 3), 1, 2),
        ((4, 4, 3, 1, 2), (2, 2, 2), 0, 1))]...,
    "MaxPool SamePad" => (PyBridge.MaxPool((3, 3); pad=PyBridge.SamePad()), (5, 5, 1, 2),
        (p, s) -> Flux.MaxPool((3, 3); pad=Flux.SamePad())),
    "GlobalMeanPool" => (PyBridge.GlobalMeanPool(), (3, 4, 2, 2), (p, s) -> Flux.GlobalMeanPool()),
    ["BatchNorm $size $(layer.activation)" => (layer, size, flux_norm(Flux.BatchNorm, layer))
     for (size, layer) in (
        ((3, 5), PyBridge.BatchNorm(3)), ((4, 2, 3), PyBridge.BatchNorm(2, tanh)),
        ((3, 4, 2, 3), PyBridge.BatchNorm(2, NNlib.relu)),
        ((2, 3, 2, 2, 2), PyBridge.BatchNorm(2; momentum=0.3, eps=1e-3)))]...,
    ["BatchNorm affine=$affine track_stats=$track_stats" =>
        let layer = PyBridge.BatchNorm(2; affine, track_stats)
            (layer, (3, 2, 3), flux_norm(Flux.BatchNorm, layer))
        end for (affine, track_stats) in ((false, true), (true, false), (false, false))]...,
    ["InstanceNorm $size affine=$affine track_stats=$track_stats" =>
        let layer = PyBridge.InstanceNorm(2, NNlib.relu; affine, track_stats)
            (layer, size, flux_norm(Flux.InstanceNorm, layer))
        end for (size, affine, track_stats) in (((4, 2, 3), true, true),
        ((3, 4, 2, 3), false, false), ((2, 3, 2, 2, 2), true, false))]...,
    ["GroupNorm $size" => (layer, size, flux_group(layer)) for (size, layer) in (
        ((4, 3), PyBridge.GroupNorm(4, 2)), ((3, 4, 2), PyBridge.GroupNorm(4, 2, tanh)),
        ((3, 2, 6, 2), PyBridge.GroupNorm(6, 3; affine=false)),
        ((2, 2, 2, 4, 2), PyBridge.GroupNorm(4, 1)))]...,
    ["LayerNorm $(layer.size) of $size" => (layer, size, flux_layer(layer)) for (size, layer) in (
        ((5,), PyBridge.LayerNorm(5)), ((5, 3), PyBridge.LayerNorm(5, tanh)),
        ((3, 2, 4), PyBridge.LayerNorm(3, 2)), ((3, 2, 4), PyBridge.LayerNorm(3; affine=false)))]...,
    ["WeightNorm dims=$dims" => (PyBridge.WeightNorm(DENSE; dims), (3, 5), (p, s) -> Flux.WeightNorm(
        Flux.Dense(p.layer.weight, p.layer.bias, NNlib.relu), p.g, :weight, axes))
     for (dims, axes) in ((-1, 2), (1, 1), (:, 1:2))]...,
    "Chain" => (PyBridge.Chain(CONV, PyBridge.BatchNorm(4), x -> x .+ 1, PyBridge.MeanPool((2, 2))),
        (6, 5, 2, 2), (p, s) -> Flux.Chain(flux_conv(CONV)(p[1], s[1]),
            flux_norm(Flux.BatchNorm, PyBridge.BatchNorm(4))(p[2], s[2]), x -> x .+ 1,
            Flux.MeanPool((2, 2)))),
    "SkipConnection" => (PyBridge.SkipConnection(NORMS[1], +), (3, 5), (p, s) ->
        Flux.SkipConnection(flux_norm(Flux.BatchNorm, NORMS[1])(p, s), +)),
    "Parallel" => (PyBridge.Parallel((a, b) -> a .* b, DENSE, PyBridge.Chain(DENSE, NORMS[2])),
        (3, 5), (p, s) -> Flux.Parallel((a, b) -> a .* b, flux_dense(DENSE)(p[1], s[1]), Flux.Chain(
            flux_dense(DENSE)(p[2][1], s[2][1]), flux_norm(Flux.BatchNorm, NORMS[2])(p[2][2], s[2][2])))),
    # Not a BatchNorm: of a mutable layer that is called twice, Zygote's gradient is too large.
    "Parallel of one layer" => (PyBridge.Chain(x -> (x, x .^ 2),
        PyBridge.Parallel((a, b) -> a .* b, DENSE)), (3, 5), (p, s) -> Flux.Chain(
            x -> (x, x .^ 2), Flux.Parallel((a, b) -> a .* b, flux_dense(DENSE)(p[2][1], s[2][1])))),
    ["$name of $size" => (layer, size, flux_recurrence(layer)) for (name, size, layer) in (
        ("RNN", (3, 4, 2), PyBridge.RNN(3 => 2)),
        ("RNN with relu", (3, 4, 2), PyBridge.RNN(3 => 2, NNlib.relu; bias=false)),
        ("RNN of a lambda", (3, 4, 2), PyBridge.RNN(3 => 2, x -> x / (1 + x^2))),
        ("LSTM", (3, 4, 2), PyBridge.LSTM(3 => 2)), ("LSTM", (3, 5), PyBridge.LSTM(3 => 2; bias=false)),
        ("GRU", (3, 4, 2), PyBridge.GRU(3 => 2)), ("GRU", (3, 1), PyBridge.GRU(3 => 2; bias=false)),
        ("GRUv3", (3, 4, 2), PyBridge.GRUv3(3 => 2)), ("GRUv3", (3, 4), PyBridge.GRUv3(3 => 2)))]...,
    ["$(nameof(typeof(cell))) of $size" => (PyBridge.Chain(cell, output), size,
        (p, s) -> Flux.Chain(flux_cell(cell, p[1]), output)) for (cell, size) in (
        (PyBridge.RNNCell(3 => 2), (3, 4)), (PyBridge.LSTMCell(3 => 2), (3, 4)),
        (PyBridge.GRUCell(3 => 2), (3,)), (PyBridge.GRUv3Cell(3 => 2; bias=false), (3, 4)))]...,
    ["MultiHeadAttention $name" => (PyBridge.Chain(layer, output), size,
        (p, s) -> Flux.Chain(flux_attention(layer)(p[1], s[1]), output)) for (name, size, layer) in (
        ("of one size", (4, 3, 2), PyBridge.MultiHeadAttention(4; nheads=2)),
        ("of several", (5, 3, 2), PyBridge.MultiHeadAttention(5 => (4, 6) => 3; nheads=2, bias=true)))]...,
    "MultiHeadAttention scores" => let layer = PyBridge.MultiHeadAttention(4; nheads=2)
        both(y) = vcat(reshape(y[1], :), reshape(y[2], :))
        (PyBridge.Chain(layer, both), (4, 3, 2),
            (p, s) -> Flux.Chain(flux_attention(layer)(p[1], s[1]), both))
    end,
    ["Bilinear of $size" => (layer, size, flux_bilinear(layer)) for (layer, size) in (
        (PyBridge.Bilinear(3 => 2, tanh), (3, 4)), (PyBridge.Bilinear(3 => 2; bias=false), (3,)))]...,
    ["Scale $(layer.size)" => (layer, size, (p, s) -> Flux.Scale(
        p.scale, get(p, :bias, false), layer.activation)) for (layer, size) in (
        (PyBridge.Scale(3, tanh), (3, 4)), (PyBridge.Scale(3, 2; bias=false), (3, 2, 4)))]...,
    "Maxout" => (PyBridge.Maxout(DENSE, PyBridge.Dense(3 => 4), PyBridge.Dense(3 => 4, tanh)), (3, 5),
        (p, s) -> Flux.Maxout(map((p, σ) -> Flux.Dense(p.weight, p.bias, σ), p,
            (NNlib.relu, identity, tanh))...)),
    "PairwiseFusion" => let layer = PyBridge.PairwiseFusion(+, PyBridge.Dense(3 => 3), NORMS[1])
        (PyBridge.Chain(layer, y -> y[1] .* y[2]), (3, 5), (p, s) -> Flux.Chain(
            Flux.PairwiseFusion(+, Flux.Dense(p[1][1].weight, p[1][1].bias),
                flux_norm(Flux.BatchNorm, NORMS[1])(p[1][2], s[1][2])), y -> y[1] .* y[2]))
    end,
    ["Upsample $mode $size" => (PyBridge.Upsample(mode; options...), size,
        (p, s) -> Flux.Upsample(mode; options...)) for (mode, size, options) in (
        (:nearest, (3, 2, 2), (; scale=2)), (:nearest, (3, 2, 2, 1), (; size=(6, 6))),
        (:nearest, (3, 2, 2, 2), (; scale=(3,))), (:nearest, (2, 3, 2, 2), (; size=(4,))),
        (:bilinear, (3, 2, 2, 1), (; scale=(1.5, 2))), (:bilinear, (4, 3, 2, 1), (; size=(2, 7))),
        (:trilinear, (2, 3, 2, 2, 1), (; size=(3, 4, 3))))]...,
    ["PixelShuffle $size" => (PyBridge.PixelShuffle(2), size, (p, s) -> Flux.PixelShuffle(2))
     for size in ((3, 4, 2), (2, 3, 8, 2), (2, 1, 2, 8, 1))]...,
    ["$(nameof(type)) $size" => (getproperty(PyBridge, nameof(type))(wanted), size,
        (p, s) -> type(wanted)) for type in (Flux.AdaptiveMaxPool, Flux.AdaptiveMeanPool)
     for (wanted, size) in (((2,), (5, 2, 2)), ((2, 3), (5, 7, 2, 1)))]...,
    "GlobalMaxPool" => (PyBridge.GlobalMaxPool(), (3, 4, 2, 2), (p, s) -> Flux.GlobalMaxPool()),
    "DepthwiseConv" => let layer = PyBridge.DepthwiseConv((2, 3), 2 => 4, tanh; pad=1)
        (layer, (4, 5, 2, 2), flux_conv(layer))
    end,
    "CrossCor" => let layer = PyBridge.CrossCor((3, 2), 2 => 3, tanh; stride=(2, 1), pad=1)
        (layer, (6, 5, 2, 2), (p, s) -> Flux.CrossCor(
            p.weight, p.bias, tanh; stride=(2, 1), pad=1))
    end,
]

# One of each kind: the quick run compares them with Flux, the long one has them under every system.
const KINDS = ("Dense", "Dense of a vector", "Dense with more axes",
    "Dense without bias, gelu_tanh", "Conv 2-D", "Conv grouped", "ConvTranspose 2-D",
    "MaxPool (6, 2, 2)", "MeanPool (6, 2, 2)", "GlobalMeanPool", "BatchNorm (3, 5) identity",
    "BatchNorm (4, 2, 3) tanh", "BatchNorm affine=false track_stats=false",
    "InstanceNorm (4, 2, 3) affine=true track_stats=true", "GroupNorm (3, 4, 2)",
    "LayerNorm (3, 2) of (3, 2, 4)", "LayerNorm (5,) of (5, 3)", "WeightNorm dims=-1", "Chain",
    "SkipConnection", "Parallel", "Parallel of one layer", "RNN of (3, 4, 2)", "RNN with relu of (3, 4, 2)",
    "RNN of a lambda of (3, 4, 2)", "LSTM of (3, 4, 2)", "GRU of (3, 4, 2)", "GRUv3 of (3, 4, 2)",
    "LSTMCell of (3, 4)", "GRUCell of (3,)", "MultiHeadAttention of several",
    "MultiHeadAttention scores", "Bilinear of (3, 4)", "Scale (3,)", "Maxout", "PairwiseFusion",
    "Upsample nearest (3, 2, 2, 1)", "Upsample bilinear (3, 2, 2, 1)", "PixelShuffle (2, 3, 8, 2)",
    "AdaptiveMaxPool (5, 7, 2, 1)", "AdaptiveMeanPool (5, 7, 2, 1)", "GlobalMaxPool",
    "DepthwiseConv", "CrossCor")
