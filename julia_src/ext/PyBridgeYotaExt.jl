# Yota: reverse mode by tracing to a tape and replacing each call by its ChainRules rule.
#
# Yota's own `grad` and `rrule_via_ad` keep the compiled tape by argument types. A tape holds
# the branches and loop counts of the values it was traced with, so they answer for other
# values with the wrong derivative and no word. Here every call is traced anew.
module PyBridgeYotaExt

using ChainRulesCore: ChainRulesCore, NoTangent, unthunk
using PrecompileTools: @compile_workload
using PyBridge: PyBridge, YotaBackend
using Yota: Yota

PyBridge.check_available(::YotaBackend) = true
PyBridge.reads_rules(::YotaBackend) = true

# For the line of a statement, Umlaut 0.7.1 reads the field `linetable` of Julia's intermediate
# code. Julia 1.12 has none, and the place of the method has to do. It is what Umlaut itself
# says where the table has no entry, and for its messages alone. Nothing is replaced: without
# this method Umlaut traces nothing there.
@static if !hasfield(Core.Compiler.IRCode, :linetable) && pkgversion(Yota.Umlaut) <= v"0.7.1"
    function Yota.Umlaut.getlineinfo(ir::Core.Compiler.IRCode, ::Int)
        instance = ir.debuginfo.def
        method = instance isa Core.MethodInstance ? instance.def : instance
        return method isa Method ? "near $(method.file):$(method.line)" : "near $method"
    end
end

# Trace `f(args...)` and put rules in place of the calls that have one. Only after that do
# the values on the tape know that they are within a gradient.
function traced(f, args...)
    _, tape = Yota.trace(f, args...; ctx=Yota.GradCtx())
    tape[tape.result] isa Yota.Call && Yota.chainrules_transform!(tape)
    return tape
end

# Cotangents of `f` and its arguments. The tape can be walked back once.
function walk_back(tape, ȳ)
    result = tape[tape.result]
    inputs = Yota.inputs(tape)
    if result isa Yota.Call
        Yota.back!(tape; seed=ȳ)
        Yota.finalize_grad!(tape)
        return last(tape[tape.result].val)
    end
    # The function returned a constant, or one of its arguments.
    return map(v -> tape[v] === result ? ȳ : NoTangent(), Tuple(inputs))
end

function value_and_back(f, args...)
    # A function that is a primitive itself has nothing inside that could be traced.
    rule = ChainRulesCore.rrule(Yota.YOTA_RULE_CONFIG, f, args...)
    rule === nothing || return rule
    tape = traced(f, args...)
    y = tape[tape.result].val
    fresh = Ref(true)
    function back(ȳ)
        current = fresh[] ? tape : traced(f, args...)
        fresh[] = false
        return walk_back(current, unthunk(ȳ))
    end
    return y, back
end

# Umlaut records `f(xs...)` by way of this function, for which Yota has no rule.
function ChainRulesCore.rrule(
    ::Yota.YotaRuleConfig, ::typeof(Yota.Umlaut.__to_tuple__), xs::Tuple
)
    return xs, x̄s -> (NoTangent(), x̄s)
end

# The rules of broadcasts ask for this of every argument; Yota knows it of numbers and arrays.
function ChainRulesCore.rrule(
    ::Yota.YotaRuleConfig, ::typeof(Broadcast.broadcastable), x::Union{Tuple,Ref}
)
    return x, x̄ -> (NoTangent(), x̄)
end
# Such as the exponent of `x .^ 3`.
function ChainRulesCore.rrule(
    ::Yota.YotaRuleConfig, ::typeof(Broadcast.broadcastable),
    x::Union{Val,Type,Symbol,AbstractString,RoundingMode,Nothing,Missing}
)
    return Broadcast.broadcastable(x), _ -> (NoTangent(), NoTangent())
end

# Where some leaves of an argument are left alone, a tape would have to see through the code
# that puts the arguments together. It cannot, and need not.
function ChainRulesCore.rrule(
    ::Yota.YotaRuleConfig, ::typeof(PyBridge.replace_leaves), leaves, wrt::Val{numbers}, xs
) where {numbers}
    back(x̄s) = (NoTangent(), NoTangent(), NoTangent(), map(i -> x̄s[i], numbers))
    return PyBridge.replace_leaves(leaves, wrt, xs), back
end
function ChainRulesCore.rrule(
    ::Yota.YotaRuleConfig, ::typeof(PyBridge.assemble), tree, leaves::Tuple
)
    function back(x̄)
        x̄s = map(x -> x === nothing ? NoTangent() : x, PyBridge.leaf_cotangents(tree, x̄))
        return NoTangent(), NoTangent(), x̄s
    end
    return PyBridge.assemble(tree, leaves), back
end

function PyBridge.inner_rrule(::Yota.YotaRuleConfig, f, xs...)
    return value_and_back(f, xs...)
end

function PyBridge.pullback(
    ::YotaBackend, f, args::Tuple, ::Val{argnums}
) where {argnums}
    y, back = Base.invokelatest(value_and_back, f, args...)
    function selected(ȳ)
        cotangents = Base.invokelatest(back, PyBridge.project(y, ȳ))
        return map(i -> cotangents[i+1], argnums)
    end
    return y, selected
end

@compile_workload PyBridge.exercise(YotaBackend(), ([1.0, 2.0], Float32[1, 2]))

end
