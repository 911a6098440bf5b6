# What is Mooncake's alone: rules with stacks that are shared, a method table for the questions,
# packages that know nothing of PyBridge.

mooncake_gradient(f, x) =
    Mooncake.value_and_gradient!!(Mooncake.build_rrule(f, x), f, x)[2][2]

# Defined anew below.
redefined(x) = x^2

# To derive the second derivatives of one function takes Mooncake many seconds, so tests share one.
scaled(c) = x -> PyBridge.differentiation_order(x[1]) * sum(c) * sum(abs2, x)

@testset "Mooncake" begin
    backend = PyBridge.BACKENDS.mooncake

    @testset "Flux's layers switch by themselves, and only inside" begin
        dropout = Flux.Dropout(0.5)
        @test dropout(ones(100)) == ones(100)
        gradient = mooncake_gradient(x -> sum(dropout(x)), ones(100))
        @test all(in((0.0, 2.0)), gradient) && 0 < count(iszero, gradient) < 100
        @test dropout(ones(100)) == ones(100)
    end

    # To derive the rules of its statistics takes Mooncake a minute.
    LONG && @testset "Flux's normalisation is the one within a gradient" begin
        x = [1.0 2.0 4.0; -1.0 0.0 3.0]
        loss(x, norm) = sum(abs2, norm(x) .* [1.0, 2.0])
        expected, = Zygote.gradient(loss, x, Flux.BatchNorm(2))
        @test mooncake_gradient(x -> loss(x, Flux.BatchNorm(2)), x) ≈ expected
    end

    # Julia 1.10 ran out of stack at this.
    @testset "NNlib's convolutions start no tasks within" begin
        @test mooncake_gradient(x -> NNlib.should_use_spawn() ? x : x^2, 3.0) == 6
    end

    @testset "what the question is asked of need not be known before" begin
        asks(x) = NNlib.within_gradient(x) && is_differentiating(x, 1) ? 3x : x
        untyped = Any[2.0]
        for f in (asks, x -> Base.inferencebarrier(asks)(x), x -> asks(2.0) * x / 2,
                  x -> asks(untyped[1]) * x / 2)
            @test value_and_gradient(:mooncake, f, 2.0) == (6.0, (3.0,))
        end
    end

    @testset "a derivative within another one counts, too" begin
        @test PyBridge.hessian(backend, scaled([1.0]), ([3.0],), Val((1,))) == [4.0;;]
    end

    @testset "a new method is a new rule" begin
        @test value_and_gradient(:mooncake, redefined, 3.0) == (9.0, (6.0,))
        Core.eval(@__MODULE__, :(redefined(x) = x^3))
        @test Base.invokelatest(value_and_gradient, :mooncake, redefined, 3.0) == (27.0, (27.0,))
    end

    @testset "pullbacks in any order, twice, or never" begin
        f(x) = [exp(v) for v in x]
        pullback(x) = PyBridge.pullback(backend, f, (x,), Val((1,)))
        y1, back1 = pullback([0.0, 1.0])
        y2, back2 = pullback([2.0, 3.0])
        pullback([4.0, 5.0])
        for _ in 1:2
            @test back1([1.0, 1.0])[1] ≈ exp.([0.0, 1.0])
            @test back2([1.0, 0.0])[1] ≈ [exp(2.0), 0.0]
        end
        @test y1 ≈ exp.([0.0, 1.0]) && y2 ≈ exp.([2.0, 3.0])
    end

    @testset "many tasks at once" begin
        f(x) = sum(v -> v * sin(v), x)
        tasks = [Threads.@spawn(value_and_gradient(:mooncake, f, [1.0i, 2.0])) for i in 1:20]
        for (i, task) in enumerate(tasks)
            value, (gradient,) = fetch(task)
            @test gradient ≈ [sin(i) + i * cos(i), sin(2) + 2cos(2)]
        end
    end

    @testset "an exception leaves nothing behind" begin
        f(x) = x > 0 ? log(x) : throw(DomainError(x))
        @test value_and_gradient(:mooncake, f, 2.0)[2] == (0.5,)
        @test_throws DomainError value_and_gradient(:mooncake, f, -1.0)
        @test value_and_gradient(:mooncake, f, 4.0)[2] == (0.25,)
    end

    @testset "the caller's array stays as it is" begin
        data = [1.0, 2.0]
        write!(x) = (x[1] = 5 * x[1]; sum(abs2, x))
        args = (PyBridge.CopyOnWrite(data),)
        value, (gradient,) = PyBridge.value_and_gradient(backend, write!, args, Val((1,)))
        @test (value, gradient, data) == (29.0, [50.0, 4.0], [1.0, 2.0])
    end

    @testset "Mooncake's own dual numbers" begin
        dual = Mooncake.Nfwd.NDual{Float64,1}(2.0, (1.0,))
        @test within_gradient(dual) && NNlib.within_gradient([dual])
        @test PyBridge.primal(dual) === 2.0 && PyBridge.primal([dual]) == [2.0]
        @test PyBridge.differentiation_order([dual]) == 1
    end

    @testset "rules are kept, and serve arrays of any size" begin
        backend, reference = PyBridge.BACKENDS.mooncake, PyBridge.BACKENDS.forwarddiff
        f(x, y) = sum(abs2, x) * sum(y) + x[1]^3
        for args in (([1.0, 2.0], [3.0]), ([1.0], [2.0, 3.0]), ([4.0, 5.0], [6.0]))
            tangents = map(x -> x .+ 1, args)
            @test all(PyBridge.pushforward(backend, f, args, tangents) .≈
                      PyBridge.pushforward(reference, f, args, tangents))
        end
        for c in ([1.0], [1.0, 2.0], [3.0])
            @test PyBridge.hessian(backend, scaled(c), ([1.0, 2.0],), Val((1,))) ≈
                  4 * sum(c) * [1 0; 0 1]
            _, slope = PyBridge.pushforward(backend, scaled(c), ([1.0, 2.0],), ([1.0, 0.0],))
            @test slope ≈ 2 * sum(c)
        end
    end
end
