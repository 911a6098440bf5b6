# XLA's foreign function interface, as xla/ffi/api/c_api.h lays it out (API version 0). XLA calls
# `c_ffi`, or `c_cuda`, on any of its threads, with pointers to the arrays; no Python is involved.

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
    error_message::Ptr{Cvoid}
    error_destroy::Ptr{Cvoid}
    handler_register::Ptr{Cvoid}
    stream::Ptr{Cvoid}
    others::NTuple{12,Ptr{Cvoid}}
    device_ordinal::Ptr{Cvoid}
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
const METADATA_VERSION = sizeof(Csize_t) + fieldoffset(FFIVersion, 3)
const METADATA_TRAITS = sizeof(Csize_t) + sizeof(FFIVersion)

struct FFIErrorArguments
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    message::Cstring
    code::Cint
end
const FFI_INTERNAL = 13

"The version of the interface that this file follows."
const FFI_VERSION = (Cint(0), Cint(1))

# What several functions of the interface take: an object, and the room for what is asked of it.
struct FFIQuestion
    struct_size::Csize_t
    extension::Ptr{Cvoid}
    object::Ptr{Cvoid}
    answer::Ptr{Cvoid}
end

"XLA's handler on CPUs."
c_ffi(frame::Ptr{FFICallFrame})::Ptr{Cvoid} = answer_call(frame, Host())

"XLA's handler on NVIDIA's GPUs."
c_cuda(frame::Ptr{FFICallFrame})::Ptr{Cvoid} = answer_call(frame, CUDADevice())

"""
Run the program that the attribute names on the buffers of the call. Returns a null pointer, or
XLA's error object.
"""
function answer_call(frame, device)
    call = unsafe_load(frame)
    call.extension == C_NULL || return answer_query(Ptr{FFIExtension}(call.extension))
    try
        attribute = unsafe_load(Ptr{FFIScalar}(unsafe_load(call.attributes.values)))
        Base.invokelatest(run_call, program(unsafe_load(attribute.value)), device, frame)
        return C_NULL
    catch exception
        return ffi_error(call, failure_text(exception, catch_backtrace()))
    end
end

# The barriers behind which everything is typed.
function run_call(p::Program, device, frame)
    call = unsafe_load(frame)
    data(values, i) = unsafe_load(Ptr{FFIBuffer}(unsafe_load(values, i))).data
    inputs = map(i -> data(call.arguments.values, i), places(p.operands))
    outputs = map(i -> data(call.results.values, i), places(p.results))
    in_order(() -> run(p, device, inputs, outputs), device, frame)
    return nothing
end

function run_at(p::Program, addresses)
    run(p, Host(), map(i -> unsafe_load(addresses, i), places(p.operands)),
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
    # Not fit for a command buffer: what is captured once and replayed would be the kernels of
    # one call, and Julia would not be called again.
    unsafe_store!(Ptr{UInt32}(query.metadata + METADATA_TRAITS), 0x00)
    return C_NULL
end

"The stream of a call: what the device does for XLA, in order. An error on CPUs, which have none."
xla_stream(frame) = ask_xla(frame, :stream)

"The number of the device of a call, as CUDA counts."
device_ordinal(frame) = Int(UInt(ask_xla(frame, :device_ordinal)) % Int32)

function ask_xla(frame, what)
    call = unsafe_load(frame)
    api = unsafe_load(call.api)
    about(object) = FFIQuestion(sizeof(FFIQuestion), C_NULL, object, C_NULL)
    question = Ref(about(call.context))
    failure = ccall(getfield(api, what), Ptr{Cvoid}, (Ref{FFIQuestion},), question)
    failure == C_NULL && return question[].answer
    question[] = about(failure)
    ccall(api.error_message, Cvoid, (Ref{FFIQuestion},), question)
    message = unsafe_string(Ptr{UInt8}(question[].answer))
    ccall(api.error_destroy, Cvoid, (Ref{FFIQuestion},), question)
    error("XLA does not tell the $(replace(string(what), '_' => ' ')) of a call: $message")
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
