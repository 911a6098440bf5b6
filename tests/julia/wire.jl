@testset "wire" begin
    @testset "specs" begin
        @test PyBridge.parse_spec("(f8:2,{a=f4:0,b=(n,i8:1)})", false) ===
              (PyBridge.LeafSpec{Float64,2,false}(),
            (a=PyBridge.LeafSpec{Float32,0,false}(),
                b=(PyBridge.NothingSpec(), PyBridge.LeafSpec{Int64,1,false}())))
        @test PyBridge.parse_spec("()", true) === ()
        types = Tuple{Float64,@NamedTuple{x::Matrix{Float32}, y::Nothing},Tuple{},Vector{Bool}}
        @test PyBridge.spec_text(types) == "(f8:0,{x=f4:2,y=n},(),b1:1)"
    end

    # Row-major memory, as NumPy has it, through decode and copy_out.
    function roundtrip(memory, shape, spec, reversed)
        out = similar(memory)
        input, output = Int64[pointer(memory), shape...], Int64[pointer(out)]
        GC.@preserve memory out input output begin
            x = PyBridge.decode(PyBridge.parse_spec(spec, reversed),
                PyBridge.Cursor(pointer(input)))
            PyBridge.copy_out(x, PyBridge.Cursor(pointer(output)), reversed)
        end
        return x, out
    end

    memory = collect(1.0:6.0)
    x, out = roundtrip(memory, (2, 3), "f8:2", false)
    @test x == [1.0 2.0 3.0; 4.0 5.0 6.0]   # A[i, j] is the same element on both sides
    @test out == memory
    x, out = roundtrip(memory, (2, 3), "f8:2", true)
    @test size(x) == (3, 2) && vec(x) == memory
    @test out == memory
    x[1] = 100.0
    @test memory[1] == 1.0

    @testset "axes in reverse order: $T of size $dims" for (T, dims) in (
        # Squares of the copy and what is left of them, in registers (of 4 and 8 bytes) and not,
        # planes that are too small for it, axes of length 1 anywhere, no elements.
        (Float32, (48, 35)), (Float64, (16, 16)), (Int8, (15, 17)), (ComplexF64, (40, 3, 20)),
        (Int32, (33, 2, 64)), (ComplexF32, (32, 47)), (UInt64, (17, 16)), (UInt16, (40, 32)),
        (Float32, (1, 33, 1, 18, 2, 1)), (Bool, (2, 50, 3)), (Float16, (3, 3, 5, 32)), (Int, (5, 1)),
        (Float64, (1, 1, 1)), (Float32, (0, 4)), (Float32, (20, 0, 20)))
        numbers = 1:prod(dims)
        values = T === Bool ? isodd.(numbers) : T.(sizeof(T) < 4 ? numbers .% 100 : numbers)
        x = Array(reshape(values, dims))
        y = PyBridge.reverse_axes(x)
        @test typeof(y) === typeof(x)
        @test size(y) == reverse(dims)
        @test all(y[reverse(Tuple(i))...] == x[i] for i in CartesianIndices(x))
        @test PyBridge.reverse_axes(y) == x
    end
    # Every NaN keeps its bits.
    nans = reshape(reinterpret(Float32, 0x7fa00000 .+ (0x00000000:0x000001ff)), 16, 32) |> Array
    @test reinterpret(UInt32, PyBridge.reverse_axes(nans)) == reinterpret(UInt32, nans)'
    @test_throws DimensionMismatch PyBridge.reverse_axes!(zeros(2, 3), zeros(2, 3))
    # Another element type, and no `Array`.
    @test PyBridge.reverse_axes!(zeros(20, 30), Float32.(reshape(1:600, 30, 20))) ==
          reshape(1:600, 30, 20)'
    @test PyBridge.reverse_axes!(zeros(3, 2), view([1.0 2 0; 3 4 5], :, 1:3)) == [1 3; 2 4; 0 5]

    @testset "results" begin
        @test PyBridge.sendable([1.0 2.0]') isa Matrix{Float64}
        @test PyBridge.sendable(Real[1, 2.0]) == [1.0, 2.0]
        @test PyBridge.sendable(1:3) == [1, 2, 3]
        @test PyBridge.sendable(BitVector([1, 0])) isa Vector{Bool}
        @test PyBridge.sendable(Dict("b" => 1, "a" => 2.0)) === (a=2.0, b=1)
        @test PyBridge.sendable((1, Ref(2))) === (1, (x=2,))
        for value in ("text", :symbol, big(1.0), sin, [1.0, "a"], Dict(1 => 2))
            @test_throws PyBridge.UnsupportedValueError PyBridge.sendable(value)
        end
    end

    @testset "sources" begin
        # In a world of its own, as the calls from Python are: the function is newer than this test.
        call(f, x) = Base.invokelatest(f, x)
        @test call(PyBridge.evaluate("x -> 2x"), 3) == 6
        @test PyBridge.evaluate("relu")(-1.0) == 0.0
        @test call(PyBridge.evaluate("begin h(x) = x + 1; h end"), 1) == 2
        kept = [PyBridge.evaluate("x -> $i * x") for i in 1:5]
        foreach(_ -> GC.gc(), 1:3)
        [rand(10) for _ in 1:10^5]
        @test [call(f, 1) for f in kept] == 1:5   # their types, too, outlive a collection
        @test_throws PyBridge.NotCallableError PyBridge.evaluate("3")
        @test_throws PyBridge.NotCallableError PyBridge.evaluate("")
    end
end
