# AD systems by DifferentiationInterface, and what Enzyme is told.

const REACHED = ("di:AutoFiniteDiff()", "di:AutoZygote()", "di:AutoForwardDiff(; chunksize=2)",
    "di:AutoMooncake()")

@testset "DifferentiationInterface" begin
    mlp(p, x) = sum(abs2, tanh.(p.W * x .+ p.b))
    tree = ((W=[0.1 0.2 0.3; -0.4 0.5 -0.6], b=[0.1, -0.2]), [1.0, 2.0, 3.0])
    near(a, b) = PyBridge.ravel(a) ≈ PyBridge.ravel(b) || isapprox(
        PyBridge.ravel(a), PyBridge.ravel(b); atol=1e-5)

    @testset "$name" for name in REACHED
        backend = PyBridge.find_backend(name)
        value_and(f, args...) = PyBridge.value_and_gradient(
            backend, f, args, Val(ntuple(identity, length(args))))
        value, gradients = value_and(mlp, tree...)
        @test value ≈ mlp(tree...) && near(gradients, differences(mlp, tree...))
        @test near(value_and(x -> x^3, 2.0), (8.0, (12.0,)))
        matrix, = last(value_and(x -> sum(abs2, x), [1.0 2.0; 3.0 4.0]))
        @test near(matrix, [2.0 4.0; 6.0 8.0])

        f(x) = (x .^ 2, sum(x))
        y, back = PyBridge.pullback(backend, f, ([1.0, 2.0],), Val((1,)))
        @test near(y, ([1.0, 4.0], 3.0))
        @test near(back(([1.0, 0.0], 1.0)), ([3.0, 1.0],))
        y, ẏ = PyBridge.pushforward(backend, f, ([1.0, 2.0],), ([1.0, 0.0],))
        @test near((y, ẏ), (([1.0, 4.0], 3.0), ([2.0, 0.0], 1.0)))
        _, J = PyBridge.jacobian(backend, f, ([1.0, 2.0],), Val((1,)))
        @test near(J, [2.0 0.0; 0.0 4.0; 1.0 1.0])
        g(x) = x[1]^2 * x[2]
        # Reverse over reverse is what Mooncake does not do.
        name == "di:AutoMooncake()" || @test near(PyBridge.hessian(backend, g, ([2.0, 3.0],), Val((1,))), [6.0 4.0; 4.0 0.0])
        (value, aux), _ = PyBridge.value_aux_and_gradient(
            backend, x -> (sum(x), 3), ([1.0, 2.0],), Val((1,)))
        @test (value, aux) === (3.0, 3)

        @test_throws PyBridge.NonScalarError value_and(x -> x, [1.0, 2.0])
        @test_throws PyBridge.UnsupportedModeError value_and(abs2, 1.0 + 2.0im)
    end

    @testset "$name is no name" for name in (
        "di:AutoZygote", "di:run(`ls`)", "di:Foo()", "di:ADTypes.AutoZygote()", "di:AutoZygote(); 1",
        "di:AutoForwardDiff(; chunksize=f(2))", "di:AutoForwardDiff(; tag=Ref(1))", "di:", "di:1",
        "di:AutoFiniteDiff(; relstep=eval(:(1)))", "di:AutoFiniteDiff(args...)")
        @test_throws "a type of ADTypes" PyBridge.find_backend(name)
    end

    @testset "literals reach the constructor" begin
        adtype(name) = PyBridge.find_backend(name).adtype
        @test adtype("di:AutoFiniteDiff(relstep=-1.5)").relstep == -1.5
        @test adtype("di:AutoFiniteDiff(; fdtype=nothing, dir=true)").dir
        @test typeof(adtype("di:AutoForwardDiff(; chunksize=4)")).parameters[1] == 4
    end
end

@testset "EnzymeCore" begin
    core = Base.get_extension(PyBridge, :PyBridgeEnzymeCoreExt).EnzymeCore
    rules, question = core.EnzymeRules, core.Const(NNlib.within_gradient)
    forward, reverse = rules.FwdConfig{true,false,1,false,false}(),
        rules.RevConfig{true,false,1,(false, false),false,false}()
    x = core.Active(2.0)
    @test rules.forward(forward, question, core.Const{Bool}, x) === true
    augmented = rules.augmented_primal(reverse, question, core.Const{Bool}, x)
    @test augmented.primal === true
    @test rules.reverse(reverse, question, core.Const{Bool}, nothing, x) === (nothing,)
    asks(f) = rules.inactive(f, 2.0)
    @test all(isnothing ∘ asks, (PyBridge.within_gradient, PyBridge.is_differentiating))
    # Outside of a program that Enzyme differentiates.
    @test !PyBridge.within_program(Val(:Enzyme)) && !within_gradient(2.0)
end
