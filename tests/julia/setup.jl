# What PyBridge's own tests share.

const ROOT = dirname(dirname(@__DIR__))
foreach(path -> insert!(LOAD_PATH, 2, path), reverse(ARGS))
insert!(LOAD_PATH, 2, joinpath(ROOT, "julia_src"))

const LONG = haskey(ENV, "PYBRIDGE_LONG_TESTS")
LONG || include("../interpreted.jl")

using DifferentiationInterface: DifferentiationInterface
using FiniteDiff: FiniteDiff
using Flux: Flux
using ForwardDiff: ForwardDiff
using InteractiveUtils: InteractiveUtils
using LinearAlgebra: Diagonal, LinearAlgebra
using Mooncake: Mooncake
using NNlib: NNlib
using PyBridge: PyBridge, is_differentiating, within_gradient
using ReverseDiff: ReverseDiff
using Test: @inferred, @test, @test_throws, @testset, detect_ambiguities, detect_unbound_args
using Tracker: Tracker
using Yota: Yota
using Zygote: Zygote

# The loops over elements of these would take longer than to compile them. JLArrays, which some tests
# want, must be there before; see `interpret`.
if !LONG
    Base.find_package("JLArrays") === nothing || @eval using JLArrays: JLArrays
    interpret((:PyBridge, :Random123, :NNlib); derivatives=true)
end

const SYSTEMS = (:zygote, :forwarddiff, :tracker, :yota, :mooncake, :reversediff)
# Of these, those whose values show each by itself whether it is differentiated, and those with
# second derivatives.
const BY_VALUE = (:forwarddiff, :tracker, :reversediff)
const SECOND_ORDER = (:zygote, :forwarddiff, :mooncake)

"""
Every system with every case in the long run; in the quick one as few pairs as have each system and
each case, as `tests/quick.py` chooses them.
"""
function combined(systems, cases)
    LONG && return [(system, case) for system in systems for case in cases]
    turns = 1:max(length(systems), length(cases))
    return [(systems[mod1(i, end)], cases[mod1(i, end)]) for i in turns]
end

"""
All systems in the long run; in the quick one those whose turn it is, `count` of them: each loop over
systems takes the next, so that each test has a system and each system has its tests.
"""
by_turns(systems, count=1) =
    LONG ? systems : ntuple(_ -> systems[mod1(TURN[] += 1, end)], count)
const TURN = Ref(0)

"Value and gradient of `f` at `args` with respect to all of them."
function value_and_gradient(system, f, args...)
    numbers = Val(ntuple(identity, length(args)))
    return PyBridge.value_and_gradient(PyBridge.BACKENDS[system], f, args, numbers)
end

"Central differences in Float64: the truth that no AD system had a hand in."
function differences(f, args...)
    along = directional(f, args)
    v = PyBridge.ravel(args)
    return PyBridge.unravel(args, [along(eachindex(v) .== i) for i in eachindex(v)])
end

"The derivative of `f` at `args` along a vector, by central differences."
function directional(f, args; h=1e-6)
    v = PyBridge.ravel(args)
    g(v) = f(PyBridge.unravel(args, v)...)
    return d -> (g(v + h * d) - g(v - h * d)) / 2h
end

"""
Whether gradients of `f` at `args` are its differences: number by number in the long run, along one
direction of each array in the quick one, which interprets every call of `f`.
"""
function is_gradient(gradients, f, args...)
    LONG && return close_to(gradients, differences(f, args...))
    sizes = map(size, PyBridge.leaves(args))
    map(size, PyBridge.leaves(gradients)) == sizes || return false
    along, flat, stop = directional(f, args), PyBridge.ravel(gradients), 0
    return all(sizes) do dims
        part = stop+1:(stop += prod(dims))
        # Weights that differ, none close to 0, where an error would not show.
        direction = [i in part ? 1.5 + cos(i) : 0.0 for i in eachindex(flat)]
        close_to(sum(flat .* direction), along(direction))
    end
end

close_to(a::Union{Tuple,NamedTuple}, b) = all(map(close_to, values(a), values(b)))
close_to(a, b) = isapprox(a, b; rtol=1e-6, atol=1e-7, nans=true)
