# Load a package for Python, so that what goes wrong is one sentence for the user and not pages
# of stack traces: Julia prints those where a package or an extension fails to precompile, and
# goes on without the extension.

"""
    NotLoadedError(package, reason)

Thrown when a package, or PyBridge's extension for it, does not load. The reason is the first
line of the error behind it.
"""
struct NotLoadedError <: Exception
    package::String
    reason::String
end
Base.showerror(io::IO, e::NotLoadedError) = print(io, e.reason)

"""
    load(package) -> version

Load a package into `Main`, and with it PyBridge's extension for it, if there is one. Throws
an `ArgumentError` if no environment has the package, and a [`NotLoadedError`](@ref) if it or
the extension fails. What it prints on stderr meanwhile is shown if all goes well, and part of
the error otherwise.
"""
function load(package)
    if Base.identify_package(package) === nothing
        throw(ArgumentError("Package $package not found in the current environments"))
    end
    # Julia 1.10 has it from the start, but an extension that wants it, as Mooncake's for NNlib,
    # waits until somebody asks for it by name.
    Base.require(Base.PkgId(LinearAlgebra))
    problems = Problems()
    file, io = mktemp()
    loaded = try
        redirect_stderr(io) do
            with_logger(() -> Base.require(Main, Symbol(package)), problems)
        end
    catch exception
        push!(problems.exceptions, exception)
        nothing
    finally
        close(io)
    end
    printed = read(file, String)
    rm(file)
    if loaded === nothing || lacks_extension(package)
        throw(NotLoadedError(package, reason(printed, problems.exceptions)))
    end
    print(stderr, printed)
    return Base.pkgversion(loaded)
end

function lacks_extension(package)
    name = "PyBridge$(package)Ext"
    exists = isfile(joinpath(pkgdir(@__MODULE__), "ext", "$name.jl"))
    return exists && Base.get_extension(@__MODULE__, Symbol(name)) === nothing
end

# The exceptions that are logged: Julia goes on without an extension that fails.
struct Problems <: AbstractLogger
    exceptions::Vector{Any}
end
Problems() = Problems([])
Logging.min_enabled_level(::Problems) = Logging.Info
Logging.shouldlog(::Problems, arguments...) = true
function Logging.handle_message(
    logger::Problems, level, message, arguments...; exception=nothing, options...
)
    exception === nothing || push!(logger.exceptions, exception)
    level < Logging.Error && println(stderr, message)
    return nothing
end

# Where precompilation fails, in a process of its own, the exception says no more than that; the
# error is in what that process printed, which Julia 1.12 puts into the exception's message.
function reason(printed, exceptions)
    messages = map(message_of, exceptions)
    text = join((printed, messages...), '\n')
    errors = [m[1] for m in eachmatch(r"^\W*ERROR: (?:LoadError: )*(.+)$"m, text)]
    filter!(!startswith(r"Failed to precompile|The following"), errors)
    isempty(errors) || return first(errors)
    isempty(messages) && return "it has no extension for PyBridge"
    return first(eachsplit(first(messages), '\n'))
end

message_of(stack::Base.ExceptionStack) = message_of(first(stack).exception)
message_of((exception, _)::Tuple) = message_of(exception)
message_of(exception) = describe_error(exception, [])[2]
