@testset "dropout" begin
    key = (0x00000000, 0x0000002a)
    explicit(; dims=:) = (x, p) -> PyBridge.dropout(key, x, p; dims, training=true)
    function reference(x::AbstractArray{T}, p, keep) where {T}
        y = similar(x)
        return y .= ifelse.(keep, x .* T(1 / (1 - p)), zero(T))
    end

    @testset "$T, size $dims" for T in (Float16, Float32, Float64),
        dims in ((), (0,), (7,), (3, 0, 2), (3, 5), (2, 3, 4, 5))

        x = PyBridge.normal(key, T, dims)
        for p in (0.1, 0.5, 0.9)
            y = explicit()(x, p)
            @test y isa Array{T,length(dims)} && size(y) == dims
            @test y == reference(x, p, PyBridge.keep_mask(key, p, dims))
        end
        @test PyBridge.dropout(key, x, 0.5) === x
        @test PyBridge.dropout(nothing, x, 0.5; training=false) === x
    end

    losses = (
        x -> sum(abs2, PyBridge.dropout(key, x, 0.4)),
        x -> sum(abs2, PyBridge.dropout(key, x, 0.4; dims=(1, 3), training=true)),
        x -> sum(abs2, PyBridge.dropout(collect(key), x .^ 2, 0.0)),
        x -> sum(abs2, PyBridge.alphadropout(key, x, 0.4)),
        x -> sum(abs2, PyBridge.apply(PyBridge.Dropout(0.4), (;), (;), x; key)[1]),
    )
    @testset "$system: value and gradient" for (system, f) in combined(SYSTEMS, losses)
        x = PyBridge.normal((0x00000001, 0x00000002), Float64, (3, 2, 4))
        # Differences call the function outside of a gradient, where it does not train; so they are
        # taken of the value that ForwardDiff sees.
        trained(x) = first(value_and_gradient(:forwarddiff, f, x))
        value, gradient = value_and_gradient(system, f, x)
        @test value ≈ trained(x)
        @test is_gradient(gradient, trained, x)
    end

    types = (Float16, Float32, Float64)
    @testset "$system: one mask both ways, in $T" for (system, T) in combined(SYSTEMS, types)
        x = PyBridge.normal(key, T, (4, 3))
        _, (gradient,) = value_and_gradient(system, x -> sum(PyBridge.dropout(key, x, 0.3)), x)
        @test gradient isa Array{T}
        @test gradient == reference(one.(x), 0.3, PyBridge.keep_mask(key, 0.3, (4, 3)))
    end

    @testset "$system: p = 1, p = 0" for system in by_turns(SYSTEMS)
        for drop in (PyBridge.dropout, PyBridge.alphadropout)
            x = [1.0, -2.0, Inf]
            value, (gradient,) = value_and_gradient(system, x -> sum(drop(key, x, 1)), x)
            @test value == 0 && gradient == zeros(3)
            value, (gradient,) = value_and_gradient(system, x -> sum(drop(nothing, x, 0)), x)
            @test value == Inf && gradient == ones(3)
        end
    end

    @testset "$system: NaN and Inf in dropped places leave no trace" for system in by_turns(SYSTEMS)
        keep = PyBridge.keep_mask(key, 0.5, (6,))
        for bad in (NaN, Inf, -Inf), drop in (PyBridge.dropout, PyBridge.alphadropout)
            x, clean = ifelse.(keep, 2.0, bad), fill(2.0, 6)
            f(x) = sum(abs2, drop(key, x, 0.5))
            value, (gradient,) = value_and_gradient(system, f, x)
            expected, (slopes,) = value_and_gradient(system, f, clean)
            @test value == expected && gradient == slopes
            @test all(iszero, gradient[.!keep]) && !any(iszero, gradient[keep])
        end
    end

    @testset "$system: training=false inside a gradient" for system in by_turns(SYSTEMS)
        f(x) = sum(abs2, PyBridge.dropout(nothing, x, 0.5; training=false))
        @test value_and_gradient(system, f, [1.0, 2.0]) == (5.0, ([2.0, 4.0],))
    end

    @testset "second derivatives" begin
        f(x) = sum(PyBridge.dropout(key, x, 0.5) .^ 3)
        x = [1.0, 2.0, 3.0, 4.0]
        keep = PyBridge.keep_mask(key, 0.5, (4,))
        # The scale is 2, to the third power.
        expected = [i == j && keep[i] ? 8 * 6 * x[i] : 0.0 for i in 1:4, j in 1:4]
        @test ForwardDiff.hessian(f, x) ≈ expected
        @test ForwardDiff.jacobian(x -> ForwardDiff.gradient(f, x), x) ≈ expected
        @test Zygote.hessian(f, x) ≈ expected
        nested(x) = Tracker.gradient(f, x; nest=true)[1]
        @test Tracker.data(Tracker.jacobian(nested, x)) ≈ expected
    end

    @testset "where nothing is drawn, any numbers" begin
        drops = (PyBridge.dropout, PyBridge.alphadropout)
        for drop in drops, x in ([1, 2], [1.0 + im], [true, false], Real[1, 2.0], Diagonal(ones(2)))
            @test drop(key, x, 0.5; training=false) === x
            @test drop(key, x, 0; training=true) === x
        end
    end

    @testset "complex numbers and matrices with a structure" begin
        x = [1.0 + im, 2.0, 3.0im, 4.0 - im]
        keep = PyBridge.keep_mask(key, 0.5, (4,))
        @test explicit()(x, 0.5) == reference(x, 0.5, keep)
        gradient, = Zygote.gradient(x -> sum(abs2, PyBridge.dropout(key, x, 0.5)), x)
        @test gradient == 8 .* keep .* x
        matrix = Diagonal([1.0, 2.0])
        for drop in (PyBridge.dropout, PyBridge.alphadropout)
            @test drop(key, matrix, 0.5; training=true) ==
                  drop(key, Matrix(matrix), 0.5; training=true)
            structured, dense = map((matrix, Matrix(matrix))) do x
                only(Zygote.gradient(x -> sum(abs2, drop(key, x, 0.5)), x))
            end
            @test structured == Diagonal(dense)
        end
    end

    @testset "dims" begin
        x = ones(3, 4, 5)
        y = explicit(dims=2)(x, 0.5)
        @test y == ones(3, 1, 5) .* y[1:1, :, 1:1]
        @test y == reference(x, 0.5, PyBridge.keep_mask(key, 0.5, (1, 4, 1)))
        @test explicit(dims=(3, 1))(x, 0.5) ==
              reference(x, 0.5, PyBridge.keep_mask(key, 0.5, (3, 1, 5)))
        @test explicit(dims=[1, 2, 3])(x, 0.5) == explicit()(x, 0.5)
        @test explicit(dims=())(x, 0.5) == (PyBridge.keep_mask(key, 0.5, ())[] ? 2x : zero(x))
    end

    @testset "alphadropout keeps mean and variance" begin
        x = PyBridge.normal(key, Float32, (10^5,))
        for p in (0.1, 0.4)
            y = PyBridge.alphadropout(PyBridge.fold_in(key, 1), x, p; training=true)
            @test y isa Vector{Float32}
            @test abs(sum(y) / 10^5) < 0.02 && abs(sum(abs2, y) / 10^5 - 1) < 0.03
        end
        α′ = -1.7580993408473766
        A = inv(sqrt(0.6 * (1 + 0.4 * α′^2)))
        expected = A .* ifelse.(PyBridge.keep_mask(key, 0.4, (50,)), 1.0, α′) .- A * α′ * 0.4
        @test PyBridge.alphadropout(key, ones(50), 0.4; training=true) ≈ expected
    end

    @testset "layers" begin
        layer = PyBridge.Dropout(0.5; dims=(1, 2))
        @test PyBridge.init(key, layer) == ((;), (;))
        x = ones(2, 3, 4)
        y, state = PyBridge.apply(layer, (;), (;), x; key, training=true)
        @test y == explicit(dims=(1, 2))(x, 0.5) && state == (;)
        @test PyBridge.apply(layer, (;), (;), x) == (x, (;))
        @test PyBridge.apply(PyBridge.AlphaDropout(0.5), (;), (;), x) == (x, (;))
        @test sprint(show, layer) == "Dropout(0.5, dims=(1, 2))"
        @test sprint(show, PyBridge.Dropout(0.5)) == "Dropout(0.5)"
    end

    @testset "mode" begin
        mode = PyBridge.resolve_training
        for (training, detected, expected) in (
            (true, false, true), (true, true, true), (false, false, false), (false, true, false),
            (:auto, false, false), (:auto, true, true), (PyBridge.Settled(true), false, true),
            (PyBridge.Settled(false), true, false),
        )
            @test PyBridge.choose_mode(training, detected) === expected
        end
        @test mode(:auto, 1.0) === false
        @test PyBridge.settle_training(:auto, 1.0) === PyBridge.Settled(false)
        @test_throws "true, false or :auto, got :test" mode(:test, 1.0)
        @test_throws "true, false or :auto, got nothing" mode(nothing, 1.0)
        for system in by_turns(SYSTEMS)
            # A container asks once; the layer's own input is a constant.
            function container(w, x)
                training = PyBridge.settle_training(:auto, w, x)
                return sum(w .* PyBridge.dropout(key, x, 0.5; training))
            end
            value, (gradient,) = PyBridge.value_and_gradient(
                PyBridge.BACKENDS[system], container, ([1.0, 2.0], [3.0, 4.0]), Val((1,)))
            @test gradient == explicit()([3.0, 4.0], 0.5)
        end
    end

    @testset "bad input" begin
        drop(args...; options...) = PyBridge.dropout(args...; options...)
        x = ones(2, 3)
        for p in (-0.1, 2, NaN, "0.5", nothing)
            @test_throws "probability p from 0 to 1, got" drop(key, x, p)
            @test_throws "probability p from 0 to 1, got" PyBridge.alphadropout(key, x, p)
            @test_throws "probability p from 0 to 1, got" PyBridge.Dropout(p)
            @test_throws "probability p from 0 to 1, got" PyBridge.AlphaDropout(p)
        end
        for dims in (0, (1, 1), 1.0, "1", (:x,))
            @test_throws "different integers from 1 on" drop(key, x, 0.5; dims)
            @test_throws "different integers from 1 on" PyBridge.Dropout(0.5; dims)
        end
        @test_throws "2 dimensions of the array, got 3" drop(key, x, 0.5; dims=3)
        @test_throws "two words of UInt32, got none" drop(nothing, x, 0.5; training=true)
        for bad in (42, (0, 42), [1, 2], UInt32[1])
            @test_throws "two words of UInt32" drop(bad, x, 0.5; training=false)
        end
        for bad in ([1, 2], AbstractFloat[1.0], 1.0, [1 + im], [true], "x")
            @test_throws "array of floating-point numbers" drop(key, bad, 0.5; training=true)
        end
        for system in by_turns(SYSTEMS)
            f(x) = sum(drop(nothing, x, 0.5))
            @test_throws "two words of UInt32, got none" value_and_gradient(system, f, x)
        end
    end

    @test @inferred(PyBridge.dropout(key, ones(2), 0.5; training=true)) isa Vector{Float64}
    @test @inferred(PyBridge.alphadropout(key, ones(2), 0.5; training=true)) isa Vector{Float64}
end
