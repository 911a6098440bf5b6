# PyBridge's own primitives as themselves.

register(:within_gradient, PyBridge.is_differentiating)
register(:detach, PyBridge.primal)
register(:stop_gradient, PyBridge.primal)
