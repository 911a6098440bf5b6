# PyBridge's own tests. pytest runs them (test_julia.py) with the folders of the AD systems'
# environments as arguments:
#
#     julia --project=<main environment> tests/julia/runtests.jl <folder>...

include("setup.jl")

const TYPES_AND_MODES = ((Float64, true),)

@testset verbose=true "PyBridge" begin
    include("detection.jl")
    include("order.jl")
    include("cond.jl")
    include("switch.jl")
    include("take.jl")
    include("random.jl")
    include("trees.jl")
    include("backends.jl")
    include("wire.jl")
    include("bridge.jl")
    include("pullbacks.jl")
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
    include("nn_sequences.jl")
    include("docstrings.jl")
    include("formalities.jl")
end
