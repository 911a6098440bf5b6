# PyBridge's own tests of layers. pytest runs them (test_julia.py) with the folders of the AD systems'
# environments as arguments:
#
#     julia --project=<main environment> tests/julia/runlayers.jl <folder>...

include("setup.jl")

const TYPES_AND_MODES = ((Float64, true),)

@testset verbose=true "PyBridge" begin
    include("dropout.jl")
    include("rebuild.jl")
    include("nn_cases.jl")
    include("nn_flux.jl")
    include("nn_numerics.jl")
    include("nn_sequences.jl")
end
