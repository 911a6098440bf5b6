# The derivatives of bridged functions against formulas, and what programs do with memory.

const P = PyBridge

derivatives(backend, f) = P.Differentiable(backend, f, nothing, nothing)
along(leaves...) = P.Direction{ntuple(identity, length(leaves))}(leaves)

@testset "both families, $system" for system in SYSTEMS
    b = P.BACKENDS[system]
    f(x) = sin(x) * exp(x)
    spec = P.parse_spec("(f8:0)", false)
    d = derivatives(b, f)
    first_order = exp(1) * (sin(1) + cos(1))
    second_order, third_order = 2exp(1) * cos(1), 2exp(1) * (cos(1) - sin(1))
    ẋ = along(1.0)
    @test P.primal_value(d, spec, (1.0,), Val((1,))) ≈ f(1)
    @test P.tangents(d, spec, (1.0,), (ẋ,)) ≈ first_order
    @test P.tangents(d, spec, (1.0,), (ẋ, ẋ)) ≈ second_order
    @test only(P.cotangents(d, spec, (1.0,), 1.0, Val((1,)), ())) ≈ first_order
    @test only(P.cotangents(d, spec, (1.0,), 1.0, Val((1,)), (ẋ,))) ≈ second_order
    @test only(P.cotangents(d, spec, (1.0,), 1.0, Val((1,)), (ẋ, ẋ))) ≈ third_order
    y, x̄s = P.value_and_cotangents(d, spec, (1.0,), Val((1,)))
    @test y == f(1.0)
    @test only(x̄s) ≈ first_order
end

@testset "dtypes share a direction, $system" for system in SYSTEMS
    b = P.BACKENDS[system]
    f(p, x) = sum(p.w .* x)
    spec = P.parse_spec("({w=f4:1},f8:1)", false)
    leaves = (Float32[1, 2], [3.0, 4.0])
    d = derivatives(b, f)
    @test P.tangents(d, spec, leaves, (along(Float32[1, 1], [1.0, 1.0]),)) ≈ 10
    @test P.cotangents(d, spec, leaves, 1.0, Val((1,)), ()) == ([3, 4],)
    @test P.cotangents(d, spec, leaves, 1.0, Val((2,)), ()) == ([1, 2],)
end

@testset "rules of one's own" begin
    spec = P.parse_spec("(f8:1)", false)
    x, ẋ, ȳ = [1.0, 2.0], [0.5, 1.0], [1.0, -1.0]
    square(x) = x .^ 2
    # Three times the slope: the rule, and not the function, is used.
    rule(x) = (x .^ 2, ȳ -> (6 .* x .* ȳ,))
    push((x,), (ẋ,)) = (x .^ 2, 6 .* x .* ẋ)
    for b in map(system -> P.BACKENDS[system], SYSTEMS), (jvp, vjp) in ((push, rule), (push, nothing), (nothing, rule))
        d = P.Differentiable(b, square, jvp, vjp)
        @test P.tangents(d, spec, (x,), (along(ẋ),)) ≈ 6 .* x .* ẋ
        @test only(P.cotangents(d, spec, (x,), ȳ, Val((1,)), ())) ≈ 6 .* x .* ȳ
        @test only(P.cotangents(d, spec, (x,), ȳ, Val((1,)), (along(ẋ),))) ≈ 6 .* ẋ .* ȳ
    end
end

@testset "copy on write" begin
    memory = reshape(Float32.(16:-1:1), 4, 4)
    kept = copy(memory)
    reading = P.CopyOnWrite(memory)
    @test sum(abs2, reading) == sum(abs2, kept)
    @test sum(reading; dims=1) == sum(kept; dims=1)
    @test reading .+ 1 == kept .+ 1
    @test !reading.owned
    @test reading * kept == kept * kept
    @test !reading.owned
    pointer(reading)   # through which C code may write
    @test reading.owned && memory == kept
    for change! in (x -> x .= 0, x -> x[1] = 5, x -> fill!(x, 7), x -> sort!(x; dims=1),
        x -> x .+= 1, x -> (x .= x .* 2))
        x = P.CopyOnWrite(memory)
        change!(x)
        @test memory == kept
        @test x != kept
    end
end

@testset "convolutions read lent memory" begin
    x, w = randn(9, 8, 2, 3), randn(3, 2, 2, 4)
    dims = NNlib.DenseConvDims(x, w)
    y = NNlib.conv(x, w, dims)
    for (f, a, b) in ((NNlib.conv, x, w), (NNlib.∇conv_data, y, w), (NNlib.∇conv_filter, x, y))
        lent = P.CopyOnWrite(a), P.CopyOnWrite(b)
        @test f(a, b, dims) == f(lent[1], b, dims) == f(a, lent[2], dims) == f(lent..., dims)
        @test !any(x -> x.owned, lent)
    end
end

const SEEN = Ref{Any}()
@testset "memory of an operand is used again" begin
    id = P.register(x -> (SEEN[] = x; x .+ 1))
    P.compile("18", "call", "$id,,", "zygote", "(f8:2)", "f8:2", "||||", "f8:200,300", "f8:200,300", "",
        "false", "logical")
    x, y = rand(300, 200), fill(NaN, 300, 200)
    program = P.program(0x12)
    addresses = Ptr{Cvoid}[pointer(x), pointer(y)]
    run() = GC.@preserve x y addresses P.run_at(program, pointer(addresses))
    spare() = (@atomic program.operands[1].spare.last).value
    GC.enable(false)   # a collection takes the memory
    run()
    @test y == x .+ 1
    @test isempty(SEEN[])   # what the function has kept is not that memory
    memory = spare()
    GC.enable(true)
    @test memory == x'
    x .= rand.()
    run()
    @test y == x .+ 1
    @test spare() === memory && memory == x'
    @test P.take!(program.operands[1].spare, (200, 300)) === memory
    @test P.take!(program.operands[1].spare, (200, 300)) !== memory   # a call at the same time
    P.release_program("18")
end

@testset "lanes" begin
    id = P.register((w, x) -> w .* x)
    key = "17"
    # Two levels: three lanes that share w, and two that share nothing; the first result is summed
    # over the outer level.
    P.compile(key, "call", "$id,,", "zygote", "(f8:1,f8:1)", "f8:1", "||||", "f8:2;f8:2", "f8:2",
        "3:01:0;2:11:1", "false", "reversed")
    w, x, y = rand(2, 2), rand(2, 2, 3), fill(NaN, 2, 2)
    addresses = Ptr{Cvoid}[pointer(w), pointer(x), pointer(y)]
    GC.@preserve w x y addresses P.run_at(P.program(0x11), pointer(addresses))
    @test y ≈ sum(w .* x; dims=3)[:, :, 1]
    P.release_program(key)
    @test_throws KeyError P.program(0x11)
end

@testset "outputs are found" begin
    calls = Ref(0)
    number(x) = (calls[] += 1; sum(x))
    id = P.register(number)
    @test P.find_outputs(string(id), "(f8:1)", "3", "logical") == "f8:0|"
    @test calls[] == 0
    id = P.register(x -> (calls[] += 1; inv(x)))
    @test P.find_outputs(string(id), "(f4:2)", "3,3", "logical") == "f4:2|3,3"
    @test calls[] == 1
    @test P.sample(Float64, (2, 2)) == [2 1; 1 2]
    @test P.sample(Bool, (2, 2)) == trues(2, 2)
end
