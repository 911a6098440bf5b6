# Programs on a device that is not the host: everything but the device.

if Base.find_package("JLArrays") === nothing
    @info "JLArrays could not be installed: programs did not run on a fake device"
else

include("fake_device.jl")
include("fake_cuda.jl")

"Compile a program, pass it to `call` and release it."
function with_program(call, f, kind, spec, value_spec, selections, operands, results; lanes="",
    converts="false")
    id = P.register(f)
    P.compile("23", kind, "$id,,", "zygote", spec, value_spec, selections, operands, results,
        lanes, converts, "reversed")
    try
        return call(P.program(0x17))
    finally
        P.release_program("23")
    end
end

function on_fake(program, inputs, outputs)
    GC.@preserve inputs outputs P.run(program, FakeDevices.FakeDevice(),
        Ptr{Cvoid}.(pointer.(inputs)), Ptr{Cvoid}.(pointer.(outputs)))
    return outputs
end

@testset "a program on a device" begin
    x, y = rand(Float32, 3), zeros(Float32, 3)
    seen = Ref{Any}()
    with_program(x -> (seen[] = (x, UInt(pointer(x))); x .+ 1), "call", "(f4:1)", "f4:1", "||||",
        "f4:3", "f4:3") do program
        @test on_fake(program, (x,), (y,)) == (x .+ 1,)
    end
    array, address = seen[]
    @test array isa FakeDevices.JLArray
    @test address == UInt(pointer(x))
    # It belongs to XLA again, and says so.
    @test_throws ArgumentError Array(array)

    @testset "numbers, and results on the host" begin
        with_program((s, x) -> (s * 2, fill(s, 3), sum(x)), "call", "(f4:0,f4:1)",
            "(f4:0,f4:1,f4:0)", "||||", "f4:;f4:3", "f4:;f4:3;f4:") do program
            outputs = on_fake(program, (Float32[3], x), (zeros(Float32, 1), y, zeros(Float32, 1)))
            @test outputs[1] == [6] && outputs[2] == [3, 3, 3] && outputs[3] ≈ [sum(x)]
        end
    end

    @testset "views and conversions" begin
        with_program(x -> (transpose(x), Float64.(x)), "call", "(f4:2)", "(f4:2,f4:2)", "||||",
            "f4:2,3", "f4:3,2;f4:2,3"; converts="true") do program
            m, turned, same = rand(Float32, 2, 3), zeros(Float32, 3, 2), zeros(Float32, 2, 3)
            @test on_fake(program, (m,), (turned, same)) == (permutedims(m), m)
        end
    end

    @testset "nothing in it" begin
        with_program(x -> (x, sum(x)), "call", "(f4:1)", "(f4:1,f4:0)", "||||", "f4:0",
            "f4:0;f4:") do program
            total = Float32[7]
            P.run(program, FakeDevices.FakeDevice(), (C_NULL,), (C_NULL, Ptr{Cvoid}(pointer(total))))
            @test total == [0]
        end
    end

    @testset "another shape than declared" begin
        with_program(x -> x[1:2], "call", "(f4:1)", "f4:1", "||||", "f4:3", "f4:3") do program
            @test_throws P.OutputChangedError on_fake(program, (x,), (y,))
        end
    end

    @testset "lanes, and a sum over them" begin
        lanes = "3:01:0;2:11:1"
        with_program((w, x) -> w .* x, "call", "(f8:1,f8:1)", "f8:1", "||||", "f8:2;f8:2", "f8:2";
            lanes) do program
            w, x, y = rand(2, 2), rand(2, 2, 3), fill(NaN, 2, 2)
            on_fake(program, (w, x), (y,))
            @test y ≈ sum(w .* x; dims=3)[:, :, 1]
        end
        with_program(x -> sum(abs2, x), "call", "(f8:1)", "f8:0", "||||", "f8:2", "f8:";
            lanes="4:1:0") do program
            x, y = rand(2, 4), [NaN]
            on_fake(program, (x,), (y,))
            @test y ≈ [sum(abs2, x)]
        end
    end

    @testset "derivatives" begin
        f(w, x) = sum(abs2, tanh.(w * x))
        w, v, direction = rand(2, 3), rand(3), rand(2, 3)
        ∇w = 2 .* tanh.(w * v) .* (1 .- tanh.(w * v) .^ 2) * v'
        with_program(f, "value_and_grad", "(f8:2,f8:1)", "f8:0", "0||;|0|", "f8:2,3;f8:3",
            "f8:;f8:2,3") do program
            value, gradient = on_fake(program, (w, v), ([NaN], fill(NaN, 2, 3)))
            @test value ≈ [f(w, v)] && gradient ≈ ∇w
        end
        with_program(f, "tangents", "(f8:2,f8:1)", "f8:0", "||0|0|", "f8:2,3;f8:3;f8:2,3",
            "f8:") do program
            @test on_fake(program, (w, v, direction), ([NaN],))[1] ≈ [sum(∇w .* direction)]
        end
        # A gradient that Zygote does not see is zero.
        with_program((w, x) -> sum(x), "value_and_grad", "(f8:2,f8:1)", "f8:0", "0||;|0|",
            "f8:2,3;f8:3", "f8:;f8:2,3") do program
            @test on_fake(program, (w, v), ([NaN], fill(NaN, 2, 3)))[2] == zeros(2, 3)
        end
    end
end

# --- XLA's handler for GPUs, called as XLA would --------------------------------------------

const STREAM, ORDINAL = 0x5e, Int32(3)
const MESSAGES = String[]

function c_tell_stream(question::Ptr{P.FFIQuestion})::Ptr{Cvoid}
    unsafe_store!(Ptr{UInt}(question + fieldoffset(P.FFIQuestion, 4)), STREAM)
    return C_NULL
end
function c_tell_ordinal(question::Ptr{P.FFIQuestion})::Ptr{Cvoid}
    unsafe_store!(Ptr{Int32}(question + fieldoffset(P.FFIQuestion, 4)), ORDINAL)
    return C_NULL
end
function c_create_error(arguments::Ptr{P.FFIErrorArguments})::Ptr{Cvoid}
    push!(MESSAGES, unsafe_string(unsafe_load(arguments).message))
    return Ptr{Cvoid}(UInt(1))
end

function call_cuda(key, input, output)
    question = Ptr{P.FFIQuestion}
    api = Ref(P.FFIApi(sizeof(P.FFIApi), C_NULL, P.FFIVersion(24, C_NULL, 0, 1), C_NULL,
        @cfunction(c_create_error, Ptr{Cvoid}, (Ptr{P.FFIErrorArguments},)), C_NULL, C_NULL,
        C_NULL, @cfunction(c_tell_stream, Ptr{Cvoid}, (Ptr{P.FFIQuestion},)),
        ntuple(_ -> C_NULL, 12), @cfunction(c_tell_ordinal, Ptr{Cvoid}, (Ptr{P.FFIQuestion},))))
    buffers = [Ref(P.FFIBuffer(48, C_NULL, 11, pointer(a), 1, C_NULL)) for a in (input, output)]
    values = [Ptr{Cvoid}[Base.unsafe_convert(Ptr{P.FFIBuffer}, b)] for b in buffers]
    number = Ref(UInt64(key))
    GC.@preserve api buffers values number input output begin
        scalar = Ref(P.FFIScalar(5, Base.unsafe_convert(Ptr{UInt64}, number)))
        attributes = Ptr{Cvoid}[Base.unsafe_convert(Ptr{P.FFIScalar}, scalar)]
        arguments = map(v -> P.FFIArguments(40, C_NULL, 1, C_NULL, pointer(v)), values)
        GC.@preserve scalar attributes begin
            frame = Ref(P.FFICallFrame(sizeof(P.FFICallFrame), C_NULL,
                Base.unsafe_convert(Ptr{P.FFIApi}, api), C_NULL, 3, arguments...,
                P.FFIAttributes(48, C_NULL, 1, C_NULL, C_NULL, pointer(attributes))))
            GC.@preserve frame return P.c_cuda(Base.unsafe_convert(Ptr{P.FFICallFrame}, frame))
        end
    end
end

@testset "CUDA's extension" begin
    notes = OnFakeCUDA.CUDA.NOTES
    x, y = Float32[1, 2, 3], zeros(Float32, 3)
    order = [(:context, 3), (:record, 0x5e), (:wait, :ours), (:work,), (:record, :ours),
        (:wait, 0x5e), (:destroyed,)]
    @test P.check_available(P.DEVICES.cuda)
    run_it(f) = with_program(_ -> call_cuda(0x17, x, y), f, "call", "(f4:1)", "f4:1", "||||",
        "f4:3", "f4:3")
    work(x) = (push!(notes, (:work,)); x .* 2)
    empty!(notes)
    @test run_it(work) == C_NULL
    @test y == 2x
    @test notes == order
    # XLA's stream waits, whatever happened, for kernels that were started.
    empty!(notes)
    @test run_it(x -> (work(x); throw(DomainError(1)))) != C_NULL
    @test notes == order
    @test occursin("Julia threw DomainError", pop!(MESSAGES))
    @test run_it(work) == C_NULL
end

end
