# Julia source given from Python becomes a callable in a module of its own.

"The file name that a user's source has in error messages and backtraces."
const SOURCE_NAME = "julia source"

"""
    NotCallableError(value)

Thrown when Julia source gives something that cannot be called.
"""
struct NotCallableError <: Exception
    summary::String
end
function Base.showerror(io::IO, e::NotCallableError)
    print(io, "expected Julia source whose value is a function, such as \"x -> sum(abs2, x)\", or a ",
        "Flux model, such as \"Dense(2 => 3)\", got ", e.summary, ".")
end

# An anonymous module is collected when nothing names it, and with it the types of the functions
# that were made in it: Julia's collector does not follow an object to its type.
const SANDBOXES = Module[]

"""
    sandbox(packages) -> Module

Make a module for one source.
"""
function sandbox(packages)
    made = Module(gensym(:julia_source))
    push!(SANDBOXES, made)
    Core.eval(made, quote
        const PyBridge = $PyBridge
        const NNlib = $NNlib
        const ChainRulesCore = $ChainRulesCore
        using .PyBridge, .NNlib
    end)
    for name in Symbol.(packages)
        isdefined(made, name) && continue
        Core.eval(made, :(const $name = $(Base.require(Main, name))))
    end
    return made
end

"""
    evaluate(source, packages=()) -> callable

Evaluate Julia source in a new module where PyBridge and NNlib are imported, and return its
last value, which has to be callable. Of other packages, which have to be loaded already, the
names are there: `Flux.relu`.
"""
function evaluate(source::AbstractString, packages=())
    value = Base.include_string(sandbox(packages), source, SOURCE_NAME)
    is_callable(value) || throw(NotCallableError(
        value === nothing ? "nothing" : "$(repr(value; context=:limit => true)), a $(typeof(value))"))
    return value
end

"""
    admit(f) -> number or message

Register a function that Python holds as a juliacall value, or say what is wrong with it.
"""
function admit(f)
    is_callable(f) || return "a $(typeof(f)), which cannot be called"
    held = python_value(f)
    held === nothing || return "a function that holds a Python object (a $held): compiled " *
        "programs call Julia without Python's interpreter lock, and a JAX tracer is gone by then"
    return register(f)
end

# The type of a Python object among the variables that a function closes over.
function python_value(x, depth=4)
    T = typeof(x)
    nameof(Base.moduleroot(parentmodule(T))) in (:PythonCall, :PyCall) && return nameof(T)
    leaf = T <: Union{Number,AbstractArray{<:Number},AbstractString,Symbol,Type,Module}
    (depth == 0 || leaf) && return nothing
    for i in 1:fieldcount(T)
        isdefined(x, i) || continue
        found = python_value(getfield(x, i), depth - 1)
        found === nothing || return found
    end
    return nothing
end

is_callable(f) = f isa Base.Callable || !isempty(methods(f))

"""
    describe_error(exception, backtrace) -> (type, message, lines)

Put an exception into words: its type, what `showerror` says, and those lines of the backtrace
that are the user's: neither Julia's, nor a package's, nor PyBridge's.
"""
function describe_error(exception, backtrace)
    # `include_string` and tasks wrap what goes wrong; the user wants what was wrapped.
    while exception isa Union{LoadError,TaskFailedException}
        if exception isa LoadError
            exception = exception.error
        else
            exception, backtrace = first(current_exceptions(exception.task))
        end
    end
    exception = is_stack_overflow(exception, backtrace) ? StackOverflowError() : exception
    frames = filter(is_users, inner_frames(backtrace))
    lines = unique!(["  $(f.func) at $(source_file(f)):$(f.line)" for f in frames])
    message = sprint(showerror, exception; context=:limit => true)
    return map(as_text, (string(nameof(typeof(exception))), message,
        join(first(lines, 12), '\n')))
end

# On a thread that Julia did not start it does not know where the stack ends: writing to the page
# behind looks like writing to memory that can only be read.
is_stack_overflow(exception, backtrace) = exception isa ReadOnlyMemoryError &&
    length(backtrace) > 1000 && length(unique(Iterators.take(backtrace, 1000))) < 500

# Julia's strings may hold any bytes. What leaves is UTF-8, without the character that separates
# the fields of a reply, and without the zero that would end a C string.
as_text(text) = map(c -> isvalid(c) && !(c in ('\0', '\x1f')) ? c : '\ufffd', text)

# The frames up to the C function through which Python or XLA came in. To look up one of XLA's
# frames behind it takes some 40 ms.
function inner_frames(backtrace)
    frames = StackTraces.StackFrame[]
    for address in backtrace
        found = StackTraces.lookup(address)
        append!(frames, found)
        any(is_entrance, found) && break
    end
    return frames
end

function is_entrance(frame)
    is_c_function = startswith(String(frame.func), "c_") && !frame.from_c
    return is_c_function && startswith(source_file(frame), pkgdir(PyBridge))
end

# Julia puts "./" before a name without a folder.
source_file(frame) = chopprefix(String(frame.file), joinpath(".", ""))

is_users(frame) = !frame.from_c && is_users(source_file(frame))
function is_users(file::AbstractString)
    file == SOURCE_NAME && return true
    isabspath(file) || return false   # Base's own files, such as math.jl
    # The libraries that come with Julia have the paths of the machine on which it was built.
    file = Base.fixup_stdlib_path(String(file))
    foreign = (pkgdir(PyBridge), Sys.STDLIB, dirname(Sys.BINDIR),
        map(depot -> joinpath(depot, "packages"), DEPOT_PATH)...)
    return !any(root -> startswith(file, root), foreign)
end
