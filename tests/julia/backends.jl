# A system that is not there says what to type.
struct AbsentBackend <: PyBridge.AbstractBackend end

@testset "back ends" begin
    @testset "all are loaded" begin
        @test all(system -> PyBridge.check_available(PyBridge.BACKENDS[system]), SYSTEMS)
    end

    @testset "absent" begin
        @test_throws PyBridge.BackendNotLoadedError PyBridge.pullback(
            AbsentBackend(), sin, (1.0,), Val((1,)))
        message = sprint(showerror, PyBridge.BackendNotLoadedError(AbsentBackend()))
        @test occursin("using Absent", message) && occursin("Pkg.add(\"Absent\")", message)
    end

    mlp(p, x) = sum(abs2, tanh.(p.W * x .+ p.b))
    arguments = ((W=[0.1 0.2 0.3; -0.4 0.5 -0.6], b=[0.1, -0.2]), [1.0, 2.0, 3.0])

    @testset "$system: gradients are dense, like the arguments" for system in by_turns(SYSTEMS)
        value, (p̄, x̄) = value_and_gradient(system, mlp, arguments...)
        @test value ≈ mlp(arguments...)
        @test is_gradient((p̄, x̄), mlp, arguments...)
        @test p̄.W isa Matrix{Float64} && p̄.b isa Vector{Float64} && x̄ isa Vector{Float64}
        @test value_and_gradient(system, x -> 3.0, 2.0) == (3.0, (0.0,))
        @test value_and_gradient(system, (x, y) -> x[1], [1.0, 2.0], [3.0]) ==
              (1.0, ([1.0, 0.0], [0.0]))
        @test value_and_gradient(system, x -> sum(x), Float64[]) == (0.0, (Float64[],))
        value32, (g32,) = value_and_gradient(system, x -> sum(abs2, x), Float32[1, 2])
        @test value32 isa Float32 && g32 isa Vector{Float32}
    end

    @testset "ForwardDiff: derivatives of numbers within derivatives of numbers" begin
        tangent(f, x) = last(PyBridge.pushforward(PyBridge.BACKENDS.forwarddiff, f, (x,), (1.0,)))
        # Where the inner derivative takes the outer one for its own, this is 2.
        @test tangent(x -> x * tangent(y -> x + y, 1.0), 2.0) == 1
        @test tangent(x -> tangent(y -> x^2 * y^2, 3.0), 2.0) == 24
        @test tangent(x -> ForwardDiff.derivative(y -> x^2 * y^2, 3.0), 2.0) == 24
        @test ForwardDiff.derivative(x -> tangent(y -> x^2 * y^2, 3.0), 2.0) == 24
    end

    @testset "$system: gradient of what is no number" for system in by_turns(SYSTEMS)
        @test_throws PyBridge.NonScalarError value_and_gradient(system, x -> 2 .* x, [1.0, 2.0])
    end

    @testset "$system: NaN and Inf pass through" for system in by_turns(SYSTEMS)
        value, (g,) = value_and_gradient(system, x -> sum(x .+ 1), [NaN, Inf])
        @test isnan(value) && g == [1.0, 1.0]
    end

    @testset "$system: Jacobian" for system in by_turns(SYSTEMS)
        f(x) = [x[1] * x[2], x[2]^2, sin(x[1])]
        system === :tracker && (f = x -> vcat(x[1:1] .* x[2:2], x[2:2] .^ 2, sin.(x[1:1])))
        y, J = PyBridge.jacobian(PyBridge.BACKENDS[system], f, ([2.0, 3.0],), Val((1,)))
        @test y ≈ [6.0, 9.0, sin(2.0)]
        @test J ≈ [3.0 2.0; 0.0 6.0; cos(2.0) 0.0]
    end

    @testset "Hessian" begin
        f(x) = x[1]^2 * x[2] + sin(x[2])
        for system in SECOND_ORDER
            @test PyBridge.hessian(PyBridge.BACKENDS[system], f, ([2.0, 3.0],), Val((1,))) ≈
                  [6.0 4.0; 4.0 -sin(3.0)]
        end
        for system in setdiff(SYSTEMS, SECOND_ORDER)
            @test_throws PyBridge.UnsupportedModeError PyBridge.hessian(
                PyBridge.BACKENDS[system], f, ([2.0, 3.0],), Val((1,)))
        end
    end

    @testset "what a system cannot do names one that can" begin
        for (system, other) in ((:zygote, "forwarddiff"), (:tracker, "forwarddiff"))
            error = try
                PyBridge.pushforward(PyBridge.BACKENDS[system], sin, (1.0,), (1.0,))
            catch e
                e
            end
            @test error isa PyBridge.UnsupportedModeError
            @test occursin(other, sprint(showerror, error))
        end
        @test_throws PyBridge.UnsupportedModeError PyBridge.pullback(
            PyBridge.BACKENDS.forwarddiff, sin, (1.0,), Val((1,)))
    end

    @testset "$system: a pullback may be called twice" for system in SYSTEMS
        system === :forwarddiff && continue
        y, back = PyBridge.pullback(
            PyBridge.BACKENDS[system], x -> x .^ 2, ([1.0, 2.0],), Val((1,)))
        @test y == [1.0, 4.0]
        @test PyBridge.dense([1.0, 2.0], back([1.0, 0.0])[1]) == [2.0, 0.0]
        @test PyBridge.dense([1.0, 2.0], back([0.0, 1.0])[1]) == [0.0, 4.0]
    end

    @testset "$system: has_aux" for system in by_turns(SYSTEMS)
        f(x) = (sum(abs2, x), 2 .* x)
        (y, aux), (g,) = PyBridge.value_aux_and_gradient(
            PyBridge.BACKENDS[system], f, ([1.0, 2.0],), Val((1,)))
        @test (y, aux, g) == (5.0, [2.0, 4.0], [2.0, 4.0])
    end
end
