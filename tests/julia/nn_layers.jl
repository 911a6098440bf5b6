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
