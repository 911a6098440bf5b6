using Random123: Random123
using TOML: TOML

# JAX's numbers, written by tests/vectors/make_random.py.
const VECTORS = TOML.parsefile(joinpath(ROOT, "tests", "vectors", "random.toml"))

pair(words) = (UInt32(words[1]), UInt32(words[2]))

unsigned_of(T) = (UInt8, UInt16, UInt32, UInt64)[trailing_zeros(sizeof(T))+1]

"The array of the elements whose bits a text has, with JAX's shape reversed."
function from_hexadecimal(::Type{T}, text, shape) where {T}
    bytes = hex2bytes(text)
    elements = ntoh.(reinterpret(unsigned_of(T), bytes))
    return reshape(collect(reinterpret(T, elements)), Tuple(reverse(shape)))
end
function from_hexadecimal(::Type{Bool}, text, shape)
    return reshape(hex2bytes(text) .== 1, Tuple(reverse(shape)))
end

"The distance of two numbers, counted in numbers that lie between them."
ulps(x::T, y::T) where {T} = abs(ordered(x) - ordered(y))
function ordered(x::T) where {T}
    n = Int128(reinterpret(unsigned_of(T), abs(x)))
    return signbit(x) ? -n : n
end

@testset "random numbers" begin
    key = (0x00000000, 0x0000002a)

    @testset "keys made from keys" begin
        for entry in VECTORS["fold_in"]
            @test PyBridge.fold_in(pair(entry["key"]), entry["data"]) == pair(entry["words"])
        end
        for entry in VECTORS["split"]
            keys = pair.(entry["keys"])
            @test PyBridge.split(pair(entry["key"]), length(keys)) == keys
        end
        @test PyBridge.split(key) == PyBridge.split(key, 2)
        @test PyBridge.split(key, 0) == PyBridge.Key[]
    end

    @testset "the cipher, with counters of 64 bits" begin
        for entry in VECTORS["block"]
            words, (high, low) = pair(entry["key"]), pair(entry["counter"])
            @test PyBridge.threefry(words, UInt64(high) << 32 | low) == pair(entry["words"])
            # An array whose element 3 has this number.
            start = (UInt64(high) << 32 | low) - UInt64(2)
            blocks = Vector{NTuple{2,UInt32}}(undef, 6)
            PyBridge.draw_range!(tuple, blocks, words, 1:6, start)
            @test blocks[3] == pair(entry["words"])
            @test blocks == [PyBridge.threefry(words, start + i) for i in UInt64(0):UInt64(5)]
        end
    end

    @testset "arrays of shape $shape" for shape in unique(e["shape"] for e in VECTORS["draw"])
        dims = Tuple(reverse(shape))
        low, high = VECTORS["bounds"]
        for entry in filter(e -> e["shape"] == shape, VECTORS["draw"])
            words = pair(entry["key"])
            for T in (UInt8, UInt16, UInt32, UInt64)
                expected = from_hexadecimal(T, entry["bits$(8sizeof(T))"], shape)
                @test PyBridge.bits(words, T, dims) == expected
            end
            for T in (Float16, Float32, Float64)
                jax(name) = from_hexadecimal(T, entry["$name$(8sizeof(T))"], shape)
                @test PyBridge.uniform(words, T, dims) == jax("uniform")
                between = PyBridge.uniform(words, T, dims; minval=low, maxval=high)
                # The least multiple of the bounds' resolution, also where they cancel.
                @test all(abs.(between .- jax("between")) .<= eps(T(high)))
                # XLA's log1p of a Float64 is up to 128 units off, at -0.414.
                limit = T == Float64 ? 32 : 4
                @test all(ulps.(PyBridge.normal(words, T, dims), jax("normal")) .<= limit)
            end
            for (p, text) in zip(VECTORS["probabilities"], entry["keep"])
                mask = PyBridge.keep_mask(words, p, dims)
                @test mask isa Array{Bool,length(dims)}
                @test mask == from_hexadecimal(Bool, text, shape)
            end
        end
    end

    @testset "a part of an array needs no other part" begin
        whole = PyBridge.bits(key, UInt32, (1000,))
        for range in (1:1, 17:800, 999:1000, 5:4)
            part = zeros(UInt32, 1000)
            PyBridge.draw_range!(⊻, part, key, range)
            @test part[range] == whole[range]
            @test count(!iszero, part) == length(range)
        end
        @test_throws BoundsError PyBridge.draw_range!(⊻, zeros(UInt32, 3), key, 1:4)
        n = 3 * PyBridge.THREADED_LENGTH + 5
        alone = PyBridge.draw_range!(⊻, Vector{UInt32}(undef, n), key, 1:n)
        @test PyBridge.bits(key, UInt32, (n,)) == alone
    end

    # The quick run compiles without optimisations.
    LONG && @testset "the loop is a loop of vector instructions" begin
        code = sprint() do io
            InteractiveUtils.code_llvm(io, PyBridge.draw_range!,
                (typeof(⊻), Vector{UInt32}, PyBridge.Key, UnitRange{Int}, UInt64))
        end
        @test occursin(r"<\d+ x i32>", code)
    end

    @testset "the distributions" begin
        u = PyBridge.uniform(key, Float64, (10^5,))
        @test all(0 .<= u .< 1) && abs(sum(u) / 10^5 - 0.5) < 0.005
        x = PyBridge.normal(key, Float32, (10^5,))
        @test abs(sum(x) / 10^5) < 0.01 && abs(sum(abs2, x) / 10^5 - 1) < 0.02
        @test abs(count(PyBridge.keep_mask(key, 0.3, (10^5,))) / 10^5 - 0.7) < 0.01
        @test PyBridge.erfinv(1.0) == Inf && PyBridge.erfinv(-1.0f0) === -Inf32
        @test PyBridge.erfinv(0.0) === 0.0
    end

    @testset "keys" begin
        @test PyBridge.fold_in([0x00000000, 0x0000002a], 3) == PyBridge.fold_in(key, 3)
        for bad in (nothing, 42, (0, 42), (0x00000001,), UInt32[1, 2, 3], UInt64[1, 2],
            UInt32[1 2; 3 4], "key")
            @test_throws "two words of UInt32" PyBridge.fold_in(bad, 3)
            @test_throws "two words of UInt32" PyBridge.keep_mask(bad, 0.5, (2,))
        end
        @test_throws "got a 3-element Vector{UInt32}" PyBridge.split(UInt32[1, 2, 3])
    end

    @testset "bad input" begin
        @test_throws "0 to 2^32 - 1" PyBridge.fold_in(key, -1)
        @test_throws "0 to 2^32 - 1" PyBridge.fold_in(key, 2^32)
        @test_throws "0 or more" PyBridge.split(key, -1)
        for p in (-0.1, 1.1, NaN, Inf, nothing, "0.5")
            @test_throws "probability p from 0 to 1" PyBridge.keep_mask(key, p, (2,))
        end
        @test_throws MethodError PyBridge.bits(key, Int, (2,))
        @test_throws MethodError PyBridge.uniform(key, Int, (2,))
    end

    @testset "$system: a draw is a constant" for system in by_turns(SYSTEMS)
        function f(x)
            drawn = PyBridge.normal(PyBridge.fold_in(key, 1), Float64, (3,)) .+
                    PyBridge.uniform(key, Float64, (3,)) .+ PyBridge.keep_mask(key, 0.5, (3,))
            return sum(drawn .* x .^ 2)
        end
        x = [1.0, 2.0, 3.0]
        value, gradient = value_and_gradient(system, f, x)
        @test value ≈ f(x)
        @test is_gradient(gradient, f, x)
    end

    @testset "nothing is allocated but the result" begin
        draws = (
            () -> PyBridge.keep_mask(key, 0.5, (100, 10)),
            (() -> PyBridge.bits(key, T, (100, 10)) for T in (UInt8, UInt64))...,
            (() -> PyBridge.uniform(key, T, (100, 10)) for T in (Float16, Float32, Float64))...,
            (() -> PyBridge.normal(key, T, (100, 10)) for T in (Float16, Float32, Float64))...,
        )
        for draw in draws
            result = draw()
            @test (@allocated draw()) <= sizeof(result) + 256
        end
    end

    @test @inferred(PyBridge.keep_mask(key, 0.5, (2, 3))) isa Matrix{Bool}
    @test @inferred(PyBridge.normal(key, Float16, (2, 3))) isa Matrix{Float16}
end
