# What a session in Python would wait for, compiled while packages are precompiled. PythonCall's
# methods for `Py` invalidate much of what was compiled without it: of PyBridge, and of Zygote.
module PyBridgePythonCallExt

using PrecompileTools: @compile_workload
using PyBridge: PyBridge
using PythonCall: PythonCall

@compile_workload Base.disable_sigint() do
    PyBridge.exercise_requests()
    PyBridge.exercise_program(:call, :zygote, "f4:")
    PyBridge.within_gradient((1.0, [2.0]))
    PyBridge.cond(true, identity, identity, 1.0)
end

# What is called by its name or address: nothing that the workload compiles holds it, so Julia
# would not keep it for another package's methods.
precompile(PyBridge.boundary, ())
for request in PyBridge.REQUESTS, method in methods(request)
    method.isva || precompile(request, ntuple(_ -> String, method.nargs - 1))
end

end
