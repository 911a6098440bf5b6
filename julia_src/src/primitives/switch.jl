"""
    switch(index, branches, xs...)

Call `branches[index](xs...)`. Only that branch contributes to the value and to the
derivative, under every AD system.

Indices are Julia's: the first branch is 1. Like the twin in Python, `pybridge.switch`,
whose first branch is 0, an index out of range takes the nearest branch.

# Arguments
- `index`: an integer.
- `branches`: a tuple of callables.
- `xs`: the operands.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.switch(2, (sin, abs2), 3.0)
9.0
```
"""
switch(index::Integer, branches::Tuple, xs...) = pick(index, branches)(xs...)

function switch(index, branches, xs...)
    throw(ArgumentError("PyBridge.switch: expected an integer and a tuple of callables, got " *
                        "a $(typeof(index)) and a $(typeof(branches))."))
end

function pick(index, branches)
    isempty(branches) && throw(ArgumentError(
        "PyBridge.switch: expected at least one branch, got an empty tuple."))
    return branches[clamp(index, 1, length(branches))]
end

function ChainRulesCore.rrule(
    config::RuleConfig{>:HasReverseMode}, ::typeof(switch), index::Integer, branches::Tuple,
    xs...
)
    y, back = inner_rrule(config, pick(index, branches), xs...)
    taken = clamp(index, 1, length(branches))
    function switch_pullback(ȳ)
        branch, operands... = back(ȳ)
        cotangents = ntuple(i -> i == taken ? branch : NoTangent(), length(branches))
        return (NoTangent(), NoTangent(), Tangent{typeof(branches)}(cotangents...),
            operands...)
    end
    return y, switch_pullback
end
