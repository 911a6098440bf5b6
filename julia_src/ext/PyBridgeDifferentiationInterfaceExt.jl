# Any AD system that DifferentiationInterface reaches. What it takes for certain is one number
# or one vector, so trees become vectors; what a system can and cannot do is its own.
module PyBridgeDifferentiationInterfaceExt

using DifferentiationInterface: DifferentiationInterface as DI
using PyBridge: ForwardDiffBackend, InterfaceBackend, PyBridge

const ADTypes = DI.ADTypes

PyBridge.check_available(::InterfaceBackend) = true
PyBridge.for_duals(::InterfaceBackend) = ForwardDiffBackend()

# --- names ---------------------------------------------------------------------------------

function PyBridge.interface_backend(name::String)
    expression = Meta.parse(chopprefix(name, "di:"); raise=false)
    return InterfaceBackend(constructed(expression, name), name)
end

# The name may come from a command line, so nothing is evaluated: the constructor is looked up
# and the arguments are literals.
function constructed(call, name)
    Meta.isexpr(call, :call) && is_adtype(first(call.args)) || throw(unknown(name))
    arguments, keywords = [], Pair{Symbol,Any}[]
    for argument in call.args[2:end]
        if Meta.isexpr(argument, :parameters)
            append!(keywords, (keyword(part, name) for part in argument.args))
        elseif Meta.isexpr(argument, :kw)
            push!(keywords, keyword(argument, name))
        else
            push!(arguments, literal(argument, name))
        end
    end
    return getfield(ADTypes, first(call.args))(arguments...; keywords...)
end

is_adtype(constructor) = constructor isa Symbol && startswith(String(constructor), "Auto") &&
    constructor in names(ADTypes) && getfield(ADTypes, constructor) isa Type

keyword(part, name) =
    Meta.isexpr(part, :kw) ? part.args[1] => literal(part.args[2], name) : throw(unknown(name))

literal(x::Union{Number,String,Bool,Nothing}, name) = x
literal(x::QuoteNode, name) = x.value isa Symbol ? x.value : throw(unknown(name))
literal(x, name) = x === :nothing ? nothing : throw(unknown(name))
function literal(x::Expr, name)
    negated = Meta.isexpr(x, :call, 2) && first(x.args) === :- && last(x.args) isa Number
    return negated ? -last(x.args) : throw(unknown(name))
end

unknown(name) = PyBridge.UnknownBackendError(name, filter(is_adtype, names(ADTypes)))

# --- derivatives ---------------------------------------------------------------------------

"A function of one number or one vector, and how its argument and its value become trees."
struct Flat{F,X}
    f::F
    args::X
end
(flat::Flat)(v) = flattened(flat.f(taken(flat.args, v)...))

# One number and one array go through as they are.
const Single = Tuple{Union{Real,AbstractArray{<:Real}}}
taken(args::Single, v) = (v,)
taken(args, v) = PyBridge.unravel(args, v)
given(args::Single) = only(args)
given(args) = as_vector(args)
flattened(y::Union{Number,AbstractArray{<:Number}}) = y
flattened(y) = as_vector(PyBridge.plain(y))

# `ravel` fills a list, which Zygote cannot differentiate.
as_vector(tree) = reduce(vcat, map(PyBridge.row_major, PyBridge.flatten(tree)))

function flat(b, f, args, argnums)
    g, selected = PyBridge.with_arguments(f, PyBridge.maptree(own, args), argnums)
    any(x -> eltype(x) <: Complex, PyBridge.leaves(selected)) && PyBridge.refuse(
        b, "derivatives with respect to complex numbers", PyBridge.COMPLEX_ADVICE)
    return Flat(g, selected), selected
end

own(x) = x
own(x::PyBridge.CopyOnWrite) = copy(x)

function PyBridge.value_and_gradient(b::InterfaceBackend, f, args::Tuple, argnums::Val)
    g, selected = flat(b, f, args, argnums)
    y, x̄ = checked_gradient(b, g, given(selected))
    return y, map(PyBridge.dense, selected, taken(selected, x̄))
end
checked_gradient(b, g, x) = DI.value_and_gradient(PyBridge.check_scalar ∘ g, b.adtype, x)
checked_gradient(b, g, x::Real) = DI.value_and_derivative(PyBridge.check_scalar ∘ g, b.adtype, x)

function PyBridge.pullback(b::InterfaceBackend, f, args::Tuple, argnums::Val)
    g, selected = flat(b, f, args, argnums)
    x = given(selected)
    # Outside of a gradient the value may be another one, of the same structure.
    outside = PyBridge.plain(g.f(selected...))
    zeros = PyBridge.maptree(zero, outside)
    y, _ = DI.value_and_pullback(g, b.adtype, x, (flattened(zeros),))
    function back(ȳ)
        x̄, = DI.pullback(g, b.adtype, x, (flattened(PyBridge.dense(outside, ȳ)),))
        return taken(selected, x̄)
    end
    return tree_like(outside, y), back
end

tree_like(tree::Union{Number,AbstractArray}, y) = y
tree_like(tree, y) = PyBridge.maptree(with_eltype, tree, PyBridge.unravel(tree, y))
with_eltype(x::Number, y) = convert(typeof(x), y)
with_eltype(x::AbstractArray, y) = convert(AbstractArray{eltype(x)}, y)

function PyBridge.pushforward(b::InterfaceBackend, f, args::Tuple, tangents::Tuple)
    every = Val(ntuple(identity, length(args)))
    g, selected = flat(b, f, args, every)
    outside = PyBridge.plain(f(selected...))
    y, (ẏ,) = DI.value_and_pushforward(g, b.adtype, given(selected), (given(tangents),))
    return tree_like(outside, y), tree_like(outside, ẏ)
end

function PyBridge.jacobian(b::InterfaceBackend, f, args::Tuple, argnums::Val)
    g, selected = flat(b, f, args, argnums)
    v = PyBridge.ravel(selected)
    rows(v) = as_vector(PyBridge.plain(g.f(PyBridge.unravel(selected, v)...)))
    return PyBridge.plain(f(args...)), DI.jacobian(rows, b.adtype, v)
end

function PyBridge.hessian(b::InterfaceBackend, f, args::Tuple, argnums::Val)
    g, selected = flat(b, f, args, argnums)
    scalar(v) = PyBridge.check_scalar(g.f(PyBridge.unravel(selected, v)...))
    return DI.hessian(scalar, b.adtype, PyBridge.ravel(selected))
end

end
