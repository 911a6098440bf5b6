# The same beside ReverseDiff, whose `hash` and comparisons of numbers invalidate what the compiler has of
# itself.
module PyBridgePythonCallMooncakeReverseDiffExt

using Mooncake: Mooncake
using PrecompileTools: @compile_workload
using PyBridge: MooncakeBackend, PyBridge
using PythonCall: PythonCall
using ReverseDiff: ReverseDiff

PyBridge.load_extension(:PyBridgePythonCallMooncakeExt)

Base.JLOptions().opt_level > 0 && @compile_workload Base.disable_sigint() do
    PyBridge.exercise_derived_rules(MooncakeBackend())
end

end
