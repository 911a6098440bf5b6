# PyBridge's own primitives as themselves.

register(:within_gradient, PyBridge.is_differentiating)
register(:differentiation_order, PyBridge.differentiation_order)
register(:detach, PyBridge.primal)
register(:stop_gradient, PyBridge.primal)
