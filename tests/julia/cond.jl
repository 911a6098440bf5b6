@testset "cond" begin
    cond = PyBridge.cond

    # name => (function, arguments): each is differentiated with respect to all arguments and
    # compared with differences of the same function.
    cases = (
        "true branch" => (x -> cond(true, sin, exp, x), (0.7,)),
        "false branch" => (x -> cond(false, sin, exp, x), (0.7,)),
        "predicate from the value" => (x -> cond(x > 0, x -> x^2, x -> -x, x), (-1.5,)),
        "identity" => (x -> cond(true, identity, exp, x), (0.7,)),
        "constant" => (x -> cond(true, _ -> 3.0, exp, x) + x, (0.7,)),
        "several operands" => (
            (x, y, z) -> cond(x < y, (x, y, z) -> x * y + z, (x, y, z) -> x - y * z, x, y, z),
            (1.0, 2.0, 3.0)),
        "array operand" => (x -> sum(cond(true, x -> x .^ 2, x -> x, x)), ([1.0, 2.0, 3.0],)),
        "matrix product" => (
            (W, x) -> sum(cond(true, (W, x) -> tanh.(W * x), (W, x) -> W * x, W, x)),
            ([0.1 0.2; 0.3 0.4], [1.0, -1.0])),
        "tuple operand" => (x -> cond(true, t -> t[1] * t[2], t -> t[1], (x, 2x)), (1.5,)),
        "named tuple operand" => (
            p -> cond(true, p -> p.a * sum(p.b), p -> p.a, p), ((a=2.0, b=[1.0, 3.0]),)),
        "closure" => ((x, y) -> cond(x > 0, z -> z * y, z -> z + y, x), (2.0, 3.0)),
        "closure over an array" => (
            (x, w) -> cond(x > 0, z -> z * sum(abs2, w), z -> z, x), (2.0, [1.0, 3.0])),
        "closure alone" => (x -> cond(x > 0, () -> x^3, () -> -x), (2.0,)),
        "nested" => (
            x -> cond(x > 0, x -> cond(x > 1, x -> x^3, x -> x^2, x), x -> -x, x), (2.0,)),
        "nested in a closure" => (
            (x, y) -> cond(x > 0, x -> cond(y > 0, z -> z * y, z -> z, x), x -> -x, x), (2.0, 3.0)),
        "twice" => (x -> cond(x > 0, sin, cos, cond(x > 1, x -> x^2, x -> x, x)), (1.3,)),
        "vector result" => (
            x -> sum(abs2, cond(x[1] > 0, x -> 2 .* x, x -> x, x)), ([1.0, -2.0],)),
        "loop in a branch" => (
            x -> cond(true, x -> begin
                y = x
                for _ in 1:3
                    y = y * x
                end
                y
            end, identity, x), (1.1,)),
    )

    @testset "$system: $name" for (system, (name, (f, args))) in combined(SYSTEMS, cases)
        value, gradient = value_and_gradient(system, f, args...)
        @test value ≈ f(args...)
        @test is_gradient(gradient, f, args...)
    end

    @testset "$system: NNlib #434" for system in SYSTEMS
        f(x) = cond(within_gradient(x), x -> x^2, x -> x, x)
        @test value_and_gradient(system, f, 2.0) == (4.0, (4.0,))
    end

    @testset "$system: within_gradient is true inside a branch" for system in SYSTEMS
        f(x) = cond(true, x -> cond(within_gradient(x), x -> x^2, x -> x, x), x -> x, x)
        @test value_and_gradient(system, f, 3.0) == (9.0, (6.0,))
    end

    @testset "$system: another value takes another branch" for system in SYSTEMS
        # A system that keeps what it recorded for the types would answer the second like the
        # first.
        f(x) = cond(x > 0, x -> x > 1 ? x^2 : x^3, x -> -x, x)
        @test value_and_gradient(system, f, 2.0)[2][1] ≈ 4.0
        @test value_and_gradient(system, f, 0.5)[2][1] ≈ 0.75
        @test value_and_gradient(system, f, -1.0)[2][1] ≈ -1.0
    end

    @testset "$system: nothing leaks out of the other branch" for system in SYSTEMS
        guarded(x) = cond(PyBridge.primal(x) == 0, one, x -> sin(x) / x, x)
        @test value_and_gradient(system, guarded, 0.0) == (1.0, (0.0,))
        at_zero(x) = cond(PyBridge.primal(x) > 0, log, x -> 0 * x, x)
        @test value_and_gradient(system, at_zero, 0.0) == (0.0, (0.0,))
    end

    @testset "$system: array predicate" for system in SYSTEMS
        roots(x) = sum(cond(PyBridge.primal(x) .> 0, sqrt, x -> 0 * x, x))
        @test value_and_gradient(system, roots, [4.0, 0.0, -1.0]) == (2.0, ([0.25, 0.0, 0.0],))
        none(x) = sum(cond(x .> 10, log, x -> 2x, x))
        @test value_and_gradient(system, none, [0.0, 1.0])[2][1] == [2.0, 2.0]
    end

    elementwise = (
        "a matrix" =>
            (x -> sum(abs2, cond(x .> 0, x -> 2x, x -> -x, x)), ([1.0 -2.0; 3.0 -4.0],)),
        "an operand for all elements" => (
            (x, a) -> sum(cond(x .> 0, (x, a) -> a * x, (x, a) -> a, x, a)), ([1.0, -1.0], 3.0)),
        "a closure" =>
            ((x, a) -> sum(cond(x .> 0, x -> a * x, x -> x, x)), ([1.0, -1.0], 3.0)),
    )
    @testset "$system: array predicate, $name" for (system, (name, (f, args))) in
        combined(SYSTEMS, elementwise)

        @test is_gradient(value_and_gradient(system, f, args...)[2], f, args...)
    end

    @testset "a branch that is not taken is not called" begin
        calls = Ref(0)
        count!(x) = (calls[] += 1; x)
        cond(false, count!, identity, 1.0)
        cond([true, false, true], identity, count!, [1.0, 2.0, 3.0])
        @test calls[] == 1
    end

    @testset "bad input" begin
        @test_throws ArgumentError cond(1, sin, cos, 1.0)
        @test_throws ArgumentError cond(nothing, sin, cos, 1.0)
        @test_throws DimensionMismatch cond([true, false], sin, cos, [1.0, 2.0, 3.0])
    end

    @test @inferred(cond(true, sin, cos, 1.0)) == sin(1.0)
end
