# What Python calls. Five C functions of three integers: `request` for everything that is
# rare (text in, text out), `run`, `shapes` and `fetch` for the calls that have to be quick,
# and `program` for the programs of compiled JAX functions where XLA cannot call them itself.
# The last integer is the address of the caller's `output`. They are reached through ctypes,
# or through the mailbox that `serve` watches. None needs Python's interpreter lock.

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
const OBSERVATIONS = Table{String}()

# What is kept for a caller to come for, by its `output`: one each, so that a caller that
# Ctrl-C took away leaves no more than one behind.
const REPLIES = Dict{Ptr{Int64},String}()
const RESULTS = Dict{Ptr{Int64},Tuple{Any,Bool}}()
const FAILURES = Dict{Ptr{Int64},NTuple{3,String}}()

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
    b = isempty(backend) ? nothing : find_backend(backend)
    b === nothing || check_available(b) || throw(BackendNotLoadedError(b))
    layout = reversed == "reversed"
    parsed = parse_spec(spec, layout)
    numbers = Val(Tuple(parse.(Int, Base.split(argnums, ','; keepempty=false))))
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

# For a number: how the system writes each gradient, before it is made dense.
function execute(p::Prepared{:representations}, cursor)
    y, back = pullback(p.backend, p.f, decode(p.spec, cursor), p.argnums)
    return y isa Real ? [representation(x̄) for x̄ in Tuple(back(one(y)))] : Int[]
end

# For a number, under which `observation` gives the text.
execute(p::Prepared{:observation}, cursor) =
    put!(OBSERVATIONS, observation(p.backend, p.f, decode(p.spec, cursor)))

# The numbers are those of `REPRESENTATIONS` in pybridge/interop/julia_derivatives.py.
representation(::Nothing) = 1
representation(::NoTangent) = 2
representation(::AbstractZero) = 3
representation(x̄) = nameof(typeof(x̄)) in (:Fill, :Zeros) && all(iszero, x̄) ? 4 : 0

execute(p::Prepared{:jacobian}, cursor) =
    jacobian(p.backend, p.f, decode(p.spec, cursor), p.argnums)
execute(p::Prepared{:hessian}, cursor) =
    hessian(p.backend, p.f, decode(p.spec, cursor), p.argnums)

# --- the C functions -----------------------------------------------------------------------

const OK, FAILED = 0, 1

# The worker lets interrupts wait (`jl_sigatomic_begin`), except inside a `try`: one that
# comes between two calls, where nobody can catch it, would end the process. In a call from
# Python code that Julia called they are let through already.
const WORKING = Ref(false)

"In a Python process an interrupt, which Python passes on, ends the call that is running."
be_guest() = Base.exit_on_sigint(false)

"In a Julia program interrupts are the program's own affair."
be_host() = (WORKING[] = true; nothing)

function guarded(work, output)
    nested = WORKING[]
    try
        WORKING[] = true
        nested ? work() : Base.reenable_sigint(work)
        return OK
    catch exception
        failure = try
            describe_error(exception, catch_backtrace())
        catch
            (string(nameof(typeof(exception))), "its showerror method failed", "")
        end
        @lock LOCK FAILURES[output] = failure
        return FAILED
    finally
        WORKING[] = nested
    end
end

"""
Run a prepared call. `input` holds the arguments' leaves. `output` holds what Python expects: the
number of the result's structure, how many integers its shapes take, those, and the leaves'
addresses; a 0 where it expects nothing. If it is so, the leaves are written there and `output`
gets a 0. Otherwise `output` gets what came instead, and `fetch` the leaves.
"""
function c_run(id::Int64, input::Ptr{Int64}, output::Ptr{Int64})::Int64
    return guarded(output) do
        p = PREPARED[id]
        result = sendable(Base.invokelatest(execute, p, Cursor(input)))
        Base.invokelatest(hand_over, result, output, is_reversed(p))
    end
end

function hand_over(result, output, reversed)
    kind, shapes = structure(typeof(result)), put_shapes!(Int64[], result, reversed)
    count = length(shapes)
    if is_expected(output, kind, shapes)
        copy_out(result, Cursor(output + sizeof(Int64) * (2 + count)), reversed)
        unsafe_store!(output, 0, 1)
    else
        @lock LOCK RESULTS[output] = (result, reversed)
        unsafe_store!(output, kind, 1)
        unsafe_store!(output, count, 2)
        # Most shapes fit beside; `shapes` gets those that do not.
        count <= 62 && unsafe_copyto!(output + 2 * sizeof(Int64), pointer(shapes), count)
    end
    return nothing
end

is_expected(output, kind, shapes) =
    unsafe_load(output, 1) == kind && unsafe_load(output, 2) == length(shapes) &&
    all(i -> unsafe_load(output, 2 + i) == shapes[i], eachindex(shapes))

"Write the shapes of the result, one extent after the other, to the room for `count`."
function c_shapes(count::Int64, room::Ptr{Int64}, output::Ptr{Int64})::Int64
    return guarded(output) do
        result, reversed = @lock LOCK RESULTS[output]
        shapes = put_shapes!(Int64[], result, reversed)
        GC.@preserve shapes unsafe_copyto!(room, pointer(shapes), count)
    end
end

"Copy the result to the `count` addresses in `pointers` and forget it."
function c_fetch(count::Int64, pointers::Ptr{Int64}, output::Ptr{Int64})::Int64
    return guarded(output) do
        result, reversed = @lock LOCK pop!(RESULTS, output)
        Base.invokelatest(copy_out, result, Cursor(pointers), reversed)
    end
end

"Run a program as XLA would; `addresses` holds those of its operands and then its results."
function c_program(key::Int64, addresses::Ptr{Ptr{Cvoid}}, output::Ptr{Int64})::Int64
    return guarded(output) do
        Base.invokelatest(run_at, program(reinterpret(UInt64, key)), addresses)
    end
end

"""
Answer a request: fields of text separated by the unit separator. `output` gets the address and
the length of the reply, which stays until the next request with this `output`.
"""
function c_request(length::Int64, text::Ptr{UInt8}, output::Ptr{Int64})::Int64
    return guarded(output) do
        verb, fields... = Base.split(unsafe_string(text, length), '\x1f')
        answer = string(Base.invokelatest(REQUESTS[Symbol(verb)], String.(fields)...))
        @lock LOCK REPLIES[output] = answer
        unsafe_store!(output, Int64(pointer(answer)), 1)
        unsafe_store!(output, sizeof(answer), 2)
    end
end

# Where in the mailbox Python writes, and, a cache line further, where `c_serve` does.
const REQUESTED, FUNCTION, ARGUMENTS, LEAVE = 1, 2, 3, 6
const ANSWERED, STATUS, SERVING = 9, 10, 11

look(mailbox, place) =
    Core.Intrinsics.atomic_pointerref(mailbox + 8 * (place - 1), :acquire)
note(mailbox, place, x) =
    Core.Intrinsics.atomic_pointerset(mailbox + 8 * (place - 1), Int64(x), :release)

"""
Answer the requests that come by the mailbox: the address of a C function and its arguments,
under a number that is new for each. Return when none has come for `patience` nanoseconds,
or at once when Python says so; with no patience, after the request that is there, if any.
"""
function c_serve(mailbox::Ptr{Int64}, patience::Int64)::Int64
    note(mailbox, SERVING, patience > 0)
    while true
        try
            found = await(mailbox, patience)
            # An interrupt that waits came too late for the call that it was meant for.
            Base.reenable_sigint(() -> nothing)
            found || break
            answer(mailbox)
        catch exception
            exception isa InterruptException || rethrow()
        end
    end
    note(mailbox, SERVING, false)
    return OK
end

# The thread does not sleep, because waking it takes longer than most calls. Meanwhile it
# touches nothing of Julia's, and collections go on without it.
function await(mailbox, patience)
    answered = look(mailbox, ANSWERED)
    state = ccall(:jl_gc_safe_enter, Int8, ())
    deadline = time_ns() + patience
    found = false
    while !(patience > 0 && look(mailbox, LEAVE) != 0)
        found = look(mailbox, REQUESTED) != answered
        (found || time_ns() >= deadline) && break
        give_way()
    end
    ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
    return found
end

# Another thread may need this processor more, the caller's for one.
@static if Sys.iswindows()
    give_way() = ccall(:jl_cpu_pause, Cvoid, ())
else
    give_way() = (ccall(:sched_yield, Cint, ()); nothing)
end

function answer(mailbox)
    number = look(mailbox, REQUESTED)
    first, second, third = ntuple(i -> unsafe_load(mailbox, ARGUMENTS + i - 1), 3)
    status = Int64(FAILED)
    try
        # By its address, so that it runs in the newest world, as when ctypes calls it.
        status = ccall(Ptr{Cvoid}(unsafe_load(mailbox, FUNCTION)), Int64,
            (Int64, Int64, Int64), first, second, third)
    finally
        note(mailbox, STATUS, status)
        note(mailbox, ANSWERED, number)
    end
    return nothing
end

function add_environment(path)
    path in LOAD_PATH || push!(LOAD_PATH, path)
    return path
end

const REQUESTS = (
    define=(source, packages) ->
        register(evaluate(source, Base.split(packages, ','; keepempty=false))),
    define_lowered=(source, constants) -> Lowering.define_lowered(source, constants),
    with_keywords=(id, source) -> register(with_keywords(
        FUNCTIONS[parse(Int, id)], Base.invokelatest(evaluate("() -> $source", String[])))),
    prepare=prepare,
    structure=id -> SPECS[parse(Int, id)],
    failure=id -> join((@lock LOCK pop!(FAILURES, Ptr{Int64}(parse(Int, id)))), '\x1f'),
    release_function=id -> drop!(FUNCTIONS, parse(Int, id)),
    release_prepared=id -> drop!(PREPARED, parse(Int, id)),
    release_pullback=id -> drop!(PULLBACKS, parse(Int, id)),
    outputs=find_outputs,
    observation=id -> take!(OBSERVATIONS, parse(Int, id)),
    compile=compile,
    release_program=release_program,
    limit_pullbacks=limit_pullbacks,
    define_model=(source, packages) -> define_model(source, packages),
    fresh_model=(fields...) -> fresh_model(fields...),
    model_text=id -> Base.invokelatest(model_text, MODELS[parse(Int, id)]),
    model_function=(id, name) -> model_function(id, name),
    release_model=id -> drop!(MODELS, parse(Int, id)),
    load=load,
    check_backend=name -> (find_backend(name); ""),
    device=name -> check_available(DEVICES[Symbol(name)]),
    environment=add_environment,
    version=() -> VERSION,
    collect=() -> GC.gc(),
)

"""
Addresses for Python, with spaces between: of the C functions (request, run, shapes, fetch,
program), of XLA's handlers for CPUs and for NVIDIA's GPUs, of `c_serve`, and of functions that
libjulia does not pass on: those that keep interrupts waiting, that go into the GC-safe state and
back, and that tell the task.
"""
boundary() = join(Int[
    @cfunction(c_request, Int64, (Int64, Ptr{UInt8}, Ptr{Int64})),
    @cfunction(c_run, Int64, (Int64, Ptr{Int64}, Ptr{Int64})),
    @cfunction(c_shapes, Int64, (Int64, Ptr{Int64}, Ptr{Int64})),
    @cfunction(c_fetch, Int64, (Int64, Ptr{Int64}, Ptr{Int64})),
    @cfunction(c_program, Int64, (Int64, Ptr{Ptr{Cvoid}}, Ptr{Int64})),
    @cfunction(c_ffi, Ptr{Cvoid}, (Ptr{FFICallFrame},)),
    @cfunction(c_cuda, Ptr{Cvoid}, (Ptr{FFICallFrame},)),
    @cfunction(c_serve, Int64, (Ptr{Int64}, Int64)),
    cglobal(:jl_sigatomic_begin),
    cglobal(:jl_gc_safe_enter),
    cglobal(:jl_gc_safe_leave),
    cglobal(:jl_get_current_task),
], ' ')
