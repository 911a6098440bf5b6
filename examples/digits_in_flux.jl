# The third way of examples/digits.py: Flux alone, from the same weights, batches and keys. The
# masks are JAX's, since the dropout layer's generator is PyBridge's.
using .Flux: BatchNorm, Chain, Conv, Dense, Dropout, MeanPool, f64, relu

function (weights, x, y, x_test, y_test, batches, words, rate, momentum)
    rng = PyBridge.MaskRNG(0.3)
    model = MODEL
    model = Chain(map(model.layers) do layer
        layer isa Dropout ? Dropout(layer.p; rng) : layer
    end)
    for (layer, arrays) in zip(model.layers, weights.layers), name in keys(arrays)
        copyto!(getproperty(layer, name), arrays[name])
    end
    optimiser = Flux.setup(Flux.Momentum(rate, momentum), model)
    place = findfirst(layer -> layer isa Dropout, model.layers) - 1
    losses = Float64[]
    for (batch, key) in zip(eachcol(batches), eachcol(words))
        PyBridge.rekey!(rng, PyBridge.fold_in(Tuple(key), place))
        chosen = batch .+ 1
        images, labels = x[:, :, :, chosen], Flux.onehotbatch(y[chosen], 0:9)
        loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(images), labels), model)
        Flux.update!(optimiser, model, gradients[1])
        push!(losses, loss)
    end
    right = Flux.onecold(model(x_test), 0:9) .== y_test
    return losses, sum(right) / length(right)
end
