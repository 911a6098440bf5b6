# What Python calls. Four C functions, reached through ctypes: `request` for everything that
# is rare (text in, text out), `run`, `shapes` and `fetch` for the calls that have to be
# quick. None of them needs Python's interpreter lock.

const LOCK = ReentrantLock()

"Objects that Python holds by number."
mutable struct Table{T}
    next::Int
    entries::Dict{Int,T}
end
Table{T}() where {T} = Table{T}(0, Dict{Int,T}())
put!(table::Table, x) = @lock LOCK begin
    table.next += 1
    table.entries[table.next] = x
    table.next
end
Base.getindex(table::Table, id) = @lock LOCK table.entries[id]
take!(table::Table, id) = @lock LOCK pop!(table.entries, id)
drop!(table::Table, id) = @lock LOCK (delete!(table.entries, id); nothing)

const FUNCTIONS = Table{Any}()
const PREPARED = Table{Any}()
const PULLBACKS = Table{Any}()
const RESULTS = Table{Tuple{Any,Bool}}()
const REPLY = Ref("")
const FAILURES = Table{NTuple{3,String}}()

# Result types and the numbers under which Python knows their specs.
const STRUCTURES = Dict{Type,Int}()
const SPECS = String[]
structure(::Type{T}) where {T} = @lock LOCK get!(STRUCTURES, T) do
    push!(SPECS, spec_text(T))
    length(SPECS)
end

register(f) = put!(FUNCTIONS, f)

"A call that is ready to run: what to do, on which function, with which arguments."
struct Prepared{Operation,B,F,S,A,R}
    backend::B
    f::F
    spec::S
    argnums::A
end

function prepare(operation, id, backend, argnums, reversed, spec)
    f = operation == "pull" ? nothing : FUNCTIONS[parse(Int, id)]
    b = isempty(backend) ? nothing : BACKENDS[Symbol(backend)]
    b === nothing || check_available(b) || throw(BackendNotLoadedError(b))
    layout = reversed == "reversed"
    parsed = parse_spec(spec, layout)
    numbers = Val(Tuple(parse.(Int, split(argnums, ','; keepempty=false))))
    prepared = Prepared{
        Symbol(operation),typeof(b),Core.Typeof(f),typeof(parsed),typeof(numbers),layout
    }(b, f, parsed, numbers)
    return put!(PREPARED, prepared)
end

is_reversed(::Prepared{O,B,F,S,A,R}) where {O,B,F,S,A,R} = R

# JAX's gradient of a real function of z = x + iy is df/dx - i df/dy, its vjp multiplies by
# the transpose: the conjugates of what ChainRules returns and expects.
jax_convention(tree) = maptree(conj, tree)

execute(p::Prepared{:call}, cursor) = p.f(decode(p.spec, cursor)...)

function execute(p::Prepared{:value_and_grad}, cursor)
    y, gradients = value_and_gradient(p.backend, p.f, decode(p.spec, cursor), p.argnums)
    return y, jax_convention(gradients)
end

function execute(p::Prepared{:value_aux_and_grad}, cursor)
    y, gradients = value_aux_and_gradient(p.backend, p.f, decode(p.spec, cursor), p.argnums)
    return y, jax_convention(gradients)
end

function execute(p::Prepared{:pullback}, cursor)
    args = decode(p.spec, cursor)
    y, back = pullback(p.backend, p.f, args, p.argnums)
    y = sendable(y)
    id = put!(PULLBACKS, ȳ -> gradients(args, p.argnums, back(ȳ)))
    return id, y
end

function execute(p::Prepared{:pull}, cursor)
    id, ȳ = decode(p.spec, cursor)
    return jax_convention(PULLBACKS[id](jax_convention(ȳ)))
end

function execute(p::Prepared{:pushforward}, cursor)
    args, tangents = decode(p.spec, cursor)
    return pushforward(p.backend, p.f, args, tangents)
end

execute(p::Prepared{:jacobian}, cursor) =
    jacobian(p.backend, p.f, decode(p.spec, cursor), p.argnums)
execute(p::Prepared{:hessian}, cursor) =
    hessian(p.backend, p.f, decode(p.spec, cursor), p.argnums)

# --- the C functions -----------------------------------------------------------------------

const OK, FAILED = 0, 1

function guarded(work, output)
    try
        work()
        return OK
    catch exception
        failure = try
            describe_error(exception, catch_backtrace())
        catch
            (string(nameof(typeof(exception))), "its showerror method failed", "")
        end
        unsafe_store!(output, put!(FAILURES, failure))
        return FAILED
    end
end

"""
Run a prepared call. `input` holds the arguments' leaves. On success `output` gets the number
of the result, of its structure, and how many integers its shapes take; else that of the failure.
"""
function c_run(id::Int64, input::Ptr{Int64}, output::Ptr{Int64})::Int64
    return guarded(output) do
        p = PREPARED[id]
        result = sendable(Base.invokelatest(execute, p, Cursor(input)))
        shapes = put_shapes!(Int64[], result, is_reversed(p))
        unsafe_store!(output, put!(RESULTS, (result, is_reversed(p))), 1)
        unsafe_store!(output, structure(typeof(result)), 2)
        unsafe_store!(output, length(shapes), 3)
        # Most shapes fit beside; `shapes` gets those that do not.
        length(shapes) <= 61 && unsafe_copyto!(output + 3 * sizeof(Int64), pointer(shapes),
            length(shapes))
    end
end

"Write the shapes of a result, one extent after the other."
function c_shapes(id::Int64, output::Ptr{Int64})::Int64
    return guarded(output) do
        result, reversed = RESULTS[id]
        shapes = put_shapes!(Int64[], result, reversed)
        GC.@preserve shapes unsafe_copyto!(output, pointer(shapes), length(shapes))
    end
end

"Copy a result to the addresses in `pointers` and forget it."
function c_fetch(id::Int64, pointers::Ptr{Int64}, output::Ptr{Int64})::Int64
    return guarded(output) do
        result, reversed = take!(RESULTS, id)
        Base.invokelatest(copy_out, result, Cursor(pointers), reversed)
    end
end

"Run a program as XLA would, from and to the addresses in `inputs` and `outputs`."
function c_program(key::UInt64, inputs::Ptr{Ptr{Cvoid}}, outputs::Ptr{Ptr{Cvoid}},
    output::Ptr{Int64})::Int64
    return guarded(output) do
        Base.invokelatest(run_at, program(key), inputs, outputs)
    end
end

"""
Answer a request: fields of text separated by the unit separator. `output` gets the address and
the length of the reply, which stays until the next request.
"""
function c_request(text::Ptr{UInt8}, length::Int64, output::Ptr{Int64})::Int64
    return guarded(output) do
        verb, fields... = split(unsafe_string(text, length), '\x1f')
        answer = string(Base.invokelatest(REQUESTS[Symbol(verb)], String.(fields)...))
        REPLY[] = answer
        unsafe_store!(output, Int64(pointer(answer)), 1)
        unsafe_store!(output, sizeof(answer), 2)
    end
end

function load(package)
    loaded = Base.require(Main, Symbol(package))
    return Base.pkgversion(loaded)
end

function add_environment(path)
    path in LOAD_PATH || push!(LOAD_PATH, path)
    return path
end

const REQUESTS = (
    define=source -> register(evaluate(source)),
    prepare=prepare,
    structure=id -> SPECS[parse(Int, id)],
    failure=id -> join(take!(FAILURES, parse(Int, id)), '\x1f'),
    release_function=id -> drop!(FUNCTIONS, parse(Int, id)),
    release_prepared=id -> drop!(PREPARED, parse(Int, id)),
    release_pullback=id -> drop!(PULLBACKS, parse(Int, id)),
    outputs=find_outputs,
    compile=compile,
    release_program=release_program,
    load=load,
    environment=add_environment,
    version=() -> VERSION,
    collect=() -> GC.gc(),
)

"""
Addresses of the C functions, for Python: request, run, shapes, fetch, program, XLA's handler,
and Julia's own `jl_gc_safe_enter`, which libjulia does not pass on.
"""
boundary() = Int.((
    @cfunction(c_request, Int64, (Ptr{UInt8}, Int64, Ptr{Int64})),
    @cfunction(c_run, Int64, (Int64, Ptr{Int64}, Ptr{Int64})),
    @cfunction(c_shapes, Int64, (Int64, Ptr{Int64})),
    @cfunction(c_fetch, Int64, (Int64, Ptr{Int64}, Ptr{Int64})),
    @cfunction(c_program, Int64, (UInt64, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}, Ptr{Int64})),
    @cfunction(c_ffi, Ptr{Cvoid}, (Ptr{FFICallFrame},)),
    cglobal(:jl_gc_safe_enter),
))
