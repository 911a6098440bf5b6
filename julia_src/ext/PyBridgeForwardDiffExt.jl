# ForwardDiff: forward mode by dual numbers. NNlib's own extension answers
# `within_gradient` for duals; `cond` runs the branch on the duals themselves.
module PyBridgeForwardDiffExt

using ForwardDiff: ForwardDiff, Dual
using PrecompileTools: @compile_workload, @setup_workload
using PyBridge: PyBridge, ForwardDiffBackend

PyBridge.check_available(::ForwardDiffBackend) = true

struct PushforwardTag end
const PushforwardDual{T} = Dual{ForwardDiff.Tag{PushforwardTag,T}}

function PyBridge.pushforward(b::ForwardDiffBackend, f, args::Tuple, tangents::Tuple)
    check_real(b, args)
    y = f(PyBridge.maptree(dual, args, tangents)...)
    return PyBridge.maptree(primal, y), PyBridge.maptree(tangent, y)
end

PyBridge.primal(x::Dual) = PyBridge.primal(ForwardDiff.value(x))
PyBridge.primal(x::AbstractArray{<:Dual}) = map(PyBridge.primal, x)

dual(x::Union{Integer,AbstractArray{<:Integer}}, ẋ) = x
dual(x, ẋ) = Dual{ForwardDiff.Tag{PushforwardTag,eltype(x)}}.(x, ẋ)

primal(y::Number) = y
primal(y::PushforwardDual) = ForwardDiff.value(y)
primal(y::AbstractArray) = map(primal, y)
tangent(y::Number) = zero(y)
tangent(y::PushforwardDual) = ForwardDiff.partials(y, 1)
tangent(y::AbstractArray) = map(tangent, y)

function PyBridge.value_and_gradient(b::ForwardDiffBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    check_real(b, selected)
    y, gradients = native_gradient(g, selected)
    return y, map(PyBridge.dense, selected, gradients)
end

# One number and one array are what ForwardDiff differentiates itself; the rest goes through
# one vector.
function native_gradient(g, (x,)::Tuple{Real})
    y, ẏ = PyBridge.pushforward(ForwardDiffBackend(), g, (x,), (one(x),))
    PyBridge.check_scalar(y)
    return y, (ẏ,)
end

function native_gradient(g, (x,)::Tuple{AbstractArray{<:Real}})
    isempty(x) && return PyBridge.check_scalar(g(x)), (zero(x),)
    value = Ref{Any}()
    gradient = ForwardDiff.gradient(x) do duals
        y = PyBridge.check_scalar(g(duals))
        value[] = y
        return y
    end
    return plain(value[]), (gradient,)
end

function native_gradient(g, selected::Tuple)
    v = PyBridge.ravel(selected)
    y, (gradient,) = native_gradient(v -> g(PyBridge.unravel(selected, v)...), (v,))
    return y, PyBridge.unravel(selected, gradient)
end

plain(y::Number) = y
plain(y::Dual) = ForwardDiff.value(y)
plain(y::AbstractArray) = map(plain, y)

function PyBridge.value_aux_and_gradient(
    b::ForwardDiffBackend, f, args::Tuple, argnums::Val
)
    aux = Ref{Any}()
    function first_value(xs...)
        y, aux[] = PyBridge.split_aux(f(xs...))
        return y
    end
    y, gradients = PyBridge.value_and_gradient(b, first_value, args, argnums)
    return (y, PyBridge.maptree(plain, aux[])), gradients
end

function PyBridge.jacobian(b::ForwardDiffBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    check_real(b, selected)
    y = f(args...)
    J = ForwardDiff.jacobian(PyBridge.ravel(selected)) do v
        PyBridge.ravel(g(PyBridge.unravel(selected, v)...))
    end
    return y, J
end

function PyBridge.hessian(b::ForwardDiffBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    check_real(b, selected)
    return ForwardDiff.hessian(PyBridge.ravel(selected)) do v
        PyBridge.check_scalar(g(PyBridge.unravel(selected, v)...))
    end
end

function check_real(b, args)
    any(x -> eltype(x) <: Complex, PyBridge.leaves(args)) && PyBridge.refuse(
        b, "derivatives with respect to complex numbers", "Use backend=\"zygote\" or \"jax\".")
    return nothing
end

include("forwarddiff_jaxfunction.jl")

@setup_workload begin
    f(x) = sum(abs2, x)
    @compile_workload begin
        for x in (1.0, [1.0, 2.0], Float32[1, 2])
            PyBridge.value_and_gradient(ForwardDiffBackend(), f, (x,), Val((1,)))
        end
    end
end

end
