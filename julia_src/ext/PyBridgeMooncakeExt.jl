# Mooncake: reverse and forward mode by derived rules for Julia's own intermediate code.
module PyBridgeMooncakeExt

using ChainRulesCore: ChainRulesCore, unthunk
using Mooncake: CoDual, Dual, ForwardMode, MinimalCtx, Mooncake, NoFData, NoRData, ReverseMode
using NNlib: NNlib
using PyBridge: ForwardDiffBackend, MooncakeBackend, NoGradient, PyBridge

PyBridge.check_available(::MooncakeBackend) = true
# Mooncake's rules are derived for plain numbers, and would take dual ones apart.
PyBridge.for_duals(::MooncakeBackend) = ForwardDiffBackend()

include("mooncake_detection.jl")
include("mooncake_tangents.jl")
include("mooncake_rules.jl")

# --- what is prepared ----------------------------------------------------------------------

# To derive a rule takes longer than most calls, so rules are kept. One that goes back keeps what it
# needs for that on stacks of its own, so from the way forth to the way back nobody else may have it;
# then it is free for the next run.
struct RulePool
    lock::ReentrantLock
    world::Ref{UInt}
    free::Dict{Any,Vector{Any}}
end
const POOL = RulePool(ReentrantLock(), Ref{UInt}(0), Dict())

# A rule is derived from the methods that there were; with a new method it may be wrong.
function free_rules(key)
    world = Base.get_world_counter()
    world == POOL.world[] || (empty!(POOL.free); POOL.world[] = world)
    return get!(() -> [], POOL.free, key)
end

function take_rule(derive, key)
    rule = @lock POOL.lock begin
        free = free_rules(key)
        isempty(free) ? nothing : pop!(free)
    end
    return rule === nothing ? derive() : rule
end

put_back(key, rule, world) = @lock POOL.lock begin
    world == Base.get_world_counter() && push!(free_rules(key), rule)
end

# --- reverse mode --------------------------------------------------------------------------

"A run forth: the value with its cotangent's memory, the arguments' cotangents, the way back."
struct Run{R,Y,T,B}
    rule::R
    signature::Any
    world::UInt
    y::Y
    tangents::T
    back::B
end

function run_forth(fargs)
    signature = Tuple{map(Core.Typeof, fargs)...}
    world = Base.get_world_counter()
    rule = take_rule(signature) do
        Mooncake.build_rrule(Mooncake.get_interpreter(ReverseMode), signature)
    end
    return run_forth(rule, signature, world, fargs)
end
function run_forth(rule, signature, world, fargs)
    tangents = map(Mooncake.zero_tangent, fargs)
    y, back = rule(map((x, t) -> CoDual(x, Mooncake.fdata(t)), fargs, tangents)...)
    return Run(rule, signature, world, y, tangents, back)
end

function run_back(run, seed)
    Mooncake.increment!!(Mooncake.tangent(run.y), Mooncake.fdata(seed))
    rdata = run.back(Mooncake.rdata(seed))
    put_back(run.signature, run.rule, run.world)
    return map((t, r) -> Mooncake.tangent(Mooncake.fdata(t), r), run.tangents, rdata)
end

function PyBridge.pullback(
    b::MooncakeBackend, f, args::Tuple, wrt::Val{argnums}
) where {argnums}
    fargs = (f, PyBridge.maptree(own, args)...)
    run = Base.invokelatest(run_forth, fargs)
    # The cotangent of a dictionary, a struct or a vector of arrays comes as that of the tree that
    # it is sent as.
    is_tree(Mooncake.primal(run.y)) || return PyBridge.pullback(b, PyBridge.plain ∘ f, args, wrt)
    # The way back undoes what the function wrote into arrays, the value's own ones included.
    y = Mooncake._copy_output(Mooncake.primal(run.y))
    fresh = Ref(true)
    function back(ȳ)
        # Its stacks are empty once it has gone back; a Jacobian asks again.
        current = fresh[] ? run : Base.invokelatest(run_forth, fargs)
        fresh[] = false
        tangents = Base.invokelatest(run_back, current, as_tangent(y, ȳ))
        return map(i -> natural(fargs[i+1], tangents[i+1]), argnums)
    end
    return y, back
end

# One run forth and back keeps nothing for another way back, which saves half of a small gradient.
function PyBridge.value_and_gradient(::MooncakeBackend, f, args::Tuple, wrt::Val)
    fargs = (f, PyBridge.maptree(own, args)...)
    return Base.invokelatest(run_both_ways, fargs, wrt)
end
run_both_ways(fargs, wrt) = run_home(run_forth(fargs), fargs, wrt)
function run_home(run, fargs, ::Val{argnums}) where {argnums}
    y = PyBridge.check_scalar(Mooncake.primal(run.y))
    tangents = run_back(run, as_tangent(y, one(y)))
    return y, map(i -> PyBridge.dense(fargs[i+1], natural(fargs[i+1], tangents[i+1])), argnums)
end

is_tree(y) = y isa Union{Nothing,Number,AbstractArray}
is_tree(y::PyBridge.Branch) = all(is_tree, y)
is_tree(y::AbstractVector) = !PyBridge.is_container(y)

# Mooncake would see through what an array is made of, and write into memory of others.
own(x) = x
own(x::PyBridge.CopyOnWrite) = x.owned ? x.data : copy(x.data)

# --- forward mode and second derivatives ---------------------------------------------------

function PyBridge.pushforward(::MooncakeBackend, f, args::Tuple, tangents::Tuple)
    return Base.invokelatest(push_forward, f, PyBridge.maptree(own, args), tangents)
end

function push_forward(f, args, tangents)
    duals = map((x, ẋ) -> Dual(x, as_tangent(x, ẋ)), args, tangents)
    out = push_duals(Dual(f, Mooncake.zero_tangent(f)), duals...)
    y = Mooncake.primal(out)
    return y, PyBridge.dense(y, natural(y, Mooncake.tangent(out)))
end

function push_duals(duals...)
    signature = Tuple{map(Core.Typeof ∘ Mooncake.primal, duals)...}
    key, world = (ForwardMode, signature), Base.get_world_counter()
    rule = take_rule(key) do
        Mooncake.build_frule(Mooncake.get_interpreter(ForwardMode), signature)
    end
    out = Base.invokelatest(rule, duals...)
    put_back(key, rule, world)
    return out
end

# Forward over reverse.
function PyBridge.hessian(::MooncakeBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    PyBridge.check_scalar(f(args...))
    return Base.invokelatest(hessian_by_columns, v -> g(PyBridge.unravel(selected, v)...),
        PyBridge.ravel(selected))
end

# Prepared for each call: Mooncake takes a cache for one and the same function only, and this one
# holds the arguments.
function hessian_by_columns(g, v)
    cache = Mooncake.prepare_hessian_cache(g, v)
    return copy(last(Mooncake.value_gradient_and_hessian!!(cache, g, v)))
end

end
