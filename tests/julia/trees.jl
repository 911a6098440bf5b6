using PyBridge.ChainRulesCore: NoTangent, Tangent, ZeroTangent, @thunk

@testset "trees" begin
    @testset "ravel goes row by row, and unravel undoes it" begin
        tree = (1.0, (a=[1.0 2.0; 3.0 4.0], b=nothing), [5.0, 6.0], ())
        @test PyBridge.ravel(tree) == [1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        @test PyBridge.unravel(tree, PyBridge.ravel(tree)) == tree
        cube = (reshape(collect(1.0:24.0), 2, 3, 4),)
        @test PyBridge.unravel(cube, PyBridge.ravel(cube)) == cube
    end

    @testset "dense: what AD systems return becomes arrays like the argument" begin
        x = [1.0 2.0; 3.0 4.0]
        for nothing_like in (nothing, NoTangent(), ZeroTangent())
            @test PyBridge.dense(x, nothing_like) == zeros(2, 2)
            @test PyBridge.dense(1.0f0, nothing_like) === 0.0f0
            @test PyBridge.dense((1.0, [2.0]), nothing_like) == (0.0, [0.0])
            @test PyBridge.dense((a=1.0, b=[2.0]), nothing_like) == (a=0.0, b=[0.0])
        end
        fill = Zygote.gradient(sum, x)[1]
        @test PyBridge.dense(x, fill) isa Matrix{Float64}
        @test PyBridge.dense(x, @thunk(2 .* x)) == 2x
        @test PyBridge.dense(Float32[1, 2], [1.0, 2.0]) isa Vector{Float32}
        @test PyBridge.dense(1.0, 2.0 + 3.0im) === 2.0
        @test PyBridge.dense([1.0, 2.0], [nothing, 3.0]) == [0.0, 3.0]
        @test PyBridge.dense((a=1.0, b=2.0), (a=5.0,)) == (a=5.0, b=0.0)
        @test PyBridge.dense((a=1.0, b=2.0), Tangent{Any}(; b=7.0)) == (a=0.0, b=7.0)
        @test_throws DimensionMismatch PyBridge.dense([1.0, 2.0], [1.0, 2.0, 3.0])
    end
end
