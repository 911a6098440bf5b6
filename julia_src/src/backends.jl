# The AD systems behind one interface. A system is a type; its extension flips
# `check_available` and adds methods for what it does natively. What it cannot do is refused by
# the fallbacks, with the systems that can.

abstract type AbstractBackend end
struct ZygoteBackend <: AbstractBackend end
struct ForwardDiffBackend <: AbstractBackend end
struct TrackerBackend <: AbstractBackend end
struct YotaBackend <: AbstractBackend end
struct MooncakeBackend <: AbstractBackend end
struct EnzymeBackend <: AbstractBackend end
struct ReverseDiffBackend <: AbstractBackend end

"The AD systems by the names that Python uses."
const BACKENDS = (
    zygote=ZygoteBackend(), forwarddiff=ForwardDiffBackend(), tracker=TrackerBackend(),
    yota=YotaBackend(), mooncake=MooncakeBackend(), reversediff=ReverseDiffBackend(),
    enzyme=EnzymeBackend()
)

"""
    InterfaceBackend(adtype, name)

Whatever AD system DifferentiationInterface reaches by a type of ADTypes, as `AutoFiniteDiff()`.
`name` is what Python calls it: `"di:AutoFiniteDiff()"`.
"""
struct InterfaceBackend{A} <: AbstractBackend
    adtype::A
    name::String
end

"""
    find_backend(name) -> AbstractBackend

The AD system of a name that Python uses: one of [`BACKENDS`](@ref), or `di:` and an expression
of ADTypes.
"""
find_backend(name) =
    startswith(name, "di:") ? interface_backend(String(name)) : BACKENDS[Symbol(name)]

"Read the expression of ADTypes in a name. The extension of DifferentiationInterface does it."
function interface_backend end

"""
    check_available(backend) -> Bool

Tell whether the package of an AD system is loaded.
"""
check_available(::AbstractBackend) = false

backend_name(b::AbstractBackend) = String(keys(BACKENDS)[findfirst(==(b), values(BACKENDS))])
backend_name(b::InterfaceBackend) = b.name
package_name(b::AbstractBackend) = chopsuffix(String(nameof(typeof(b))), "Backend")
package_name(b::InterfaceBackend) = b.name

"""
    UnknownBackendError(name, constructors)

Thrown for `di:` and something else than one of ADTypes' `constructors` with literal arguments.
"""
struct UnknownBackendError <: Exception
    name::String
    constructors::Vector{Symbol}
end
Base.showerror(io::IO, e::UnknownBackendError) = print(io,
    "backend=\"", e.name, "\": expected di: and the constructor of a type of ADTypes with literal ",
    "arguments, as in \"di:AutoFiniteDiff()\" or \"di:AutoForwardDiff(; chunksize=4)\". The ",
    "constructors are ", join(e.constructors, ", "), ".")

"""
    BackendNotLoadedError(backend)

Thrown when an AD system is asked for whose package is not loaded.
"""
struct BackendNotLoadedError <: Exception
    backend::AbstractBackend
end
function Base.showerror(io::IO, e::BackendNotLoadedError)
    name = package_name(e.backend)
    print(io, "$name is not loaded. Type `using $name` (after `import Pkg; ",
        "Pkg.add(\"$name\")`) and call again.")
end

"""
    UnsupportedModeError(backend, what, instead)

Thrown when an AD system cannot do what is asked of it.
"""
struct UnsupportedModeError <: Exception
    backend::AbstractBackend
    what::String
    instead::String
end
function Base.showerror(io::IO, e::UnsupportedModeError)
    print(io, package_name(e.backend), " cannot do this: ", e.what, ". ", e.instead)
end

"""
    NonScalarError(y)

Thrown when the gradient of a function is asked for whose value is no number.
"""
struct NonScalarError <: Exception
    summary::String
end
function Base.showerror(io::IO, e::NonScalarError)
    print(io, "grad: expected a function whose value is one real number, got ", e.summary,
        ". Use jacobian or vjp, or reduce the value, for example with sum.")
end

"""
    NoAuxiliaryError(summary)

Thrown when the gradient of a function is asked for that returns no pair of a value and something else.
"""
struct NoAuxiliaryError <: Exception
    summary::String
end
Base.showerror(io::IO, e::NoAuxiliaryError) = print(io, "grad with has_aux: expected a function whose ",
    "value is a pair (value, aux), got ", e.summary, ". Return both, or leave has_aux out.")

function refuse(b::AbstractBackend, what, instead)
    check_available(b) || throw(BackendNotLoadedError(b))
    throw(UnsupportedModeError(b, what, instead))
end

# Python's `backend="jax"` is no advice: for a Julia function it means the system in its `ad=`.
const COMPLEX_ADVICE = "Use \"zygote\", as backend= or as ad= of from_julia."

check_scalar(y::Real) = y
check_scalar(y) = throw(NonScalarError(describe_value(y)))
describe_value(y::AbstractArray) = "an array of size $(size(y))"
describe_value(y::Complex) = "a complex number"
describe_value(y) = "a $(typeof(y))"

"""
    pullback(backend, f, args::Tuple, argnums::Val) -> (y, back)

Run `f(args...)` in reverse mode. `back(ȳ)` returns the cotangents of the arguments in
`argnums`, as the AD system represents them, in ChainRules' convention for complex numbers.
"""
function pullback(b::AbstractBackend, f, args, argnums)
    refuse(b, "reverse mode; it has forward mode only",
        "Use backend=\"zygote\", \"tracker\", \"yota\", \"mooncake\" or \"reversediff\".")
end

"""
    pushforward(backend, f, args::Tuple, tangents::Tuple) -> (y, ẏ)

Push tangents forward through `f` at `args`.
"""
function pushforward(b::AbstractBackend, f, args, tangents)
    refuse(b, "forward mode; it has reverse mode only",
        "Use backend=\"forwarddiff\" or \"mooncake\". jax.jvp works with every system.")
end

"""
    value_and_gradient(backend, f, args::Tuple, argnums::Val) -> (y, gradients)

Value and gradient of a scalar function; the gradients are dense and shaped like the
arguments.

# Arguments
- `backend`: one of the values of `PyBridge.BACKENDS`.
- `f`: a function whose value is a real number.
- `args`: its arguments: numbers, arrays, tuples, named tuples.
- `argnums`: the numbers of the arguments to differentiate, from 1, as in `Val((1,))`.

The twin in Python is `pybridge.value_and_grad`.
"""
function value_and_gradient(b::AbstractBackend, f, args, argnums)
    y, back = pullback(b, f, args, argnums)
    check_scalar(y)
    return y, gradients(args, argnums, back(one(y)))
end

"""
    value_aux_and_gradient(backend, f, args, argnums) -> ((y, aux), gradients)

The same for a function that returns its value and something else that is not differentiated.
"""
function value_aux_and_gradient(b::AbstractBackend, f, args, argnums)
    out, back = pullback(b, f, args, argnums)
    y, aux = split_aux(out)
    check_scalar(y)
    return (y, aux), gradients(args, argnums, back(aux_seed(b, out)))
end

split_aux(out::Tuple{Any,Any}) = out
split_aux(out) = throw(NoAuxiliaryError(describe_value(out)))

aux_seed(::AbstractBackend, out) = (one(first(out)), NoTangent())

function gradients(args, ::Val{argnums}, x̄s) where {argnums}
    return map((i, x̄) -> dense(args[i], x̄), argnums, Tuple(x̄s))
end

"""
    jacobian(backend, f, args::Tuple, argnums::Val) -> (y, J)

Jacobian as a matrix, one row for each element of the value and one column for each element
of the arguments in `argnums`, both in [`ravel`](@ref)'s order. Reverse mode, one pullback a
row; forward-mode systems have a method of their own.
"""
function jacobian(b::AbstractBackend, f, args, argnums)
    y, back = pullback(b, f, args, argnums)
    y = plain(y)
    rows = map(basis(y)) do ȳ
        ravel(gradients(args, argnums, back(ȳ)))
    end
    columns = number_count(map(i -> args[i], typeof(argnums).parameters[1]))
    T = mapreduce(eltype, promote_type, rows; init=Bool)
    J = Matrix{isempty(rows) ? Float64 : T}(undef, length(rows), columns)
    foreach(((i, row),) -> J[i, :] = row, enumerate(rows))
    return y, J
end

# The cotangents that pick one element of a tree each, in ravel's order.
function basis(y)
    n, T = number_count(y), float(real(number_type(y)))
    return [unravel(y, unit_vector(T, n, i)) for i in 1:n]
end
unit_vector(T, n, i) = (v = zeros(T, n); v[i] = 1; v)

"""
    hessian(backend, f, args::Tuple, argnums::Val) -> H

Hessian of a scalar function as a matrix over the elements of the arguments in `argnums`.
"""
function hessian(b::AbstractBackend, f, args, argnums)
    refuse(b, "second derivatives",
        "Use backend=\"forwarddiff\", \"zygote\" or \"mooncake\". " *
        "jax.hessian works with every system.")
end
