# Time and memory of the Julia twins beside Flux's own layers, on the same weights:
#
#     julia --project=ENV --threads=1 benchmarks/layers.jl
#
# where ENV is an environment with Flux and what Project.toml lists.
#
# Each figure is the least of many in one run, a layer and Flux's in turn. Both passes are those of
# training; the gradient is Zygote's, of a sum over the output, with respect to parameters and
# input. Ratios below one are in the twin's favour.

insert!(LOAD_PATH, 2, joinpath(dirname(@__DIR__), "julia_src"))

using Flux: Flux
using NNlib: relu
using Printf: @printf
using PyBridge: PyBridge, apply
using Zygote: Zygote

"Seconds and bytes of each call, the least of many runs of a millisecond or more, taken in turn."
function costs(calls...)
    repeats = map(calls) do f
        f()
        max(1, ceil(Int, 1e-3 / max(@elapsed(f()), 1e-9)))
    end
    run(f, n) = @elapsed(foreach(_ -> f(), 1:n)) / n
    rounds = [map(run, calls, repeats) for _ in 1:25]
    seconds = reduce((x, y) -> min.(x, y), rounds)
    return map((s, f) -> (s, @allocated(f())), seconds, calls)
end

function compare(name, twin, flux, x)
    params, state = PyBridge.init((0x00000000, 0x00000001), twin)
    key = (0x00000000, 0x00000002)
    settled = PyBridge.Settled(true)
    Flux.trainmode!(flux)
    # By its name alone: Zygote looks `PyBridge.apply` up in each call, which takes longer than a
    # small layer.
    ours(params, x) = first(apply(twin, params, state, x; key, training=settled))
    pairs = (
        "forward" => (() -> ours(params, x), () -> flux(x)),
        "gradient" => (() -> Zygote.gradient((p, x) -> sum(ours(p, x)), params, x),
            () -> Zygote.gradient((m, x) -> sum(m(x)), flux, x)),
    )
    for (what, (mine, theirs)) in pairs
        (seconds, bytes), (other_seconds, other_bytes) = costs(mine, theirs)
        @printf("| %s | %s | %.1f us | %.2f | %.2f |\n", name, what, 1e6seconds,
            seconds / other_seconds, bytes / max(other_bytes, 1))
    end
end

images, rows = rand(Float32, 28, 28, 16, 32), rand(Float32, 256, 128)

println("Julia $VERSION, Flux $(pkgversion(Flux)), $(Threads.nthreads()) thread(s)\n")
println("| layer | | time | over Flux's time | over Flux's bytes |\n| --- | --- | --- | --- | --- |")
compare("Dense 256 => 256", PyBridge.Dense(256 => 256, relu), Flux.Dense(256 => 256, relu), rows)
compare("Conv 3x3 16 => 16", PyBridge.Conv((3, 3), 16 => 16, relu; pad=1),
    Flux.Conv((3, 3), 16 => 16, relu; pad=1), images)
compare("ConvTranspose 3x3", PyBridge.ConvTranspose((3, 3), 16 => 8; stride=2),
    Flux.ConvTranspose((3, 3), 16 => 8; stride=2), images)
compare("MaxPool 2x2", PyBridge.MaxPool((2, 2)), Flux.MaxPool((2, 2)), images)
compare("MeanPool 2x2", PyBridge.MeanPool((2, 2)), Flux.MeanPool((2, 2)), images)
compare("BatchNorm, images", PyBridge.BatchNorm(16, relu), Flux.BatchNorm(16, relu), images)
compare("BatchNorm, rows", PyBridge.BatchNorm(256), Flux.BatchNorm(256), rows)
compare("InstanceNorm", PyBridge.InstanceNorm(16), Flux.InstanceNorm(16), images)
compare("GroupNorm", PyBridge.GroupNorm(16, 4), Flux.GroupNorm(16, 4), images)
compare("LayerNorm", PyBridge.LayerNorm(256), Flux.LayerNorm(256), rows)
compare("WeightNorm", PyBridge.WeightNorm(PyBridge.Dense(256 => 256)),
    Flux.WeightNorm(Flux.Dense(256 => 256)), rows)
compare("Embedding", PyBridge.Embedding(1000 => 64), Flux.Embedding(1000 => 64),
    rand(1:1000, 32, 16))
compare("Dropout", PyBridge.Dropout(0.3), Flux.Dropout(0.3), images)
compare("AlphaDropout", PyBridge.AlphaDropout(0.3), Flux.AlphaDropout(0.3), images)
compare("MLP", PyBridge.Chain(PyBridge.Dense(256 => 256), PyBridge.BatchNorm(256, relu),
        PyBridge.Dropout(0.3), PyBridge.Dense(256 => 10)),
    Flux.Chain(Flux.Dense(256 => 256), Flux.BatchNorm(256, relu), Flux.Dropout(0.3),
        Flux.Dense(256 => 10)), rows)
compare("Dense 8 => 8, batch 16", PyBridge.Dense(8 => 8, relu), Flux.Dense(8 => 8, relu),
    rand(Float32, 8, 16))
compare("Conv 2x2 1 => 1, four numbers", PyBridge.Conv((2, 2), 1 => 1), Flux.Conv((2, 2), 1 => 1),
    rand(Float32, 2, 2, 1, 1))
compare("MeanPool, four numbers", PyBridge.MeanPool((2, 2)), Flux.MeanPool((2, 2)),
    rand(Float32, 2, 2, 1, 1))
compare("Embedding 10 => 4, three indices", PyBridge.Embedding(10 => 4), Flux.Embedding(10 => 4),
    rand(1:10, 3))
