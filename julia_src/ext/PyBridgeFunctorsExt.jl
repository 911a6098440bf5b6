# Functors, by which Flux and Optimisers walk through a model. A JAX function is a leaf
# without parameters: taken apart it could not be put together again. A JaxLayer is walked
# like any struct.
module PyBridgeFunctorsExt

using Functors: Functors
using PyBridge: JaxFunction

Functors.@leaf JaxFunction

end
