# Layers of one's own, activations that hold a parameter, derivatives by some arguments alone.

"A layer of one's own without state."
struct Powers <: PyBridge.StatelessLayer end
PyBridge.output(::Powers, params, x) = params.rate .* x .* x

@testset "nn: a layer of one's own without state" begin
    layer = PyBridge.Chain(PyBridge.Dense(2 => 2; bias=false), Powers())
    params = ((; weight=noise((2, 2), 1)), (; rate=[0.5, 2.0]))
    state, x = ((;), (;)), noise((2, 3), 2)
    f(p, x) = sum(abs2, PyBridge.apply(layer, p, state, x; key=(0x00000000, 0x00000001))[1])
    @test PyBridge.apply(Powers(), params[2], :kept, x) == (params[2].rate .* x .^ 2, :kept)
    for system in SYSTEMS
        @test is_gradient(value_and_gradient(system, f, params, x)[2], f, params, x)
    end
end

const WITH_ACTIVATIONS = (
    Dense=(activation -> PyBridge.Dense(2 => 3, activation), (2, 3)),
    Conv=(activation -> PyBridge.Conv((2,), 2 => 3, activation), (4, 2, 3)),
    ConvTranspose=(activation -> PyBridge.ConvTranspose((2,), 2 => 3, activation), (4, 2, 3)),
    CrossCor=(activation -> PyBridge.CrossCor((2,), 2 => 3, activation; bias=false), (4, 2, 3)),
    Bilinear=(activation -> PyBridge.Bilinear((2, 2) => 3, activation), (2, 3)),
    Scale=(activation -> PyBridge.Scale(2, activation), (2, 3)),
    LayerNorm=(activation -> PyBridge.LayerNorm(2, activation), (2, 3)),
    RNN=(activation -> PyBridge.RNN(2 => 3, activation), (2, 3, 2)),
)

@testset "nn: derivatives by what an activation holds, $name" for (name, (make, size)) in
    pairs(WITH_ACTIVATIONS)

    params, state = randomised(make(identity), Float64)
    x = noise(size, 3)
    f(rate, params) = sum(abs2, PyBridge.apply(make(z -> tanh(rate * z)), params, state, x)[1])
    # Tracker and Yota have errors of their own for functions that are made within one.
    for system in (LONG ? (:zygote, :forwarddiff, :mooncake, :reversediff) : (:zygote, :forwarddiff))
        @test is_gradient(value_and_gradient(system, f, 0.7, params)[2], f, 0.7, params)
    end
end

@testset "nn: Flux has no derivative by what an activation holds" begin
    f(rate) = sum(Flux.Dense([1.0;;], [0.5], z -> tanh(rate * z))([2.0]))
    @test Zygote.gradient(f, 0.7) == (nothing,)
    @test_throws MethodError ForwardDiff.derivative(f, 0.7)
end

@testset "nn: $(nameof(typeof(layer))) by parameters, by its input, by both, $system" for layer in
    (PyBridge.Conv((2,), 2 => 3, tanh), PyBridge.ConvTranspose((2,), 2 => 3, tanh),
        PyBridge.CrossCor((2,), 2 => 3, tanh)),
    system in (LONG || layer isa PyBridge.ConvTranspose ? SYSTEMS : ())

    params, state = randomised(layer, Float64)
    x = noise((4, 2, 3), 3)
    f(params, x) = sum(abs2, PyBridge.apply(layer, params, state, x)[1])
    for (g, args) in ((params -> f(params, x), (params,)), (x -> f(params, x), (x,)), (f, (params, x)))
        @test is_gradient(value_and_gradient(system, g, args...)[2], g, args...)
    end
end

"A layer of one's own that is made from all of its fields."
struct Shifted{L} <: PyBridge.Layer
    layer::L
    by::Float64
end

"Another, whose constructor is no good for showing it."
struct Squared <: PyBridge.Layer
    root::Float64
    power::Int
end
Squared(x) = x > 1 ? error("expected a square below 1") : Squared(sqrt(x), 2)

@testset "nn: a layer is shown as the call that makes it" begin
    dense = PyBridge.Dense(2 => 3)
    for (text, layer) in (
        "Dense(2 => 3)" => dense,
        "Dense(2 => 3, tanh, bias=false)" => PyBridge.Dense(2 => 3, tanh; bias=false),
        "Conv((3,), 2 => 4, stride=(2,), groups=2)" =>
            PyBridge.Conv((3,), 2 => 4; stride=2, groups=2),
        "CrossCor((3,), 2 => 4, tanh)" => PyBridge.CrossCor((3,), 2 => 4, tanh),
        "MaxPool((2, 2))" => PyBridge.MaxPool((2, 2)),
        "GlobalMeanPool()" => PyBridge.GlobalMeanPool(),
        "GroupNorm(4, 2, tanh)" => PyBridge.GroupNorm(4, 2, tanh),
        "LayerNorm(3, 2, eps=0.001)" => PyBridge.LayerNorm(3, 2; eps=1e-3),
        "WeightNorm(Dense(2 => 3), dims=Colon())" => PyBridge.WeightNorm(dense; dims=:),
        "EmbeddingBag(5 => 2, maximum)" => PyBridge.EmbeddingBag(5 => 2, maximum),
        "Upsample(:nearest, scale=2)" => PyBridge.Upsample(2),
        "Recurrence(GRUCell(2 => 3), return_state=true)" => PyBridge.GRU(2 => 3; return_state=true),
        "MultiHeadAttention(4, nheads=2)" => PyBridge.MultiHeadAttention(4; nheads=2),
        "Chain(Dense(2 => 3), tanh)" => PyBridge.Chain(dense, tanh),
        "SkipConnection(Dense(2 => 3), +)" => PyBridge.SkipConnection(dense, +),
        "Parallel(+, Dense(2 => 3), Dropout(0.5))" =>
            PyBridge.Parallel(+, dense, PyBridge.Dropout(0.5)))

        @test repr(layer) == text
    end
    @test repr(Shifted(dense, 0.5)) == "Shifted(Dense(2 => 3), 0.5)"
    @test repr(Squared(4.0, 2)) == "Squared(4.0, 2)"
end

@testset "nn: a layer can be read from how it is shown" begin
    # Those of functions without a name cannot.
    for layer in filter(layer -> !occursin("#", repr(layer)), first.(last.(LAYERS)))
        call = replace(repr(layer), r"\b(?=[A-Z]\w+\()" => "PyBridge.")
        @test Core.eval(Main, Meta.parse(call)) === layer
    end
end
