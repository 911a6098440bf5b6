using PyBridge: Keep, MaskRNG, MaskSource, Node, Parameter, Running, StateArray, Wrapped, rebuild
using Random: rand!

struct Affine{A,B}
    weight::A
    bias::B
end
(layer::Affine)(x) = layer.weight * x .+ layer.bias

@testset "rebuild" begin
    affine(children) = Affine(children...)
    # The second layer has the first one's weight, transposed.
    tied = Wrapped(transpose, transpose, Parameter{1}())
    plan = Node((
            Node((weight=Parameter{1}(), bias=Parameter{2}()), affine),
            Node((weight=tied, bias=StateArray{1}()), affine),
        ), identity)
    state, x = ([0.5, -0.5],), [1.0, 2.0]
    params = ([1.0 2.0; 3.0 4.0; 0.5 -1.0], [1.0, -1.0, 0.5])

    @testset "puts arrays in their places" begin
        first_layer, second_layer = rebuild(plan, params, state, nothing)
        @test first_layer.weight === params[1] && first_layer.bias === params[2]
        @test second_layer.weight == params[1]' && second_layer.bias === state[1]
        @test rebuild(Keep(plan), params, state, nothing) === plan
    end

    function f(params, x)
        layers = rebuild(plan, params, state, nothing)
        return layers[2](layers[1](x))
    end
    @testset "$system adds up what a parameter gets in its places" for system in by_turns(SYSTEMS)
        value, gradient = value_and_gradient(system, (p, x) -> sum(abs2, f(p, x)), params, x)
        @test value ≈ sum(abs2, f(params, x))
        @test is_gradient(gradient, (p, x) -> sum(abs2, f(p, x)), params, x)
    end

    @testset "a parameter without a cotangent" begin
        _, gradient = value_and_gradient(:zygote, p -> sum(f(p, x)), params)
        @test gradient[1][1] != zero(params[1])
        one_layer(p) = sum(rebuild(plan, p, state, nothing)[2](ones(3)))
        @test last(value_and_gradient(:zygote, one_layer, params))[1][2] == zeros(3)
    end
end

@testset "masks of a layer" begin
    key = (0x00000000, 0x0000002a)
    for T in (Float16, Float32, Float64), p in (0.0, 0.3, 1.0)
        rng = MaskRNG(p, key)
        drawn = rand!(rng, Array{T}(undef, 3, 4))
        @test (drawn .> T(p)) == PyBridge.keep_mask(key, p, (3, 4))
        @test (rand!(rng, drawn) .> T(p)) ==
              PyBridge.keep_mask(PyBridge.fold_in(key, 1), p, (3, 4))
    end
    @test all(rand!(MaskRNG(0.0), zeros(2)) .> 0)
    source = rebuild(MaskSource((1, 2), 0.5), (), (), UInt32[0, 42])
    @test source.key == PyBridge.fold_in(PyBridge.fold_in(key, 1), 2)
end

@testset "running statistics are plain numbers" begin
    running = Running(zeros(2))
    ForwardDiff.derivative(t -> (running .= [t, 2t]; t), 3.0)
    @test running.array == [3.0, 6.0]
    running .= 0.5 .* running .+ Tracker.param([1.0, 2.0])
    @test running.array == [2.5, 5.0]
end
