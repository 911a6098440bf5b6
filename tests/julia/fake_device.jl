# A device whose memory is the host's, and whose arrays are JLArrays: GPUArrays' own stand-in for
# a GPU, which refuses to be read or written element by element. Julia's tests and Python's
# use it to run on a CPU all that a GPU runs, except for CUDA itself.
module FakeDevices

using JLArrays: JLArray, JLArrays
using PyBridge: PyBridge

const GPUArrays = JLArrays.GPUArrays

# Interactive sessions get away with a warning, and Julia in Python may take itself for one.
GPUArrays.allowscalar(false)

# Julia 1.10 aligns a vector of few bytes to 8, and its interpreter, in the quick run, takes elements
# of 16 bytes, such as dual numbers, to be aligned to 16.
if VERSION < v"1.11"
    function JLArrays.JLArray{T,N}(::UndefInitializer, dims::Dims{N}) where {T,N}
        count = sizeof(T) * prod(dims)
        aligned = Vector{UInt128}(undef, cld(count, 16))
        bytes = unsafe_wrap(Array, Ptr{UInt8}(pointer(aligned)), count)
        return JLArray{T,N}(GPUArrays.DataRef(_ -> (aligned; nothing), bytes), dims)
    end
end

struct FakeDevice <: PyBridge.AbstractDevice end

"A JLArray of memory that is somebody else's."
function borrow(::Type{T}, address, dims::NTuple{N,Int}) where {T,N}
    bytes = unsafe_wrap(Array, Ptr{UInt8}(UInt(address)), sizeof(T) * prod(dims))
    return JLArray{T,N}(GPUArrays.DataRef(Returns(nothing), bytes), dims)
end

function PyBridge.wrap(::FakeDevice, ::Type{T}, address, dims::NTuple{N,Int}) where {T,N}
    prod(dims) == 0 && return JLArray{T,N}(undef, dims)
    return borrow(T, address, dims)
end
PyBridge.settle(::FakeDevice, x::GPUArrays.AnyGPUArray) = x
PyBridge.in_order(work, ::FakeDevice, frame) = work()
PyBridge.give_back!(x::JLArray) = GPUArrays.unsafe_free!(x)

"XLA's handler for it."
c_fake(frame::Ptr{PyBridge.FFICallFrame})::Ptr{Cvoid} =
    PyBridge.answer_call(frame, FakeDevice())

"A handler that writes to a result of two numbers what XLA says on CPUs: the device's number, and
1 if it says that there is no stream."
function c_asking(frame::Ptr{PyBridge.FFICallFrame})::Ptr{Cvoid}
    call = unsafe_load(frame)
    call.extension == C_NULL || return PyBridge.answer_call(frame, FakeDevice())
    result = unsafe_load(Ptr{PyBridge.FFIBuffer}(unsafe_load(call.results.values)))
    numbers = unsafe_wrap(Array, Ptr{Int32}(result.data), 2)
    numbers .= PyBridge.device_ordinal(frame), false
    try
        PyBridge.xla_stream(frame)
    catch exception
        text = sprint(showerror, exception)
        numbers[2] = occursin("stream of a call: ", text) && occursin("not available", text)
    end
    return C_NULL
end

handler() = Int(@cfunction(c_fake, Ptr{Cvoid}, (Ptr{PyBridge.FFICallFrame},)))
asking_handler() = Int(@cfunction(c_asking, Ptr{Cvoid}, (Ptr{PyBridge.FFICallFrame},)))

end
