# PyBridge's own tests. pytest runs them (test_julia.py) with the folders of the AD systems'
# environments as arguments:
#
#     julia --project=<main environment> tests/julia/runtests.jl <folder>...

include("setup.jl")

const TYPES_AND_MODES = ((Float64, true),)

# What is said of compiled code, of many bits and of large arrays comes first; then the quick run has Julia
# interpret PyBridge too.
@testset verbose=true "PyBridge" begin
    include("formalities.jl")
    include("random.jl")
    include("wire.jl")
    include("pullbacks.jl")
    LONG || interpret_module(PyBridge)
    include("detection.jl")
    include("order.jl")
    include("cond.jl")
    include("switch.jl")
    include("take.jl")
    include("trees.jl")
    include("backends.jl")
    include("bridge.jl")
    include("devices.jl")
    include("scenarios.jl")
    include("mooncake.jl")
    include("interface.jl")
    include("reversediff.jl")
    include("dropout.jl")
    include("rebuild.jl")
    include("nn_cases.jl")
    include("nn_flux.jl")
    include("nn_numerics.jl")
    include("nn_layers.jl")
    include("nn_sequences.jl")
    include("docstrings.jl")
end
