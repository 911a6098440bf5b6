# The fourth trainer of examples/four_trainers.py: Flux's own `train!`, with a JAX layer inside.
# Flux's axes are JAX's in reverse: a batch of shape (N, 64) has the size (64, N) here.
using Flux: Adam, Chain, Flux, logitcrossentropy, onehotbatch
using PythonCall: pyconvert

reversed(array) = permutedims(array, ndims(array):-1:1)

function (hidden, jax_function, params, batches, rate)
    arrays = pyconvert(Dict{String,Array}, params)
    names = Tuple(Symbol.(keys(arrays)))
    output = PyBridge.JaxLayer(jax_function, NamedTuple{names}(reversed.(values(arrays))))
    model = Chain(deepcopy(hidden), output)
    data = map(batches) do (images, labels)
        reversed(pyconvert(Array, images)), onehotbatch(pyconvert(Array, labels), 0:9)
    end
    losses = Float64[]
    Flux.train!(model, data, Flux.setup(Adam(rate), model)) do model, images, labels
        loss = logitcrossentropy(model(images), labels)
        Flux.ignore_derivatives(() -> push!(losses, loss))
        return loss
    end
    return losses
end
