# Every kind of layer under every AD system, in both modes, with respect to input and
# parameters, against differences. The ranks and options are compared with Flux under Zygote.

has_mode(layer) = layer isa Union{PyBridge.BatchNorm,PyBridge.InstanceNorm,PyBridge.Chain,
    PyBridge.SkipConnection,PyBridge.Parallel}

@testset "nn under every system" begin
    cases = Dict(LAYERS)
    for name in KINDS, training in (has_mode(cases[name][1]) ? (true, false) : (true,))
        layer, size, _ = cases[name]
        params, state = randomised(layer, Float64)
        x = noise(size, 7)
        w = noise(Base.size(PyBridge.apply(layer, params, state, x; training)[1]), 3)
        loss(mode, x, params) =
            sum(abs2, w .* PyBridge.apply(layer, params, state, x; training=mode)[1])
        expected = differences((x, params) -> loss(training, x, params), x, params)
        # Within a gradient, :auto is training.
        mode = training ? :auto : false
        @testset "$system: $name, training=$mode" for system in SYSTEMS
            value, gradient = value_and_gradient(
                system, (x, params) -> loss(mode, x, params), x, params)
            @test value ≈ loss(training, x, params)
            @test close_to(gradient, expected)
        end
    end
end
