# JAX functions as Julia functions. Python gives one C function; each call says which object
# is asked and what for, passes the arguments' leaves by address, and gets the results'
# leaves by address. Nothing here knows PythonCall.

const ASK = Ref{Ptr{Cvoid}}(C_NULL)

"Keep the address of Python's C function."
connect(address) = (ASK[] = Ptr{Cvoid}(UInt(address)); nothing)

# --- what Python holds ------------------------------------------------------------------

mutable struct Discarded
    number::Int
    next::Union{Nothing,Discarded}
end
mutable struct DiscardPile
    @atomic top::Union{Nothing,Discarded}
end
const PILE = DiscardPile(nothing)

# A finalizer may run at any allocation: it must not wait for a lock, and not call Python.
# So it puts the number on a pile without locks, and the next call takes the pile along.
function discard(number)
    node = Discarded(number, @atomic PILE.top)
    while true
        seen, done = @atomicreplace PILE.top node.next => node
        done && return nothing
        node.next = seen
    end
end

function discarded!(numbers)
    node = @atomicswap PILE.top = nothing
    while node !== nothing
        push!(numbers, node.number)
        node = node.next
    end
    return numbers
end

"An object that Python holds until this is collected."
mutable struct PythonReference
    const number::Int
    PythonReference(number) = finalizer(r -> discard(r.number), new(number))
end

# Julia's collector does not see what a pullback holds in Python, so it is told when that
# may have become much.
const UNSEEN_BYTES = Threads.Atomic{Int}(0)
const MANY_BYTES = 2^29

function count_bytes(bytes)
    if Threads.atomic_add!(UNSEEN_BYTES, bytes) + bytes > MANY_BYTES
        UNSEEN_BYTES[] = 0
        GC.gc(false)
    end
    return nothing
end

# --- calls ------------------------------------------------------------------------------

"""
    JaxError(type, lines, message)

Thrown when a JAX function raises an exception: its Python type, the lines of its traceback
that are the user's, and its message.
"""
struct JaxError <: Exception
    type::String
    lines::String
    message::String
end
function Base.showerror(io::IO, e::JaxError)
    print(io, "Python raised ", e.type, ": ", e.message)
    isempty(e.lines) || print(io, '\n', e.lines)
end

# Between the two states nothing may allocate: while the thread is in the one that lets
# others collect, it must touch no object of Julia's. Without it a collection would wait for
# this thread, and this thread for Python's lock, which the collecting thread may hold.
function call_python(number, text, length, words, output)
    target = ASK[]
    state = ccall(:jl_gc_safe_enter, Int8, ())
    status = ccall(target, Int64, (Int64, Ptr{UInt8}, Int64, Ptr{Int64}, Ptr{Int64}),
        number, text, length, words, output)
    ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
    return status
end

in_memory(x::Number) = [x]
in_memory(x::Array) = x

"""
    ask(reference, request, leaves) -> (value, kept)

Ask a Python object. `leaves` are numbers and `Array`s; `value` is a tree in Julia's own
memory, and `kept` what Python keeps to be asked later, or `nothing`.
"""
function ask(reference::PythonReference, request::String, leaves)
    ASK[] == C_NULL && error("a JaxFunction works only in the process that made it")
    arrays = map(in_memory, leaves)
    words, output = Int64[], zeros(Int64, 6)
    for (x, array) in zip(leaves, arrays)
        push!(words, Int64(pointer(array)))
        append!(words, reverse(size(x)))
    end
    status = GC.@preserve arrays words output request reference call_python(
        reference.number, pointer(request), sizeof(request), pointer(words),
        pointer(output))
    reply, address, length, cursor, number, bytes = output
    try
        text = unsafe_string(Ptr{UInt8}(address), length)
        status == OK || throw(jax_error(text))
        value = decode(parsed(text), Cursor(Ptr{Int64}(cursor)))
        return value, number == 0 ? nothing : PythonReference(number)
    finally
        numbers = discarded!([0, reply])
        numbers[1] = Base.length(numbers) - 1
        GC.@preserve numbers output call_python(
            0, C_NULL, 0, pointer(numbers), pointer(output))
        count_bytes(bytes)
    end
end

function jax_error(text)
    type, lines, message = Base.split(text, '\x1f'; limit=3)
    type == "KeyboardInterrupt" && return InterruptException()
    return JaxError(type, lines, message)
end

const PARSED = Dict{String,Any}()
# Python's arrays have the axes reversed already, so that both read the same memory.
parsed(text) = @lock LOCK get!(() -> parse_spec(text, true), PARSED, text)

spec_of(tree) = @lock LOCK SPECS[structure(typeof(tree))]

"Write down what is asked for; `interop/_programs.py` reads it."
request(operation, base, args, cotangents=(); mask="", counts="") =
    join((operation, base, mask, counts, spec_of(args), spec_of(cotangents)), '\x1f')

# --- the function -----------------------------------------------------------------------

"""
    JaxFunction

A JAX function that is called like a Julia function: what `pb.to_julia(f)` makes in Python.
Zygote and Yota differentiate it by its rule, ForwardDiff and Tracker by methods of their
own. The derivatives are JAX's.

Arguments are numbers, arrays, and tuples, named tuples, vectors and structs of them; results
are numbers, arrays, tuples and named tuples. In a Flux model it is a layer without parameters;
[`JaxLayer`](@ref) is one with.
"""
struct JaxFunction <: Function
    reference::PythonReference
    name::String
    JaxFunction(number::Integer, name) = new(PythonReference(number), String(name))
end

Base.show(io::IO, f::JaxFunction) = print(io, "JaxFunction(", f.name, ")")
Base.show(io::IO, ::MIME"text/plain", f::JaxFunction) = show(io, f)

function (f::JaxFunction)(args...)
    args = map(plain, args)
    return jax_call(carrier(args), f, args)
end

Core.kwcall(keywords::NamedTuple, f::JaxFunction, args...) = throw(ArgumentError(
    "$f: expected positional arguments alone, got the keywords $(join(keys(keywords), ", ")). Set them " *
    "in Python, as in `pb.to_julia(lambda x: f(x, k=2.0))`."))

# What carries a derivative through a call. The extensions of ForwardDiff and Tracker add
# their own, for their numbers and arrays.
abstract type AbstractCarrier end
struct Plain <: AbstractCarrier end

"Tell which AD system's numbers are among the arguments."
carrier(x) = Plain()
carrier(x::Branch) = mapreduce(carrier, outer_carrier, x; init=Plain())
carrier(x::Tangent) = carrier(ChainRulesCore.backing(x))
carrier(x::AbstractArray{T}) where {T} =
    isconcretetype(T) ? Plain() : mapreduce(carrier, outer_carrier, x; init=Plain())

# Where both are there, tracked values hold the duals.
outer_carrier(a, b) = depth(a) >= depth(b) ? a : b
depth(::Plain) = 0

function jax_call(::Plain, f, args)
    sent = sendable(args)
    return first(ask(f.reference, request("call", "value", sent), leaves(sent)))
end

"""
    jax_vjp(carrier, f, args) -> (y, pull)

Run a JAX function and keep its pullback: `pull(ȳ)` lists the cotangents of those leaves of
the arguments that are no integers. Complex numbers follow ChainRules' convention.
"""
function jax_vjp(::Plain, f, args)
    sent = sendable(args)
    y, residuals = ask(f.reference, request("pullback", "value", sent), leaves(sent))
    function pull(ȳ)
        # The cotangent may carry a derivative where the arguments do not.
        carrier(ȳ) isa Plain || return jax_transpose(carrier(ȳ), f, sent, y, ȳ)
        ȳs = dense_leaves(y, ȳ)
        return collect(Any, first(ask(residuals, spec_of(ȳs), leaves(ȳs))))
    end
    return y, pull
end

"""
    jax_transpose(carrier, f, args, y, ȳ)

Pull `ȳ` back as a function of both `args` and `ȳ`, which may carry derivatives.
"""
function jax_transpose end

is_inexact(x) = !(eltype(x) <: Integer)

"List what belongs to the leaves of the value `y` that are no integers, densely."
dense_leaves(y, ȳ) = Tuple(x̄ for (x, x̄) in zip(leaves(y), seeds(y, ȳ)) if is_inexact(x))

seeds(y::Array{T,N}, ȳ::Array{T,N}) where {T,N} =
    size(y) == size(ȳ) ? (ȳ,) : leaves(dense(y, ȳ))
seeds(y, ȳ) = leaves(dense(y, ȳ))

"""
    JaxLayer(f, params)

A JAX function with parameters, as a layer: `layer(xs...)` is `f(params, xs...)`. Flux and
Optimisers find and train the parameters.

# Arguments
- `f`: a [`JaxFunction`](@ref), or any function.
- `params`: a tree of arrays, such as `(; weight, bias)`; in Python a named tuple.
"""
struct JaxLayer{F,P}
    f::F
    params::P
end
(layer::JaxLayer)(xs...) = layer.f(layer.params, xs...)
Base.show(io::IO, layer::JaxLayer) =
    print(io, "JaxLayer(", layer.f, ", ", summary_of(layer.params), ")")

summary_of(x::AbstractArray) = join(size(x), '×')
summary_of(x::NamedTuple) =
    string("(; ", join(("$k = $(summary_of(v))" for (k, v) in pairs(x)), ", "), ")")
summary_of(x::Tuple) = string("(", join(map(summary_of, x), ", "), ")")
summary_of(x) = string(x)
