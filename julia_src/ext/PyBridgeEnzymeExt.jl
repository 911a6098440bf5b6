# Enzyme: reverse and forward mode on LLVM's intermediate code. DifferentiationInterface knows how
# to ask it.
module PyBridgeEnzymeExt

using DifferentiationInterface: DifferentiationInterface
using Enzyme: Enzyme
using PyBridge: EnzymeBackend, ForwardDiffBackend, InterfaceBackend, PyBridge

const INTERFACE = InterfaceBackend(DifferentiationInterface.ADTypes.AutoEnzyme(), "enzyme")

PyBridge.check_available(::EnzymeBackend) = true
PyBridge.for_duals(::EnzymeBackend) = ForwardDiffBackend()

PyBridge.value_and_gradient(::EnzymeBackend, f, args::Tuple, argnums::Val) =
    PyBridge.value_and_gradient(INTERFACE, f, args, argnums)
PyBridge.pullback(::EnzymeBackend, f, args::Tuple, argnums::Val) =
    PyBridge.pullback(INTERFACE, f, args, argnums)
PyBridge.pushforward(::EnzymeBackend, f, args::Tuple, tangents::Tuple) =
    PyBridge.pushforward(INTERFACE, f, args, tangents)
PyBridge.jacobian(::EnzymeBackend, f, args::Tuple, argnums::Val) =
    PyBridge.jacobian(INTERFACE, f, args, argnums)
PyBridge.hessian(::EnzymeBackend, f, args::Tuple, argnums::Val) =
    PyBridge.hessian(INTERFACE, f, args, argnums)

end
