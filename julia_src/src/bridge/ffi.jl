# XLA's foreign function interface, as xla/ffi/api/c_api.h lays it out (API version 0). XLA calls
# `c_ffi` on any of its threads, with pointers to the arrays; no Python is involved.

struct FFIArguments
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    size::Int64
    types::Ptr{Cint}
    values::Ptr{Ptr{Cvoid}}
end

struct FFIAttributes
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    size::Int64
    types::Ptr{Cint}
    names::Ptr{Ptr{Cvoid}}
    values::Ptr{Ptr{Cvoid}}
end

struct FFIVersion
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    major::Cint
    minor::Cint
end

struct FFIApi
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    version::FFIVersion
    internal::Ptr{Cvoid}
    error_create::Ptr{Cvoid}
end

struct FFICallFrame
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    api::Ptr{FFIApi}
    context::Ptr{Cvoid}
    stage::Cint
    arguments::FFIArguments
    results::FFIArguments
    attributes::FFIAttributes
end

struct FFIBuffer
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    dtype::Cint
    data::Ptr{Cvoid}
    rank::Int64
    dims::Ptr{Int64}
end

struct FFIScalar
    dtype::Cint
    value::Ptr{UInt64}
end

# What follows the base of an extension: here a pointer to what XLA wants to know of a handler.
struct FFIExtension
    struct_size::Csize_t
    type::Cint
    next::Ptr{Cvoid}
    metadata::Ptr{Cvoid}
end
const METADATA_EXTENSION = 1
const METADATA_VERSION = fieldoffset(FFIVersion, 3) + sizeof(Csize_t)

struct FFIErrorArguments
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    message::Cstring
    code::Cint
end
const FFI_INTERNAL = 13

"The version of the interface that this file follows."
const FFI_VERSION = (Cint(0), Cint(1))

"""
XLA's handler: run the program that the attribute names on the buffers of the call. Returns a
null pointer, or XLA's error object.
"""
function c_ffi(frame::Ptr{FFICallFrame})::Ptr{Cvoid}
    call = unsafe_load(frame)
    call.extension == C_NULL || return answer_query(Ptr{FFIExtension}(call.extension))
    try
        attribute = unsafe_load(Ptr{FFIScalar}(unsafe_load(call.attributes.values)))
        Base.invokelatest(run_call, program(unsafe_load(attribute.value)),
            call.arguments.values, call.results.values)
        return C_NULL
    catch exception
        return ffi_error(call, failure_text(exception, catch_backtrace()))
    end
end

# The barriers behind which everything is typed.
function run_call(p::Program, inputs, outputs)
    data(values, i) = unsafe_load(Ptr{FFIBuffer}(unsafe_load(values, i))).data
    run(p, map(i -> data(inputs, i), places(p.operands)),
        map(i -> data(outputs, i), places(p.results)))
    return nothing
end

function run_at(p::Program, addresses)
    run(p, map(i -> unsafe_load(addresses, i), places(p.operands)),
        map(i -> unsafe_load(addresses, length(p.operands) + i), places(p.results)))
    return nothing
end

places(::NTuple{N,Any}) where {N} = ntuple(identity, Val(N))

function answer_query(extension)
    query = unsafe_load(extension)
    query.type == METADATA_EXTENSION || return C_NULL
    version = Ptr{Cint}(query.metadata + METADATA_VERSION)
    unsafe_store!(version, FFI_VERSION[1], 1)
    unsafe_store!(version, FFI_VERSION[2], 2)
    return C_NULL
end

function ffi_error(call, text)
    create = unsafe_load(call.api).error_create
    GC.@preserve text begin
        arguments = Ref(FFIErrorArguments(sizeof(FFIErrorArguments), C_NULL,
            Base.unsafe_convert(Cstring, text), FFI_INTERNAL))
        return ccall(create, Ptr{Cvoid}, (Ref{FFIErrorArguments},), arguments)
    end
end

"The text that `JuliaError` in Python has, and reads back from XLA's error."
function failure_text(exception, backtrace)
    type, message, lines = try
        describe_error(exception, backtrace)
    catch
        string(nameof(typeof(exception))), "its showerror method failed", ""
    end
    text = "Julia threw $type: $message"
    return replace(isempty(lines) ? text : "$text\n$lines", '\0' => "\\0")
end
