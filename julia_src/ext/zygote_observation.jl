# Zygote's rules in a context that is PyBridge's own: each `rrule` that is used tells of
# itself, see `PyBridge.Sighting`.

const ObservingContext = Zygote.Context{:observed}
const QUESTIONS = Union{
    typeof(PyBridge.NNlib.within_gradient),typeof(PyBridge.within_gradient),
    typeof(PyBridge.is_differentiating)
}

function PyBridge.observe(::ZygoteBackend, f, args)
    Zygote._pullback(ObservingContext(nothing), f, args...)
    return nothing
end

function Zygote.chain_rrule(config::Zygote.ZygoteRuleConfig{ObservingContext}, f, args...)
    f isa QUESTIONS && PyBridge.sight!(:asks, "within_gradient", "", 0, "")
    y, back = ChainRulesCore.rrule(config, f, args...)
    method = rule_method(config, f, args)
    PyBridge.is_users(method) && PyBridge.sight_rule!(f, args, y, back, method)
    return y, Zygote.ZBack(back)
end

function rule_method(config, f, args)
    types = (Core.Typeof(f), map(Core.Typeof, args)...)
    method = which(ChainRulesCore.rrule, Tuple{typeof(config),types...})
    # The method for all rules without a configuration passes them on.
    passes_on = method.module === ChainRulesCore
    return passes_on ? which(ChainRulesCore.rrule, Tuple{types...}) : method
end
