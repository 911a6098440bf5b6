# CUDA.jl: programs run on NVIDIA's GPUs, on XLA's own buffers. Written for CUDA.jl 5.4 to 6.
module PyBridgeCUDAExt

using CUDA: CUDA, AnyCuArray, CuArray, CuDevice, CuEvent, CuPtr, context, context!
using PyBridge: PyBridge, CUDADevice

# The driver's own functions. CUDA.jl 6 has them in a package of their own, with `CuEvent`.
const Driver = parentmodule(CuEvent)

PyBridge.check_available(::CUDADevice) = CUDA.functional()

# Julia keeps to its task's stream, and the two streams wait for each other; the host waits for
# neither. XLA's stream itself cannot be a `CuStream`: there is no constructor for one that is
# somebody else's, and temporary arrays, freed on the stream that used them last, outlive the
# call.
function PyBridge.in_order(work, ::CUDADevice, frame)
    theirs = PyBridge.xla_stream(frame)
    # Left active: it is the context that XLA has on this device, the primary one.
    context!(context(CuDevice(PyBridge.device_ordinal(frame))))
    ours, event = CUDA.stream(), CuEvent(Driver.EVENT_DISABLE_TIMING)
    try
        follow(ours, theirs, event)
        try
            work()
        finally
            # After an exception, too: kernels that were started write to XLA's memory.
            follow(theirs, ours, event)
        end
    finally
        finalize(event)
    end
    return nothing
end

# What comes on a stream from now on waits for what is on the other one by now.
function follow(stream, other, event)
    Driver.cuEventRecord(event, other)
    Driver.cuStreamWaitEvent(stream, event, 0)
    return nothing
end

function PyBridge.wrap(::CUDADevice, ::Type{T}, address, dims::NTuple{N,Int}) where {T,N}
    # Where there are no elements there may be no memory.
    prod(dims) == 0 && return CuArray{T,N}(undef, dims)
    return unsafe_wrap(CuArray{T,N}, CuPtr{T}(UInt(address)), dims)
end

PyBridge.settle(::CUDADevice, x::AnyCuArray) = x

# An array that outlives the call is an error when it is used, and not garbage.
PyBridge.give_back!(x::CuArray) = CUDA.unsafe_free!(x)

end
