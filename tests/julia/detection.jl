# A package that PyBridge has no eyes for.
module Nabla
struct Unseen <: Real
    value::Float64
end
end

# Structs that answer for their fields: one may hold itself, one has a field that is not there.
struct Part{T}
    weight::T
    name::String
end
mutable struct Link
    next::Link
    value::Any
    Link(value) = (node = new(); node.value = value; node)
end
function ring(values...)
    nodes = map(Link, values)
    foreach((node, next) -> (node.next = next), nodes, (nodes[2:end]..., nodes[1]))
    return nodes[1]
end
struct Answers
    f::Any
end
PyBridge.within_gradient(::Answers) = true

# A rule runs on plain values, so the question has no other answer there.
const ASKED = Ref(true)
with_rule(x) = (ASKED[] = within_gradient(x); 2x)
function PyBridge.ChainRulesCore.rrule(::typeof(with_rule), x)
    return with_rule(x), ȳ -> (PyBridge.ChainRulesCore.NoTangent(), 2ȳ)
end

@testset "detection" begin
    branch(x) = PyBridge.cond(within_gradient(x), x -> 10x, x -> x, x)

    @testset "plain values answer false" begin
        for x in (1, 1.0, [1.0], (1.0, [2.0]), (a=1.0,), Dict(:a => 1.0), [[1.0], [2.0]], nothing,
            "text", Any[1.0, [2.0]], Real[1, 2.0], [(1.0, 2)], [(a=1.0,)], [1.0, nothing],
            Union{Missing,Float64}[1.0, missing], Diagonal([1.0, 2.0]), Ref(1.0), Ref{Any}(),
            Some(1.0), Set([1.0]), Part([1.0], "a"), Part(Float64, "a"), Part(PyBridge, "a"),
            Part(current_task(), "a"), Link(1.0), ring(1.0, [2.0]), stdout, sin, Float64, r"a")
            @test within_gradient(x) === false
            @test PyBridge.differentiation_order(x) === 0
        end
        @test is_differentiating() === false
        @test is_differentiating(1.0, [2.0]) === false
        @test branch(2.0) == 2.0
    end

    @testset "$system" for system in SYSTEMS
        @test value_and_gradient(system, branch, 2.0) == (20.0, (10.0,))
        @test value_and_gradient(system, x -> sum(branch(x)), [1.0, 2.0]) == (30.0, ([10.0, 10.0],))
        both(x, y) = PyBridge.cond(is_differentiating(x, y), (x, y) -> x * y, (x, y) -> x + y, x, y)
        @test value_and_gradient(system, both, 2.0, 5.0) == (10.0, (5.0, 2.0))
        tuples(x) = PyBridge.cond(within_gradient((x, [1.0])), abs2, identity, x)
        @test value_and_gradient(system, tuples, 3.0) == (9.0, (6.0,))
    end

    @testset "systems that read values answer per value" begin
        for system in BY_VALUE
            b(w, x) = (within_gradient(w) ? 10 : 1) * (within_gradient(x) ? 100 : 1) * w * x
            value, (slope,) = PyBridge.value_and_gradient(
                PyBridge.BACKENDS[system], b, (2.0, 3.0), Val((1,)))
            @test (value, slope) == (60.0, 30.0)
        end
    end

    @testset "$system: arrays of containers, of several types, of arrays" for system in BY_VALUE
        for make in (
            x -> [(x[1], 1)], x -> [(a=x[1],)], x -> ((x[1], 1),),
            x -> Union{Nothing,eltype(x)}[x[1], nothing],
            x -> Union{Missing,eltype(x)}[x[1], missing], Diagonal, x -> Diagonal(x)',
            x -> LinearAlgebra.Symmetric(x * x'),
            x -> LinearAlgebra.Bidiagonal(x, x[2:end], :U),
            x -> LinearAlgebra.Tridiagonal(x[2:end], x, x[2:end]),
            x -> LinearAlgebra.SymTridiagonal(x, x[2:end]),
            Ref, x -> Ref{Any}(x), Some, x -> Set([x]), x -> Part(x, "a"), x -> Link(x[1]),
            x -> (Part(2.0, "a"), [Part(Ref(x), "b")]), x -> (y -> x[1] * y),
            x -> ring(1.0, x), x -> ring(x, 1.0), x -> ring(ring(x, 2.0), 1.0)
        )
            asked = Ref{Any}()
            function f(x)
                asked[] = within_gradient(make(x)), PyBridge.differentiation_order(make(x))
                return sum(x)
            end
            value_and_gradient(system, f, [1.0, 2.0])
            @test asked[] === (true, 1)
        end
    end

    @testset "Tracker's numbers, arrays and arrays of numbers" begin
        x = Tracker.param(2.0)
        @test within_gradient(x)
        @test within_gradient([x, x])
        @test within_gradient(Tracker.param([1.0]))
        @test within_gradient(Any[1.0, x])
    end

    @testset "ReverseDiff's numbers, arrays and arrays of numbers" begin
        x, xs = ReverseDiff.track(2.0), ReverseDiff.track([1.0 2.0])
        for value in (x, [x, x], xs, xs', view(xs, 1, :), Any[1.0, x], Real[1.0, x], complex(x, x),
            [complex(x, x)], (a=1.0, b=xs))
            @test within_gradient(value)
        end
        @test PyBridge.primal((x, xs, [complex(x, 1)])) == (2.0, [1.0 2.0], [2.0 + 1.0im])
        @test PyBridge.primal_type(eltype(xs)) === Float64
    end

    @testset "agrees with NNlib where NNlib answers" begin
        nnlib(x) = NNlib.within_gradient(x) ? 10x : x
        ours(x) = within_gradient(x) ? 10x : x
        for system in (:zygote, :forwarddiff)
            @test value_and_gradient(system, nnlib, 2.0) == value_and_gradient(system, ours, 2.0)
        end
    end

    @testset "a system that cannot be seen is an error" begin
        @test_throws PyBridge.DetectionError within_gradient(Nabla.Unseen(1.0))
        @test_throws PyBridge.DetectionError within_gradient([Nabla.Unseen(1.0)])
        @test_throws PyBridge.DetectionError within_gradient(Part(Nabla.Unseen(1.0), "a"))
        # What was being asked when it was thrown is asked again.
        node = Link(Nabla.Unseen(1.0))
        @test_throws PyBridge.DetectionError within_gradient(node)
        @test_throws PyBridge.DetectionError within_gradient(node)
        @test within_gradient(Part(Answers(1), "a"))
        @test_throws PyBridge.DetectionError PyBridge.differentiation_order(Answers(1))
        message = sprint(showerror, PyBridge.DetectionError(Float64, :Nabla))
        @test occursin("Nabla", message) && occursin("Zygote", message)
    end

    @testset "false inside a user's own rule" begin
        ASKED[] = true
        @test value_and_gradient(:zygote, with_rule, 1.0) == (2.0, (2.0,))
        @test ASKED[] === false
    end
end
