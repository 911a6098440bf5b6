# A rule runs on plain values.
order_in_rule(x) = PyBridge.differentiation_order(x) * x
function PyBridge.ChainRulesCore.rrule(::typeof(order_in_rule), x)
    return order_in_rule(x), ȳ -> (PyBridge.ChainRulesCore.NoTangent(), 7ȳ)
end

@testset "differentiation_order" begin
    order = PyBridge.differentiation_order
    # Each derivative shows the order at which it was taken.
    scaled(x) = x^3 * 10.0^order(x)
    gradient(system, f) = x -> value_and_gradient(system, f, x)[2][1]

    @testset "plain values have none" begin
        for x in (1, 1.0, 1im, [1.0], Float64[], (1.0, [2.0]), (a=1.0,), Dict(:a => 1.0), [[1.0]],
            nothing, "text", Any[1.0, [2.0]], Real[1, 2.0], sin)
            @test order(x) === 0
        end
        @test scaled(2.0) == 8.0
    end

    @testset "$system: one" for system in by_turns(SYSTEMS)
        @test value_and_gradient(system, scaled, 2.0) == (80.0, (120.0,))
        @test value_and_gradient(system, x -> sum(x) * order(x), [1.0, 2.0]) == (3.0, ([1.0, 1.0],))
        @test value_and_gradient(system, x -> x * order((1, [x, x])), 2.0)[1] == 2.0
    end

    @testset "ForwardDiff over $system: two" for system in (:zygote, :forwarddiff, :yota)
        @test gradient(:forwarddiff, gradient(system, scaled))(2.0) == 1200.0
    end
    @test gradient(:forwarddiff, gradient(:forwarddiff, gradient(:zygote, scaled)))(2.0) == 6000.0

    @testset "a system over itself" begin
        @test Zygote.hessian_reverse(scaled, 2.0) == 1200.0
        nested(f) = x -> Tracker.data(Tracker.gradient(f, x; nest=true)[1])
        inner(x) = Tracker.gradient(scaled, x; nest=true)[1]
        @test nested(inner)(2.0) == 1200.0
        orders = Int[]
        Tracker.forward(x -> Tracker.forward(x -> (push!(orders, order(x)); sum(x)), x)[1], [2.0])
        @test orders == [2]
        product(x) = x[1]^2 * x[2] * order(x)
        @test ReverseDiff.hessian(product, [3.0, 1.0]) == [4.0 12.0; 12.0 0.0]
    end

    @testset "$system: of each value" for system in BY_VALUE
        by_w(w, x) = w * (1 + order(w)) * (10 + order(x)) * x
        @test PyBridge.value_and_gradient(
            PyBridge.BACKENDS[system], by_w, (2.0, 3.0), Val((1,))) == (120.0, (60.0,))
    end

    @testset "complex numbers of duals" begin
        f(x) = within_gradient(complex(x, x)) * within_gradient([complex(x, x)]) *
               order([complex(x, x)]) * x
        @test value_and_gradient(:forwarddiff, f, 2.0) == (2.0, (1.0,))
        @test !within_gradient([1.0im]) && !within_gradient(ComplexF64[])
        g(x) = abs2(PyBridge.primal([complex(x, 1)])[1] * PyBridge.primal(complex(x, x))) * x
        @test value_and_gradient(:forwarddiff, g, 2.0) == (80.0, (40.0,))
    end

    @testset "a system that cannot be seen is an error" begin
        for x in (Nabla.Unseen(1.0), [Nabla.Unseen(1.0)])
            @test_throws PyBridge.DetectionError order(x)
        end
        error = PyBridge.DetectionError(Float64, :Nabla, :differentiation_order)
        @test startswith(sprint(showerror, error), "differentiation_order: ")
    end

    @test value_and_gradient(:zygote, order_in_rule, 1.0) == (0.0, (7.0,))
end
