"""
    CopyOnWrite(data)

An array whose memory belongs to somebody else until it is needed for more than reading.
Elements are read in place; the first write, and the first request for a pointer (through
which C code may write), makes a private copy. So a function that mutates its argument never
changes the caller's array, and one that only reads it pays for no copy.
"""
mutable struct CopyOnWrite{T,N} <: DenseArray{T,N}
    data::Array{T,N}
    owned::Bool
end
CopyOnWrite(data::Array) = CopyOnWrite(data, false)

function own!(x::CopyOnWrite)
    x.owned && return x.data
    x.data = copy(x.data)
    x.owned = true
    return x.data
end

"Tell whether something still is the caller's memory."
is_lent(x) = false
is_lent(x::CopyOnWrite) = !x.owned

"Let go of the caller's memory. An array that outlives the call is empty, and not garbage."
give_back!(x) = nothing
function give_back!(x::CopyOnWrite{T,N}) where {T,N}
    is_lent(x) && lend!(x, Array{T,N}(undef, ntuple(_ -> 0, Val(N))))
    return nothing
end

"Lend an array, which was given back, memory with what was in it then."
lend!(x::CopyOnWrite, memory) = x.data = memory

Base.size(x::CopyOnWrite) = size(x.data)
Base.length(x::CopyOnWrite) = length(x.data)
Base.IndexStyle(::Type{<:CopyOnWrite}) = IndexLinear()
Base.strides(x::CopyOnWrite) = strides(x.data)
Base.elsize(::Type{<:CopyOnWrite{T}}) where {T} = sizeof(T)
Base.@propagate_inbounds Base.getindex(x::CopyOnWrite, i::Int) = x.data[i]
Base.@propagate_inbounds Base.setindex!(x::CopyOnWrite, v, i::Int) = (own!(x)[i] = v; x)
Base.unsafe_convert(::Type{Ptr{T}}, x::CopyOnWrite{T}) where {T} = pointer(own!(x))
Base.copy(x::CopyOnWrite) = copy(x.data)

# Whole-array operations work on the memory itself, at its speed. None of them writes to it: the
# destination of an in-place broadcast or reduction is never taken from here.
Base.broadcastable(x::CopyOnWrite) = x.data
# An AD system that looks into `broadcast` keeps the array, and not the memory.
ChainRulesCore.rrule(::typeof(Base.broadcastable), x::CopyOnWrite) = x, ȳ -> (NoTangent(), ȳ)
Base.mapreduce(f, op, x::CopyOnWrite; kw...) = mapreduce(f, op, x.data; kw...)

LinearAlgebra.norm(x::CopyOnWrite, p::Real=2) = LinearAlgebra.norm(x.data, p)
host_array(x::CopyOnWrite) = sendable_array(x.data)

# BLAS reads what these are given and writes to the last argument of `gemm!` and `gemv!` alone.
memory_of(x) = x
memory_of(x::CopyOnWrite) = x.data
for T in (Float32, Float64, ComplexF32, ComplexF64)
    ours, vector, all = CopyOnWrite{T}, AbstractVector{T}, AbstractVecOrMat{T}
    for (A, B) in ((ours, all), (all, ours), (ours, ours))
        @eval function BLAS.gemm!(tA::AbstractChar, tB::AbstractChar, α::Union{$T,Bool},
            A::$A, B::$B, β::Union{$T,Bool}, C::$all)
            return BLAS.gemm!(tA, tB, α, memory_of(A), memory_of(B), β, C)
        end
    end
    for (A, X) in ((ours, vector), (all, CopyOnWrite{T,1}), (ours, CopyOnWrite{T,1}))
        @eval function BLAS.gemv!(tA::AbstractChar, α::Union{$T,Bool}, A::$A, x::$X,
            β::Union{$T,Bool}, y::$vector)
            return BLAS.gemv!(tA, α, memory_of(A), memory_of(x), β, y)
        end
    end
end
# Convolutions write to their first argument alone.
for T in (Float32, Float64), N in 3:5, f in (:conv!, :∇conv_data!, :∇conv_filter!)
    ours, all = CopyOnWrite{T,N}, AbstractArray{T,N}
    for (X, Y) in ((ours, all), (all, ours), (ours, ours))
        @eval NNlib.$f(z::$all, x::$X, y::$Y, dims::NNlib.ConvDims; kw...) =
            NNlib.$f(z, memory_of(x), memory_of(y), dims; kw...)
    end
end
for T in (Float32, Float64)
    ours, all = CopyOnWrite{T}, AbstractArray{T}
    for (X, Y) in ((ours, all), (all, ours), (ours, ours))
        @eval BLAS.dot(x::$X, y::$Y) = BLAS.dot(memory_of(x), memory_of(y))
    end
end
