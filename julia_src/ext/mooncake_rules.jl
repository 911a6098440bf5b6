# The rules of PyBridge's own functions, as Mooncake calls them. It reads none of ChainRules' by
# itself, and would derive one from the code: that of a call of Python, or of a generator of
# random bits, cannot be had so, and at kinks a rule is what makes all systems agree.

"Call `f` by its rule in ChainRules."
function by_rule(f::CoDual, xs::CoDual...)
    fargs = (f, xs...)
    primals = map(Mooncake.primal, fargs)
    y, pull = ChainRulesCore.rrule(primals...)
    ȳ = Mooncake.fdata(zeros_for(y))
    function back(rdata)
        seed = PyBridge.chain(y, natural(y, Mooncake.tangent(ȳ, rdata)))
        return map(receive, fargs, pull(seed))
    end
    return CoDual(y, ȳ), back
end

# An array that stands in two places of the value gets a cotangent in each, as a rule has it.
zeros_for(y) = Mooncake.zero_tangent(y)
zeros_for(y::Union{Tuple,NamedTuple}) =
    Mooncake.tangent_type(typeof(y)) === Mooncake.NoTangent ? Mooncake.NoTangent() :
    map(zeros_for, y)

# Add a cotangent where Mooncake keeps it, and return the part that it hands on.
function receive(x::CoDual, x̄)
    primal, memory = Mooncake.primal(x), Mooncake.tangent(x)
    x̄ = unthunk(x̄)
    x̄ isa NoGradient && return Mooncake.zero_rdata(primal)
    if memory isa Array{<:Continuous}
        memory .+= PyBridge.dense(primal, x̄)
        return NoRData()
    end
    t = as_tangent(primal, x̄)
    Mooncake.increment!!(memory, Mooncake.fdata(t))
    return Mooncake.rdata(t)
end

# What asks the question is derived from its code, where Mooncake finds the answer. Were it called
# by a rule, the compiler would know the answer outside of gradients and put it in.
const ASKING = map(typeof, (PyBridge.within_gradient, PyBridge.is_differentiating,
    PyBridge.differentiation_order, PyBridge.resolve_training, PyBridge.settle_training))

"The arguments of a rule, the function first; `nothing` for a rule that Mooncake has no use for."
function ruled_signature(method)
    types = Base.unwrap_unionall(method.sig).parameters[2:end]
    asks_for_system = first(types) isa Type && first(types) <: ChainRulesCore.RuleConfig
    (asks_for_system || first(types) in ASKING) && return nothing
    return Base.rewrap_unionall(Tuple{types...}, method.sig)
end

is_ours(m::Module) = m === PyBridge || (parentmodule(m) !== m && is_ours(parentmodule(m)))

for method in methods(ChainRulesCore.rrule)
    is_ours(method.module) || continue
    signature = ruled_signature(method)
    signature === nothing && continue
    F = Base.rewrap_unionall(first(Base.unwrap_unionall(signature).parameters), signature)
    @eval Mooncake._is_primitive(
        ::Type{MinimalCtx}, ::Type{ReverseMode}, ::Type{<:$signature}) = true
    @eval Mooncake.rrule!!(f::CoDual{<:$F}, xs::CoDual...) = by_rule(f, xs...)
end

# Linear systems that a program solves: ChainRules' rule of them asks the system that calls it.
# Going forward, the derivative is that of the solver's steps, and what is left over is zero.
Mooncake.@mooncake_overlay PyBridge.Lowering.linear_solve_as(
    mode::PyBridge.Lowering.Mode, args...
) = PyBridge.Lowering.solve_by_residual(PyBridge.Lowering.run_solver, args...)

# Python cannot be looked into. Going forward, a JAX function is pushed through by JAX; what is left
# are derivatives of its rule.
Mooncake._is_primitive(
    ::Type{MinimalCtx}, ::Type{ForwardMode}, ::Type{<:Tuple{PyBridge.JaxFunction,Vararg}}) = true
function Mooncake.frule!!(f::Dual{PyBridge.JaxFunction}, xs::Dual...)
    args = map(Mooncake.primal, xs)
    y, ẏ = PyBridge.jax_jvp(
        Mooncake.primal(f), args, map(natural, args, map(Mooncake.tangent, xs)))
    return Dual(y, as_tangent(y, ẏ))
end

Mooncake._is_primitive(
    ::Type{MinimalCtx}, ::Type{ForwardMode}, ::Type{<:Tuple{typeof(PyBridge.jax_vjp),Vararg}}) = true
Mooncake.frule!!(::Dual{typeof(PyBridge.jax_vjp)}, ::Dual...) = PyBridge.refuse(MooncakeBackend(),
    "second derivatives of a function that calls a JAX function",
    "Use \"zygote\" or \"forwarddiff\".")

# Mooncake derives no rule for a task. On Julia 1.10 the question reads a value of a type that holds
# arrays of itself, and Mooncake looks for its tangent type until the stack ends.
Mooncake.@mooncake_overlay NNlib.should_use_spawn() = false
