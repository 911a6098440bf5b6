# Where a program's arrays are. XLA hands over addresses in the memory of the device that runs
# it; what the bridge has to know of such a device are the few methods below. Numbers are read
# and written from the host: what Julia computes with them it computes there.

abstract type AbstractDevice end

"The processor that Julia itself runs on."
struct Host <: AbstractDevice end

"A GPU of NVIDIA's. The extension for CUDA.jl has its methods."
struct CUDADevice <: AbstractDevice end

"The devices by the names that JAX has for their platforms."
const DEVICES = (cpu=Host(), cuda=CUDADevice())

check_available(::AbstractDevice) = false
check_available(::Host) = true

"""
    in_order(work, device, frame)

Do `work` for the call that `frame` describes: after what XLA has given the device to do so far,
and before what it gives it later. Where the device works on its own, the host need not wait.
"""
in_order(work, ::Host, frame) = work()

# How many tasks may share the lanes. Julia's first thread waits for Python and takes part in
# nothing. Other devices do what they are given one after the other, and know the task by which
# they are given it.
workers(::Host) = Threads.nthreads(:default) - 1
workers(::AbstractDevice) = 1

"""
    wrap(device, T, address, dims)

The memory at an address as an array, without a copy. It stays XLA's.
"""
wrap(::Host, ::Type{T}, address, dims) where {T} = unsafe_wrap(Array, Ptr{T}(address), dims)

"""
    settle(device, x)

An array of a result, ready to be copied to XLA's memory: as it is, if it is in the memory of this
device, else as an `Array`.
"""
settle(::AbstractDevice, x) = host_array(x)

# Below this size a copy costs less than what it saves.
const SMALL = 1 << 18

"""
    decode(device, buffer, address, copies)

One operand: a number, or an array that is XLA's memory where that is safe or cannot be helped.
"""
decode(::Host, ::Buffer{T,0}, address, copies) where {T} = unsafe_load(Ptr{T}(address))
function decode(device::Host, b::Buffer{T,N}, address, copies) where {T,N}
    prod(b.dims) == 0 && return Array{T,N}(undef, b.dims)
    copies || sizeof(T) * prod(b.dims) < SMALL ||
        return CopyOnWrite(lendable(device, b, address))
    memory = wrap_lane(device, b, address)
    return is_in_julias_order(b) ? copy(memory) : reverse_axes(memory)
end
decode(device::AbstractDevice, ::Buffer{T,0}, address, copies) where {T} =
    only(Array(wrap(device, T, address, (1,))))
decode(device::AbstractDevice, b::Buffer{T}, address, copies) where {T} =
    wrap(device, T, address, b.dims)

"The memory of one lane as XLA has it."
wrap_lane(device::Host, b::Buffer{T}, address) where {T} =
    wrap(device, T, address, is_in_julias_order(b) ? b.dims : reverse(b.dims))

"An operand in memory that is taken back after the call: XLA's own, or a transposed copy."
function lendable(device::Host, b::Buffer, address)
    memory = wrap_lane(device, b, address)
    return is_in_julias_order(b) ? memory : reverse_axes!(take!(b.spare, b.dims), memory)
end

give_back!(::Buffer, x) = give_back!(x)
function give_back!(b::Buffer, x::CopyOnWrite)
    is_lent(x) && !is_in_julias_order(b) && keep!(b.spare, x.data)
    return give_back!(x)
end

"""
    write!(device, buffer, address, y)

Copy one result to XLA's memory. A sum over lanes adds up there; it was set to zero.
"""
function write!(::Host, b::Buffer{T,0}, address, y) where {T}
    value = convert(T, y isa Number ? y : y[])
    b.shared && (value += unsafe_load(Ptr{T}(address)))
    unsafe_store!(Ptr{T}(address), value)
    return nothing
end
function write!(device::Host, b::Buffer, address, y)
    isempty(y) && return nothing
    y, in_order = memory_of(y), is_in_julias_order(b)
    memory = wrap_lane(device, b, address)
    if b.shared
        memory .+= in_order ? y : reverse_axes(y)
    else
        in_order ? copyto!(memory, y) : reverse_axes!(memory, y)
    end
    return nothing
end
write!(device::AbstractDevice, b::Buffer{T,0}, address, y) where {T} =
    write_all!(device, b, address, y)
write!(device::AbstractDevice, b::Buffer, address, y) =
    isempty(y) ? nothing : write_all!(device, b, address, y)

function write_all!(device, b::Buffer{T}, address, y) where {T}
    memory = wrap(device, T, address, b.dims)
    y = y isa Number ? convert(T, y) : settle(device, y)
    # Kernels do not reach into the host's memory.
    y isa Array && (y = copyto!(similar(memory), convert(Array{T}, y)))
    b.shared ? memory .+= y : memory .= y
    return nothing
end

"Let all bytes of a sum over lanes be zero."
function clear!(device, b::Buffer, address)
    b.shared && fill!(wrap(device, UInt8, address, (b.bytes,)), 0x00)
    return nothing
end
