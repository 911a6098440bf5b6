# ReverseDiff: reverse mode by operator overloading on a tape. `cond` runs the branch on the
# tracked values themselves. A tape holds the branches that were taken, so it serves one run
# and is recorded anew for the next.
module PyBridgeReverseDiffExt

using ChainRulesCore: ChainRulesCore, NoTangent
using LinearAlgebra: LinearAlgebra
using NNlib: NNlib
using PrecompileTools: @compile_workload
using PyBridge: PyBridge, ForwardDiffBackend, ReverseDiffBackend
using ReverseDiff: ReverseDiff, SpecialInstruction, TrackedArray, TrackedReal

PyBridge.check_available(::ReverseDiffBackend) = true
# ReverseDiff's `float` takes a number that holds a dual one off its tape: its derivative would
# be zero, without a word.
PyBridge.for_duals(::ReverseDiffBackend) = ForwardDiffBackend()

const Tracked = Union{TrackedReal,AbstractArray{<:TrackedReal}}
const TrackedComplex = Union{Complex{<:TrackedReal},AbstractArray{<:Complex{<:TrackedReal}}}

PyBridge.within_gradient(::TrackedReal) = true
PyBridge.within_gradient(::AbstractArray{<:TrackedReal}) = true
# What Flux's layers ask. NNlib and ReverseDiff have no method, so they would not train.
NNlib.within_gradient(::Union{TrackedReal,AbstractArray{<:TrackedReal}}) = true
PyBridge.differentiation_order(x::TrackedReal) =
    1 + PyBridge.differentiation_order(ReverseDiff.value(x))

PyBridge.primal(x::TrackedReal) = PyBridge.primal(ReverseDiff.value(x))
PyBridge.primal(x::Complex{<:TrackedReal}) = complex(map(PyBridge.primal, reim(x))...)
PyBridge.primal(x::TrackedArray) = PyBridge.primal(ReverseDiff.value(x))
PyBridge.primal(x::AbstractArray{<:Union{TrackedReal,Complex{<:TrackedReal}}}) =
    map(PyBridge.primal, x)
PyBridge.primal_type(::Type{<:TrackedReal{V}}) where {V} = PyBridge.primal_type(V)

include("reversediff_tape.jl")

# --- pullbacks ------------------------------------------------------------------------------

function PyBridge.pullback(
    b::ReverseDiffBackend, f, args::Tuple, ::Val{argnums}
) where {argnums}
    any(i -> any(is_complex, PyBridge.leaves(args[i])), argnums) && PyBridge.refuse(
        b, "derivatives with respect to complex numbers", PyBridge.COMPLEX_ADVICE)
    tape = ReverseDiff.InstructionTape()
    params = map(i -> PyBridge.maptree(x -> param(x, tape), args[i]), argnums)
    places = ntuple(i -> something(findfirst(==(i), argnums), 0), length(args))
    # Tasks would write to the tape at the same time: NNlib has one for each group of a convolution.
    y = NNlib.@disallow_spawns recording(tape) do
        xs = ntuple(i -> places[i] == 0 ? args[i] : params[places[i]], length(args))
        return PyBridge.plain(f(xs...))
    end
    look_over!(tape, params)
    function back(ȳ)
        foreach(clear!, PyBridge.leaves(params))
        seed!(y, ȳ)
        ReverseDiff.reverse_pass!(tape)
        return PyBridge.maptree(x -> carries(x) ? copy(derivative(x)) : nothing, params)
    end
    return PyBridge.maptree(bare, y), back
end

is_complex(x) = eltype(x) <: Complex

param(x::Union{Integer,AbstractArray{<:Integer}}, tape) = x
function param(x::Union{Real,AbstractArray{<:Real}}, tape)
    PyBridge.within_gradient(x) && refuse_nested()
    return on_tape(own(x), tape)
end

# ReverseDiff takes arrays with linear indices; what is not Julia's own is copied into one.
own(x::Real) = float(x)
own(x::AbstractArray) = IndexStyle(x) === IndexLinear() && x isa DenseArray ? x : collect(x)
own(x::PyBridge.CopyOnWrite) = copy(x)

seed!(y::PyBridge.Branch, ȳ) = foreach(i -> seed!(y[i], ȳ[i]), keys(y))
seed!(y::PyBridge.Branch, ::PyBridge.NoGradient) = nothing
seed!(y, ::PyBridge.NoGradient) = nothing
seed!(::Nothing, ȳ) = nothing
seed!(y, ȳ) = is_complex(y) ? PyBridge.refuse(ReverseDiffBackend(),
    "derivatives of complex results", PyBridge.COMPLEX_ADVICE) : add!(y, ȳ)

# --- one gradient within another ---------------------------------------------------------------

# ReverseDiff does not tell the tapes of two gradients apart: what is computed of values of both
# ends up on either of them, and is missing from the other's derivative.
const ACTIVE = :PyBridgeReverseDiffTapes

function recording(run, tape)
    outer = get(task_local_storage(), ACTIVE, ())
    lengths = map(length, outer)
    y = task_local_storage(run, ACTIVE, (outer..., tape))
    is_own(x) = belongs(x, tape)
    is_alone = all(is_own, PyBridge.leaves(y)) && map(length, outer) == lengths &&
        (isempty(outer) || all(step -> is_own(step.input), tape))
    is_alone || refuse_nested()
    return y
end

refuse_nested() = PyBridge.refuse(ReverseDiffBackend(),
    "a derivative within another one", "Use backend=\"forwarddiff\" or \"zygote\".")

"Tell whether nothing but a tape's own derivatives is in a value."
belongs(x, tape) = true
belongs(x::Union{Tuple,NamedTuple}, tape) = all(x -> belongs(x, tape), x)
belongs(x::Complex, tape) = belongs(reim(x), tape)
belongs(x::Real, tape) = !PyBridge.within_gradient(x)
belongs(x::TrackedReal, tape) = is_on(x, tape)
belongs(x::TrackedArray, tape) = is_on(x, tape)
belongs(x::AbstractArray{T}, tape) where {T} =
    isconcretetype(T) && PyBridge.primal_type(T) === T && isbitstype(T) ||
    all(x -> belongs(x, tape), x)
is_on(x, tape) = (!ReverseDiff.hastape(x) || ReverseDiff.tape(x) === tape) &&
    !PyBridge.within_gradient(ReverseDiff.value(x))

# --- what has a rule ------------------------------------------------------------------------

# ReverseDiff does not see what a loop writes into an array.
(k::PyBridge.Keeping)(x::Tracked) =
    recorded(ȳ -> (PyBridge.linear_part(k)(ȳ),), (x,), k(bare(x)))

struct Recording <: PyBridge.AbstractCarrier end
PyBridge.carrier(::Union{Tracked,TrackedComplex}) = Recording()
PyBridge.depth(::Recording) = 2

function PyBridge.jax_call(::Recording, f, args)
    values = PyBridge.maptree(bare, args)
    of_leaves = Tuple(PyBridge.leaves(values))
    check_once(of_leaves)
    y, pull = PyBridge.jax_vjp(PyBridge.carrier(values), f, values)
    inexact = Tuple(filter(PyBridge.is_inexact, PyBridge.leaves(y)))
    outputs = recorded(Tuple(PyBridge.leaves(args)), inexact) do ȳs
        x̄s = pull(refilled(y, ȳs, nothing))
        return map(x -> PyBridge.is_inexact(x) ? popfirst!(x̄s) : nothing, of_leaves)
    end
    return refilled(y, outputs)
end

"Put values in the place of a tree's leaves that are no integers."
function refilled(tree, values, integers...)
    queue = collect(Any, values)
    return PyBridge.maptree(tree) do x
        PyBridge.is_inexact(x) ? popfirst!(queue) : first((integers..., x))
    end
end

# What a function returns beside its first value is no function of the tracked arguments.
function PyBridge.ruled(::Recording, f, args...)
    values = map(bare, args)
    check_once(values)
    y, pull = ChainRulesCore.rrule(f, values...)
    y isa Tuple || return recorded(ȳ -> cotangents(args, values, pull(ȳ)), args, y)
    others = Base.tail(y)
    main = recorded(args, first(y)) do ȳ
        cotangents(args, values, pull((ȳ, map(_ -> NoTangent(), others)...)))
    end
    return (main, others...)
end

include("reversediff_lowering.jl")

# Numbers alone: a `TrackedArray`'s supertype names the type itself, and Julia crashes when it loads
# a package image that holds one (https://github.com/JuliaLang/julia/issues/62047).
@compile_workload PyBridge.exercise(ReverseDiffBackend(), (1.0,))

end
