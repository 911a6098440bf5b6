# How values cross between Python and Julia: as leaves in memory, described by a spec.
#
# A spec is text. A leaf is a dtype code and a rank ("f8:2"), a tuple "(a,b)", a named tuple
# "{x=a,y=b}", nothing "n". It is parsed once per signature; its type then makes decoding
# static. The leaves themselves are a pointer and a shape each, in a buffer of Int64.

"The dtypes that cross, by NumPy's codes. Python has the same list."
const DTYPES = (
    b1=Bool, i1=Int8, i2=Int16, i4=Int32, i8=Int64, u1=UInt8, u2=UInt16, u4=UInt32, u8=UInt64,
    f2=Float16, f4=Float32, f8=Float64, c8=ComplexF32, c16=ComplexF64
)
const Wired = Union{values(DTYPES)...}
dtype_index(::Type{T}) where {T<:Wired} = findfirst(==(T), values(DTYPES))::Int

"A leaf: element type, rank, and whether its axes are reversed on Julia's side."
struct LeafSpec{T,N,Reversed} end
struct NothingSpec end

"""
    UnsupportedValueError(type)

Thrown when a Julia function returns something that has no place in an array program, or a JAX
function is given it.
"""
struct UnsupportedValueError <: Exception
    type::Type
end
function Base.showerror(io::IO, e::UnsupportedValueError)
    print(io, "expected numbers, arrays of numbers, tuples, named tuples, vectors, dictionaries or ",
        "structs of them, got a ", e.type, ". Numbers may be Bool, Int8 to Int64, UInt8 to UInt64, Float16 to Float64, ",
        "ComplexF32 and ComplexF64; convert the value first.")
end

"""
    UnsupportedNameError(name)

Thrown when a field or a key of a result has a name that a spec cannot hold.
"""
struct UnsupportedNameError <: Exception
    name::Symbol
end
Base.showerror(io::IO, e::UnsupportedNameError) = print(io,
    "from_julia: expected names of fields and keys without any of `=,(){}:|` and control ",
    "characters, got ", repr(String(e.name)), ". Rename it in the value that is returned.")

check_name(name) = any(c -> c in "=,(){}:|" || iscntrl(c), String(name)) ?
    throw(UnsupportedNameError(name)) : nothing

# --- parsing -----------------------------------------------------------------------------

parse_spec(text::AbstractString, reversed::Bool) = first(parse_spec(text, 1, reversed))

function parse_spec(text, i, reversed)
    text[i] == 'n' && return NothingSpec(), i + 1
    text[i] == '(' && return parse_children(text, i + 1, ')', reversed)
    text[i] == '{' && return parse_fields(text, i + 1, reversed)
    m = match(r"\G(\w+):(\d+)", text, i)
    T = DTYPES[Symbol(m[1])]
    return LeafSpec{T,parse(Int, m[2]),reversed}(), i + length(m.match)
end

function parse_children(text, i, stop, reversed)
    children = []
    while text[i] != stop
        child, i = parse_spec(text, i, reversed)
        push!(children, child)
        text[i] == ',' && (i += 1)
    end
    return Tuple(children), i + 1
end

function parse_fields(text, i, reversed)
    names, children = Symbol[], []
    while text[i] != '}'
        stop = findnext('=', text, i)
        push!(names, Symbol(text[i:prevind(text, stop)]))
        child, i = parse_spec(text, stop + 1, reversed)
        push!(children, child)
        text[i] == ',' && (i += 1)
    end
    return NamedTuple{Tuple(names)}(Tuple(children)), i + 1
end

# --- from Python -------------------------------------------------------------------------

mutable struct Cursor
    position::Ptr{Int64}
end
function take!(cursor::Cursor)
    value = unsafe_load(cursor.position)
    cursor.position += sizeof(Int64)
    return value
end

# Every array is copied into Julia's own memory, so that a function that mutates its argument
# never changes the caller's.
decode(::NothingSpec, cursor) = nothing
decode(spec::Tuple, cursor) = map(child -> decode(child, cursor), spec)
decode(spec::NamedTuple, cursor) = map(child -> decode(child, cursor), spec)
decode(::LeafSpec{T,0}, cursor) where {T} = unsafe_load(Ptr{T}(take!(cursor)))
function decode(::LeafSpec{T,N,Reversed}, cursor) where {T,N,Reversed}
    pointer = Ptr{T}(take!(cursor))
    backwards = reverse(ntuple(_ -> Int(take!(cursor)), Val(N)))
    memory = unsafe_wrap(Array, pointer, backwards)
    return Reversed || N == 1 ? copy(memory) : reverse_axes(memory)
end

# --- to Python ---------------------------------------------------------------------------

"""
    sendable(value, settle=host_array)

Turn a result into leaves that can be copied out: plain numbers, and what `settle` makes of
arrays.
"""
sendable(x::Branch, settle=host_array) = map(child -> sendable(child, settle), x)
sendable(x::Union{Nothing,AbstractZero}, settle=host_array) = nothing
sendable(x::Wired, settle=host_array) = x
sendable(x::AbstractArray, settle=host_array) = settle(x)
sendable(x::AbstractVector, settle=host_array) =
    is_container(x) ? sendable(Tuple(x), settle) : settle(x)
sendable(x, settle=host_array) = sendable(fields_of(x), settle)

host_array(x) = sendable_array(x isa Array ? x : collect(x))

"""
    plain(x)

Turn dictionaries and structs in a tree into named tuples, the keys of a dictionary in order, and
vectors of arrays or of other containers into tuples.
"""
plain(x) = x isa Union{Nothing,Number,AbstractArray,AbstractZero} ? x : plain(fields_of(x))
plain(x::Branch) = map(plain, x)
plain(x::AbstractVector) = is_container(x) ? plain(Tuple(x)) : x

# A vector holds numbers, or it is a container as a tuple is. `Any[1, 2.0]` holds numbers.
is_container(x::AbstractVector{<:Number}) = false
is_container(x::AbstractVector) =
    isempty(x) ? typeintersect(eltype(x), Number) === Union{} : !all(v -> v isa Number, x)

fields_of(x::AbstractDict) = throw(UnsupportedValueError(typeof(x)))
function fields_of(x::AbstractDict{<:Union{Symbol,AbstractString}})
    # Not by a dictionary of names: Julia 1.10 makes one in a `try`, which Mooncake refuses.
    sorted = sort!([Symbol(k) => k for k in keys(x)]; by=first)
    return NamedTuple{Tuple(name for (name, _) in sorted)}(Tuple(x[k] for (_, k) in sorted))
end
function fields_of(x::T) where {T}
    # Functions have fields, too, but nobody means them as data; numbers of a kind that does not
    # cross are no containers.
    isstructtype(T) && fieldcount(T) > 0 && !(x isa Union{Function,Number,AbstractString,Type}) ||
        throw(UnsupportedValueError(T))
    return NamedTuple{fieldnames(T)}(ntuple(i -> getfield(x, i), fieldcount(T)))
end

function sendable_array(x::Array{T}) where {T}
    isconcretetype(T) && T <: Wired && return x
    # An abstract element type, as in Real[1, 2.0], becomes the one that holds all elements.
    S = mapreduce(typeof, promote_type, x; init=Union{})
    S <: Wired && S !== Union{} || throw(UnsupportedValueError(typeof(x)))
    return convert(Array{S}, x)
end

"Write the spec of a result's type."
spec_text(::Type{Nothing}) = "n"
spec_text(::Type{T}) where {T<:Wired} = "$(keys(DTYPES)[dtype_index(T)]):0"
spec_text(::Type{Array{T,N}}) where {T,N} = "$(keys(DTYPES)[dtype_index(T)]):$N"
spec_text(::Type{T}) where {T<:Tuple} = string("(", join(map(spec_text, fieldtypes(T)), ","), ")")
function spec_text(::Type{T}) where {T<:NamedTuple}
    foreach(check_name, fieldnames(T))
    fields = map((n, t) -> "$n=$(spec_text(t))", fieldnames(T), fieldtypes(T))
    return string("{", join(fields, ","), "}")
end

# The shapes of a result's leaves, as Python sees them.
put_shapes!(out, x::Union{Number,Nothing}, reversed) = out
put_shapes!(out, x::Branch, reversed) = (foreach(c -> put_shapes!(out, c, reversed), x); out)
put_shapes!(out, x::Array, reversed) = append!(out, reversed ? reverse(size(x)) : size(x))

# Copy a result's leaves to the memory that Python has made for them.
copy_out(x::Nothing, cursor, reversed) = nothing
copy_out(x::Branch, cursor, reversed) = foreach(c -> copy_out(c, cursor, reversed), x)
copy_out(x::Number, cursor, reversed) = unsafe_store!(Ptr{typeof(x)}(take!(cursor)), x)
function copy_out(x::Array{T,N}, cursor, reversed) where {T,N}
    pointer = Ptr{T}(take!(cursor))
    if N <= 1 || reversed
        GC.@preserve x unsafe_copyto!(pointer, Base.pointer(x), length(x))
    else
        reverse_axes!(unsafe_wrap(Array, pointer, reverse(size(x))), x)
    end
    return nothing
end
