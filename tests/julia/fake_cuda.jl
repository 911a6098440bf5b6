# The extension for CUDA.jl over a module with the part of CUDA.jl's interface that it uses.
# Memory is the host's; what would reach the driver is noted in `CUDA.NOTES`. This shows what the
# extension asks for, and in which order; whether a GPU then does it, only a GPU can show.
module OnFakeCUDA

module CUDA

using ...FakeDevices: GPUArrays, JLArray, borrow

const NOTES = Any[]
note(entry...) = (push!(NOTES, entry); nothing)

functional() = true

const CuArray = JLArray
const AnyCuArray = GPUArrays.AnyGPUArray
const unsafe_free! = GPUArrays.unsafe_free!

struct CuPtr{T}
    address::UInt
end
Base.unsafe_wrap(::Type{CuArray{T,N}}, p::CuPtr{T}, dims::NTuple{N,Int}) where {T,N} =
    borrow(T, p.address, dims)

struct CuDevice
    ordinal::Int
end
context(device::CuDevice) = device
context!(device) = note(:context, device.ordinal)

const EVENT_DISABLE_TIMING = 0x02
mutable struct CuEvent
    flags::UInt8
    CuEvent(flags) = finalizer(_ -> note(:destroyed), new(flags))
end
stream() = :ours
name(stream) = stream === :ours ? :ours : Int(UInt(stream))
cuEventRecord(event, stream) = note(:record, name(stream))
cuStreamWaitEvent(stream, event, flags) = note(:wait, name(stream))

end

source = read(joinpath(Main.ROOT, "julia_src", "ext", "PyBridgeCUDAExt.jl"), String)
eval(Meta.parse(source[findfirst("module", source)[1]:end] |>
                text -> replace(text, "using CUDA:" => "using ..CUDA:")))

end
