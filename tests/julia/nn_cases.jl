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
]

# One of each kind: the quick run compares them with Flux, the long one has them under every system.
const KINDS = ("Dense", "Dense of a vector", "Dense with more axes",
    "Dense without bias, gelu_tanh", "Conv 2-D", "Conv grouped", "ConvTranspose 2-D",
    "MaxPool (6, 2, 2)", "MeanPool (6, 2, 2)", "GlobalMeanPool", "BatchNorm (3, 5) identity",
    "BatchNorm (4, 2, 3) tanh", "BatchNorm affine=false track_stats=false",
    "InstanceNorm (4, 2, 3) affine=true track_stats=true", "GroupNorm (3, 4, 2)",
    "LayerNorm (3, 2) of (3, 2, 4)", "LayerNorm (5,) of (5, 3)", "WeightNorm dims=-1", "Chain",
    "SkipConnection", "Parallel")
