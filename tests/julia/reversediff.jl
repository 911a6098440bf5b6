# What ReverseDiff could get wrong without a word, and what it does with rules.
@testset "ReverseDiff" begin
    system = PyBridge.BACKENDS.reversediff
    gradient(f, x) = value_and_gradient(:reversediff, f, x)[2][1]
    lax = PyBridge.Lowering.Lax

    @testset "the package image holds no array of ReverseDiff's" begin
        program = """
            using PyBridge, ReverseDiff
            Base.get_extension(PyBridge, :PyBridgeReverseDiffExt)::Module
            types() = Base.unwrap_unionall(ReverseDiff.TrackedArray).name.cache
            known() = count(T -> T isa DataType && isconcretetype(T), types())
            print(known())
            PyBridge.value_and_gradient(PyBridge.BACKENDS.reversediff, sum, ([1.0],), Val((1,)))
            print(" ", known())
        """
        command = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project())
            -e $program`
        @test read(addenv(command, "JULIA_LOAD_PATH" => join(LOAD_PATH, ':')), String) == "0 1"
    end

    @testset "a derivative within another one is an error" begin
        nested = (x -> x * gradient(z -> x * z, 3.0), x -> x * gradient(z -> z * x, 3.0),
            x -> x * value_and_gradient(:reversediff, z -> x, 3.0)[1],
            x -> gradient(z -> z^2, x),
            x -> ForwardDiff.derivative(t -> t * gradient(z -> t * z, 3.0), x),
            x -> ForwardDiff.derivative(t -> gradient(z -> z^2, t), x))
        for f in nested
            @test_throws PyBridge.UnsupportedModeError gradient(f, 2.0)
        end
        @test_throws PyBridge.UnsupportedModeError ForwardDiff.derivative(nested[4], 2.0)
        # One that has nothing to do with this one is none of its business.
        @test gradient(x -> x * gradient(z -> z^2, 3.0), 2.0) == 6.0
        # This is why: where this is 12 some day, dual numbers may go through.
        slope(t) = ReverseDiff.gradient(x -> float(x[1])^3, [t])[1]
        @test ForwardDiff.derivative(slope, 2.0) == 0
    end

    @testset "a tape that is run again is an error" begin
        for f in (x -> lax.reduce_sum(lax.sin(x), Val((1,))),
            x -> sum(PyBridge.dropout((UInt32(0), UInt32(7)), x, 0.5; training=true)))
            tape = ReverseDiff.GradientTape(f, [1.0, 2.0])
            for again in (tape, ReverseDiff.compile(tape))
                @test_throws "recorded for each call" ReverseDiff.gradient!(
                    zeros(2), again, ones(2))
            end
        end
    end

    @testset "each call records anew" begin
        f(x) = PyBridge.cond(x[1] > 0, x -> sum(x) * x[1], x -> -sum(x), x)
        @test [gradient(f, x) for x in ([1.0, 2.0], [-1.0, 2.0], [2.0, 1.0])] ==
              [[4.0, 1.0], [-1.0, -1.0], [5.0, 2.0]]
    end

    @testset "complex numbers within a lowered program" begin
        product(x, y) = lax.mul(lax.complex(x, y), lax.complex(x, y))
        @test value_and_gradient(:reversediff, (x, y) -> lax.real(product(x, y)), 1.0, 2.0) ==
              (-3.0, (2.0, -4.0))
        sums(x, y) = lax.reduce_sum(lax.imag(product(x, y)), Val((1,)))
        @test value_and_gradient(:reversediff, sums, [1.0, 2.0], [3.0, 4.0]) ==
              (22.0, ([6.0, 8.0], [2.0, 4.0]))
    end

    @testset "NNlib's question, and Flux's layers" begin
        asked(x) = NNlib.within_gradient(x) ? 2 * sum(x) : sum(x)
        @test asked([1.0, 2.0]) == 3.0
        @test gradient(asked, [1.0, 2.0]) == [2.0, 2.0]
        @test gradient(x -> NNlib.within_gradient(x) ? x^2 : x, 3.0) == 6.0
        x = reshape([sin(3.0i) for i in 1:15], 5, 3, 1)
        norm, weights = Flux.InstanceNorm(3), cos.(x)
        trained(x) = sum(weights .* Flux.normalise(x; dims=1, eps=norm.ϵ))
        # Flux's versions add `eps` each in its own way.
        @test gradient(x -> sum(weights .* norm(x)), x) ≈ gradient(trained, x) rtol = 1e-3
        # They cannot train under ReverseDiff, and say so where they did nothing before.
        @test_throws MethodError gradient(x -> sum(Flux.Dropout(0.5)(x)), [1.0, 2.0])
    end

    @testset "complex arguments and results are refused" begin
        @test_throws PyBridge.UnsupportedModeError gradient(abs2, 1.0 + 2im)
        _, back = PyBridge.pullback(system, x -> complex(x, 2x), (1.0,), Val((1,)))
        @test_throws PyBridge.UnsupportedModeError back(1.0 + 0im)
        @test gradient(x -> abs2(complex(x, 2x)), 1.5) == 15.0
    end

    @testset "arrays of other types, integers, writes" begin
        @test gradient(x -> sum(abs2, x), view([1.0, 2.0, 3.0], 1:2)) == [2.0, 4.0]
        @test gradient(x -> sum(abs2, x), [1.0 2.0]') == reshape([2.0, 4.0], 2, 1)
        @test value_and_gradient(:reversediff, (x, i) -> x[i], [1.0, 2.0], 2) ==
              (2.0, ([0.0, 1.0], 0.0))
        function running(x)
            y = similar(x)
            y[1] = x[1]
            for i in 2:length(x)
                y[i] = y[i-1] * x[i]
            end
            return sum(y)
        end
        @test gradient(running, [2.0, 3.0, 4.0]) == [16.0, 10.0, 6.0]
        x = [1.0, 2.0]
        @test_throws "do not support setindex!" gradient(x -> (x[1] = 3; sum(x)), x)
        @test x == [1.0, 2.0]
    end

    @testset "what its way back gets wrong by itself" begin
        for mask in ([true, true, true], [false, true, true])
            @test gradient(x -> sum(x[mask] .* x[mask]), [1.0, 2.0, 3.0]) == 2 .* mask .* [1, 2, 3]
        end
        x, mask = [1.0 2.0 3.0; 4.0 5.0 6.0], [true false true; false true true]
        @test gradient(x -> sum(abs2, x[mask]), x) == 2 .* mask .* x
        @test gradient(x -> sum(abs2, x[[false, true], [3, 1]]), x) == [0 0 0; 8 0 12]
        @test gradient(x -> sum(abs2, x[:, [true, false, true]]), x) == 2 .* [1 0 1; 1 0 1] .* x
        # Should these be right some day, the corrections can go.
        @test ReverseDiff.gradient(x -> sum(x[[true, true]]), [1.0, 2.0]) == [2.0, 0.0]
        singular = [1.0 2.0; 2.0 4.0]
        @test ReverseDiff.gradient(LinearAlgebra.det, singular) == zeros(2, 2)
        @test_throws "singular matrix" gradient(LinearAlgebra.det, singular)
        @test gradient(LinearAlgebra.det, [1.0 2.0; 3.0 4.0]) ≈ [4.0 -3.0; -2.0 1.0]
        overwritten(x) = (y = 2 .* x; z = sum(abs2, y); LinearAlgebra.mul!(y, x, x); z + sum(y))
        @test_throws "written over" gradient(overwritten, [1.0 2.0; 3.0 4.0])
    end

    @testset "the groups of a convolution are on the tape of one task" begin
        x, w = randn(6, 5, 4, 2), randn(2, 3, 1, 8)
        loss(x, w) = sum(sin, NNlib.conv(x, w; groups=4))
        expected = value_and_gradient(:forwarddiff, loss, x, w)
        for _ in 1:5
            found = value_and_gradient(:reversediff, loss, x, w)
            @test found[1] ≈ expected[1] && all(found[2] .≈ expected[2])
        end
    end

    @testset "an array predicate on values that are not tracked" begin
        f(w) = sum(PyBridge.cond([true, false], x -> w * x, x -> x / 0, [2.0, 0.0])[1:1])
        @test value_and_gradient(:reversediff, f, 3.0) == (6.0, (2.0,))
    end

    @testset "a rule of the caller's own is refused within another derivative" begin
        k(x) = PyBridge.ruled(PyBridge.carrier(x), sin, x)
        @test gradient(k, 0.5) == cos(0.5)
        @test_throws "one within another" ReverseDiff.hessian(x -> k(x[1]), [0.5])
    end
end
