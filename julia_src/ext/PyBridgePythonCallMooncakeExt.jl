# The same for Mooncake, which infers programs by Julia's own compiler: of that code, too, PythonCall's
# methods invalidate what Mooncake's image has. See PyBridgePythonCallExt.
module PyBridgePythonCallMooncakeExt

using Mooncake: Mooncake
using PrecompileTools: @compile_workload
using PyBridge: MooncakeBackend, PyBridge
using PythonCall: PythonCall

PyBridge.load_extension(:PyBridgeMooncakeExt)

# Who compiles without optimising, as the quick tests do, is in a hurry: this takes as long as all other
# extensions.
Base.JLOptions().opt_level > 0 && @compile_workload Base.disable_sigint() do
    PyBridge.exercise_derived_rules(MooncakeBackend())
end

end
