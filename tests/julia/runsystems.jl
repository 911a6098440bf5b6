# PyBridge's own tests of every layer under every AD system, and in the modes and precisions that
# runtests.jl leaves out; they take long to compile. pytest runs them (test_julia.py) with the
# folders of the AD systems' environments as arguments:
#
#     julia --project=<main environment> tests/julia/runsystems.jl <folder>...

include("setup.jl")

const TYPES_AND_MODES = ((Float64, false), (Float32, true))

@testset verbose=true "PyBridge" begin
    include("nn_cases.jl")
    include("nn_flux.jl")
    include("nn_systems.jl")
end
