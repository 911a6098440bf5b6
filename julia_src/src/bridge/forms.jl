# The forms that rules of the user's own have to return, and that a value has to keep. What has
# another form may still broadcast or have a first element: the derivative would be wrong,
# without a word.

"""
    RuleError(rule, expected, got, fix)

Thrown when a rule of the user's own returns something of another form than it should.
"""
struct RuleError <: Exception
    rule::String
    expected::String
    got::String
    fix::String
end
Base.showerror(io::IO, e::RuleError) =
    print(io, "from_julia, ", e.rule, ": expected ", e.expected, ", got ", e.got, ". ", e.fix)

# Without element types: those may be the dual numbers of a derivative around it.
form(x::Number) = "a number"
form(x::AbstractArray) = "an array of size $(size(x))"
form(x::Tuple) = "a tuple of $(length(x))"
form(x::NamedTuple) = "a NamedTuple $(structure_text(x))"
form(x::Nothing) = "nothing"
form(x) = "a $(nameof(typeof(x)))"

two(rule, names, found) = found isa Tuple{Any,Any} ? found :
    throw(RuleError(rule, "it to return $names", form(found), "Return a tuple of two."))

# Containers only: whether a leaf fits is seen where it is asked for, in `like`.
function checked_cotangents(spec, x̄s)
    x̄s isa Tuple && length(x̄s) == length(spec) || throw(RuleError("vjp=",
        "`back` to return a tuple with one cotangent for each argument, " *
        "$(length(spec)) in all", form(x̄s),
        "Write `ȳ -> (x̄,)` with a comma for one argument, `nothing` where there is no " *
        "gradient, and none for the function itself."))
    foreach(check_container, spec, x̄s)
    return x̄s
end

check_container(::Union{LeafSpec,NothingSpec}, x̄) = nothing
function check_container(spec::Branch, x̄)
    x̄ = unthunk(x̄)
    x̄ isa NoGradient && return nothing
    parts = x̄ isa Tangent ? ChainRulesCore.backing(x̄) : x̄
    holds(spec, parts) || throw(RuleError("vjp=",
        "a cotangent like its argument, $(form(spec))", form(parts),
        "The cotangent of a tuple is a tuple, that of a NamedTuple a NamedTuple; `nothing` " *
        "stands for zero."))
    foreach(name -> check_container(spec[name], parts[name]), keys(parts))
    return nothing
end
holds(spec::Tuple, parts) = parts isa Tuple && length(parts) == length(spec)
holds(spec::NamedTuple, parts) = parts isa NamedTuple && issubset(keys(parts), keys(spec))

"Call the user's rule for forward mode: the value and its tangent, of one form."
function ruled_tangent(d, args, ẋs)
    y, ẏ = map(plain, two("jvp=", "(y, tangent of y)", d.jvp(args, ẋs)))
    alike(y, ẏ) || throw(RuleError("jvp=", "a tangent like the value, $(form(y))", form(ẏ),
        "Return zeros, as in `zero(y)`, where there is no tangent."))
    return y, ẏ
end

alike(y::Tuple, ẏ) = ẏ isa Tuple && length(y) == length(ẏ) && all(map(alike, y, ẏ))
alike(y::NamedTuple{names}, ẏ) where {names} =
    ẏ isa NamedTuple{names} && all(map(alike, values(y), values(ẏ)))
alike(y::Nothing, ẏ) = ẏ === nothing
alike(y, ẏ) = ẏ isa Union{Number,AbstractArray} && size(y) == size(ẏ)

"Refuse a cotangent that was made for a value of another form."
check_seed(y, ::NoGradient) = nothing
check_seed(y::Tuple, ȳ::Tuple) =
    length(y) == length(ȳ) ? foreach(check_seed, y, ȳ) : throw(other_structure(y, ȳ))
check_seed(y::NamedTuple{names}, ȳ::NamedTuple{names}) where {names} =
    foreach(check_seed, y, ȳ)
check_seed(y::Union{Number,AbstractArray}, ȳ::Union{Number,AbstractArray}) =
    size(y) == size(ȳ) ? nothing :
    throw(OutputChangedError(describe(eltype(ȳ), size(ȳ)), describe(eltype(y), size(y))))
check_seed(y, ȳ) = throw(other_structure(y, ȳ))

other_structure(y, expected) =
    OutputChangedError("the structure $(structure_text(expected))", structure_text(y))
