@testset "take" begin
    take = PyBridge.take
    x = [1.0, 2.0, 3.0]
    A = reshape(collect(1.0:24.0), 2, 3, 4)

    @testset "values" begin
        @test take(x, 2) === 2.0
        @test take(x, [3, 1, 3]) == [3.0, 1.0, 3.0]
        @test take(A, [3, 1]; dims=2) == A[:, [3, 1], :]
        @test take(A, 2; dims=1) == A[2, :, :]
        @test take(A, [1 2; 3 4]; dims=3) == A[:, :, [1 2; 3 4]]
        @test take(A, [24, 1]) == [24.0, 1.0] == take(A, [24, 1]; dims=:)
        @test take(A, 2:3; dims=3) == A[:, :, 2:3]
        @test take(x, [-1, 0, 1, 5]; mode=:clip) == [1.0, 1.0, 1.0, 3.0]
        @test take(x, [-1, 0, 1, 5]; mode=:wrap) == [2.0, 3.0, 1.0, 2.0]
        @test isequal(take(x, [-1, 0, 1, 5]; mode=:fill), [NaN, NaN, 1.0, NaN])
        @test take(x, 7; mode=:fill, fill=0) === 0.0
        @test take(Int8[1, 2], [3]; mode=:fill) == Int8[-128]
        @test take(UInt8[1, 2], [3]; mode=:fill) == UInt8[255]
        @test take([false], [3]; mode=:fill) == [true]
        @test isequal(take([1.0f0 + 2im], [3]; mode=:fill), [ComplexF32(NaN)])
        @test take(["a", "b"], [2, 3]; mode=:fill, fill="c") == ["b", "c"]
        @test size(take(A, Int[]; dims=2)) == (2, 0, 4)
        @test size(take(zeros(2, 0), Int[]; dims=2)) == (2, 0)
        @test isequal(take(zeros(2, 0), [1, 2]; dims=2, mode=:fill), fill(NaN, 2, 2))
        @test size(take(zeros(2, 0), [1]; dims=1)) == (1, 0)
        @test eltype(take(Float32[1, 2], [5]; mode=:fill)) == Float32
    end

    @testset "indices of every width" begin
        for T in (Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, BigInt)
            @test take(x, T[1, 100]; mode=:clip) == [1.0, 3.0]
            @test take(x, T[1, 100]; mode=:wrap) == [1.0, 1.0]
            @test take(collect(1.0:300.0), T[1, 100]; mode=:clip) == [1.0, 100.0]
        end
        @test take(x, typemax(UInt64); mode=:clip) == 3.0
        @test take(x, typemin(Int64); mode=:clip) == 1.0
        @test take(x, typemax(UInt64); mode=:wrap) == x[mod1(big(typemax(UInt64)), 3)]
        @test take(x, typemin(Int64); mode=:wrap) == x[mod1(big(typemin(Int64)), 3)]
        @test take(x, typemax(UInt64); mode=:fill, fill=7) == 7.0
    end

    @testset "errors name the index and the dimension" begin
        thrown(f) = try
            f()
        catch e
            sprint(showerror, e)
        end
        text = thrown(() -> take(A, [1, 4]; dims=2))
        @test occursin("1 to 3 on dimension 2", text) && occursin("index 4", text)
        @test occursin("linear order", thrown(() -> take(x, 0)))
        @test_throws PyBridge.IndexOutOfBoundsError take(x, -1)
        for mode in (:error, :clip, :wrap)
            @test occursin("size of 0", thrown(() -> take(zeros(0), [1]; mode)))
        end
        @test_throws ArgumentError take(x, 1; mode=:nearest)
        @test_throws ArgumentError take(x, 1; dims=2)
        @test_throws ArgumentError take(x, 1; dims=true)
        @test_throws ArgumentError take(x, 1; fill=0)
        @test_throws ArgumentError take(x, [true, false, true])
        @test_throws ArgumentError take(x, true)
        @test_throws ArgumentError take(x, 1.0)
        @test_throws ArgumentError take(["a"], 2; mode=:fill)
        @test_throws InexactError take([1, 2], 3; mode=:fill, fill=0.5)
        @test take(x, 3) == 3.0
    end

    weights(y) = sum(y .* reshape(sin.(1:length(y)), size(y)))
    cases = (
        "the case of JAX #5760" => (x -> sum(take(x, [1, 6]; mode=:clip)), (x,)),
        "duplicates" => (x -> weights(take(x, [3, 1, 3]) .^ 2), (x,)),
        "a number" => (x -> take(x, 2)^3, (x,)),
        "wrap" => (x -> weights(exp.(take(x, [0, 5, -7]; mode=:wrap))), (x,)),
        "fill" => (x -> weights(take(x, [0, 3, 9, 3]; mode=:fill, fill=5.0) .^ 2), (x,)),
        "a differentiated fill" => (
            (x, c) -> weights(take(x, [0, 3, 9]; mode=:fill, fill=c) .^ 2), (x, 2.0)),
        "a dimension" => (x -> weights(take(x, [3, 1, 3]; dims=2) .^ 2), (A,)),
        "a matrix of indices" => (x -> weights(take(x, [1 9; 4 4]; dims=3, mode=:clip) .^ 2), (A,)),
        "a dropped dimension" => (x -> weights(take(x, 2; dims=1) .^ 2), (A,)),
        "linear order" => (x -> weights(take(x, [24, 2, 24]) .^ 2), (A,)),
        "no index" => (x -> sum(take(x, Int[])) + sum(abs2, x), (x,)),
        "twice" => (x -> weights(take(take(x, [2, 3, 3]), [3, 1]) .^ 2), (x,)),
    )
    @testset "$system: $name" for (system, (name, (f, args))) in combined(SYSTEMS, cases)
        value, gradient = value_and_gradient(system, f, args...)
        @test value ≈ f(args...)
        @test is_gradient(gradient, f, args...)
    end

    @testset "$system: what is filled with NaN has no derivative" for system in by_turns(SYSTEMS)
        f(x) = sum(take(x, [1, 9]; mode=:fill) .* [1.0, 0.0])
        @test isequal(value_and_gradient(system, f, x), (NaN, ([1.0, 0.0, 0.0],)))
    end

    @testset "$system: second order" for system in (:zygote, :forwarddiff)
        f(x) = sum(take(x, [1, 3, 3, 7]; mode=:clip) .^ 3)
        H = PyBridge.hessian(PyBridge.BACKENDS[system], f, (x,), Val((1,)))
        @test H ≈ [6.0 0 0; 0 0 0; 0 0 54.0]
    end

    @testset "Zygote over Zygote, and forward rules" begin
        f(x) = sum(take(x, [1, 3, 3]) .^ 3)
        g(x) = sum(abs2, Zygote.gradient(f, x)[1])
        @test is_gradient(Zygote.gradient(g, x), g, x)
        read = PyBridge.read_at
        frule, None = PyBridge.ChainRulesCore.frule, PyBridge.NoTangent()
        @test frule((None, [1.0, 2.0, 4.0], None, None, 8.0), read, x, [3, 0], 1, 5.0) ==
              ([3.0, 5.0], [4.0, 8.0])
        @test frule((None, None, None, None, None), read, x, [3], 1, nothing) ==
              ([3.0], PyBridge.ZeroTangent())
    end

    @testset "complex numbers, and adjoints" begin
        z = [1.0 + 2im, 3.0 - 1im]
        @test Zygote.gradient(z -> abs2(sum(take(z, [2, 2, 1]))), z)[1] ≈
              2 * (z[1] + 2z[2]) .* [1, 2]
        @test Zygote.gradient(w -> sum(take(w', [2]; dims=2)), [1.0 2.0; 3.0 4.0])[1] ==
              [0.0 0.0; 1.0 1.0]
    end
end
