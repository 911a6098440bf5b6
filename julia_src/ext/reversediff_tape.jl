# Values with a derivative on a tape, and calls that are recorded as one instruction.

"""
    ComplexArray(re, im)

Complex numbers whose parts are on a tape: ReverseDiff's own arrays hold real numbers.
"""
struct ComplexArray{T<:TrackedReal,N,R<:TrackedArray,I<:TrackedArray} <: AbstractArray{Complex{T},N}
    re::R
    im::I
    ComplexArray(re::R, im::I) where {R,I} = new{eltype(R),ndims(R),R,I}(re, im)
end
Base.size(x::ComplexArray) = size(x.re)
Base.IndexStyle(::Type{<:ComplexArray}) = IndexLinear()
Base.getindex(x::ComplexArray, i::Int) = complex(x.re[i], x.im[i])
# ReverseDiff copies what it keeps; nothing writes to these.
Base.copy(x::ComplexArray) = x

const TrackedNumber = Union{TrackedReal,Complex{<:TrackedReal}}

"The value without this derivative; one around it, as of dual numbers, is kept."
bare(x) = x
bare(x::Union{TrackedReal,TrackedArray}) = ReverseDiff.value(x)
bare(x::Complex{<:TrackedReal}) = complex(map(bare, reim(x))...)
bare(x::ComplexArray) = complex.(bare(x.re), bare(x.im))
bare(x::AbstractArray{T}) where {T} =
    T <: TrackedNumber || !isconcretetype(T) ? map(bare, x) : x

carries(x) = PyBridge.carrier(x) isa Recording

on_tape(y, tape) = y
on_tape(y::Real, tape) = ReverseDiff.track(y, tape)
on_tape(y::AbstractArray{<:Real}, tape) = ReverseDiff.track(linear(y), tape)
on_tape(y::Union{Integer,AbstractArray{<:Integer}}, tape) = y
on_tape(y::Complex, tape) = complex(on_tape(real(y), tape), on_tape(imag(y), tape))
on_tape(y::AbstractArray{<:Complex}, tape) =
    ComplexArray(on_tape(real.(y), tape), on_tape(imag.(y), tape))
linear(y) = IndexStyle(y) === IndexLinear() ? y : collect(y)

"The cotangent that has been collected for a value."
derivative(y) = NoTangent()
derivative(y::Union{TrackedReal,TrackedArray}) = ReverseDiff.deriv(y)
derivative(y::Complex{<:TrackedReal}) = complex(derivative(real(y)), derivative(imag(y)))
derivative(y::ComplexArray) = complex.(derivative(y.re), derivative(y.im))
derivative(ys::Tuple) = map(derivative, ys)

clear!(y) = nothing
clear!(y::Union{TrackedReal,TrackedArray}) = ReverseDiff.unseed!(y)
clear!(y::Union{Complex{<:TrackedReal},Tuple}) = foreach(clear!, y isa Tuple ? y : reim(y))
clear!(y::ComplexArray) = (clear!(y.re); clear!(y.im))

"Add to the cotangent of a value."
add!(x, x̄) = nothing
add!(x::TrackedReal, x̄) = ReverseDiff.increment_deriv!(x, only(x̄))
function add!(x::TrackedArray, x̄)
    total = ReverseDiff.deriv(x)
    total .+= x̄ isa AbstractArray ? reshape(x̄, size(total)) : x̄
    return nothing
end
add!(x::Complex{<:TrackedReal}, x̄) = (add!(real(x), real(x̄)); add!(imag(x), imag(x̄)))
add!(x::ComplexArray, x̄) = (add!(x.re, real(x̄)); add!(x.im, imag(x̄)))
add!(x::AbstractArray, x̄) = foreach(add!, x, x̄)

tape_of(x) = ReverseDiff.NULL_TAPE
tape_of(x::Union{TrackedReal,TrackedArray}) = ReverseDiff.tape(x)
tape_of(x::Complex{<:TrackedReal}) = tape_of(reim(x))
tape_of(x::Union{Tuple,AbstractArray}) =
    x isa Tuple || carries(x) ? first_tape(x) : ReverseDiff.NULL_TAPE
function first_tape(xs)
    for x in xs
        tape = tape_of(x)
        tape === ReverseDiff.NULL_TAPE || return tape
    end
    return ReverseDiff.NULL_TAPE
end

# --- instructions ---------------------------------------------------------------------------

"The name of what is recorded here. Its cache is the way back."
struct Call end

"""
    recorded(back, inputs::Tuple, y)

Put `y`, a value or a tuple of them, on the tape of `inputs`. `back(ȳ)` gives a cotangent for
each of the inputs that carry a derivative.
"""
function recorded(back, inputs, y)
    tape = tape_of(inputs)
    output = y isa Tuple ? map(y -> on_tape(y, tape), y) : on_tape(y, tape)
    # ReverseDiff copies the arrays that it is given here; constants are none of its business.
    kept = map(x -> carries(x) ? x : nothing, inputs)
    ReverseDiff.record!(tape, SpecialInstruction, Call(), kept, output, back)
    return output
end

@noinline function ReverseDiff.special_reverse_exec!(call::SpecialInstruction{Call})
    foreach(add!, call.input, call.cache(derivative(call.output)))
    clear!(call.output)
    return nothing
end

@noinline ReverseDiff.special_forward_exec!(::SpecialInstruction{Call}) = throw(ArgumentError(
    "ReverseDiff: expected a tape to be recorded for each call, got one that is run again, as " *
    "by ReverseDiff.compile or ReverseDiff.gradient!(tape, x). It holds the branches that were " *
    "taken and the masks that were drawn when it was recorded. Use ReverseDiff.gradient(f, x)."))

"Make the cotangents of a rule dense, for those of `args` that carry a derivative."
cotangents(args, values, x̄s) = map(args, values, Base.tail(Tuple(x̄s))) do arg, x, x̄
    carries(arg) ? PyBridge.dense(x, x̄) : nothing
end

# A rule's own steps are on no tape.
check_once(values) = any(carries, values) && throw(ArgumentError(
    "ReverseDiff over ReverseDiff: expected one derivative of a function that has a rule, got " *
    "one within another. Take one of them with ForwardDiff or Zygote."))

# --- a tape as it was recorded ----------------------------------------------------------------

"""
    look_over!(tape, params)

Look for what ReverseDiff's way back would get wrong without a word; correct it or refuse it.
"""
function look_over!(tape, params)
    arrays = Base.IdSet{Any}()
    foreach(x -> note!(arrays, x), PyBridge.leaves(params))
    for (i, step) in pairs(tape)
        step isa SpecialInstruction || continue
        # `mul!` and its like write over a value that earlier steps read on the way back.
        note!(arrays, step.output) || PyBridge.refuse(ReverseDiffBackend(),
            "derivatives through an array that is written over",
            "Make a new array, or use backend=\"forwarddiff\".")
        tape[i] = corrected(step)
    end
end

note!(arrays, x) = true
function note!(arrays, x::TrackedArray)
    is_new = !(ReverseDiff.deriv(x) in arrays)
    push!(arrays, ReverseDiff.deriv(x))
    return is_new
end

corrected(step) = step

# On its way back a mask counts as numbers: true as 1, false as 0.
const Indexing = SpecialInstruction{<:Tuple{typeof(getindex),Val{:generic}}}
is_mask(index) = index isa AbstractArray{Bool}
function corrected(step::Indexing)
    x, indices = step.input
    any(is_mask, indices) || return step
    places = map(index -> is_mask(index) ? findall(index) : index, indices)
    return SpecialInstruction(step.func, (x, places), step.output)
end

function corrected(step::SpecialInstruction{typeof(LinearAlgebra.det)})
    iszero(ReverseDiff.value(step.output)) && PyBridge.refuse(ReverseDiffBackend(),
        "the derivative of the determinant of a singular matrix, for which it gives zero",
        "Use backend=\"forwarddiff\".")
    return step
end
