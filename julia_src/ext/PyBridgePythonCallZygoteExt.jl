# The same for the first gradients by Zygote: see PyBridgePythonCallExt.
module PyBridgePythonCallZygoteExt

using PrecompileTools: @compile_workload
using PyBridge: PyBridge, ZygoteBackend
using PythonCall: PythonCall
using Zygote: Zygote

PyBridge.load_extension(:PyBridgeZygoteExt)

@compile_workload Base.disable_sigint() do
    PyBridge.exercise(ZygoteBackend())
    PyBridge.exercise_control_flow(ZygoteBackend())
    PyBridge.exercise_closures(ZygoteBackend())
    PyBridge.exercise_lowered(ZygoteBackend())
    PyBridge.exercise_program(:value_and_grad, :zygote, "f4:;f4:4")
end

end
