# A JAX function as a layer of a Flux model, trained by Flux on handwritten digits.
#
# Python needs pybridge and scikit-learn, Julia an environment with PythonCall and Flux:
#
#     pip install pybridge scikit-learn
#     julia --project=digits -e 'using Pkg; Pkg.add(["PythonCall", "Flux"])'
#     export JULIA_CONDAPKG_BACKEND=Null JULIA_PYTHONCALL_EXE="$(which python)"
#     julia --project=digits examples/jax_layer_in_flux.jl

using Flux: Flux, Adam, Chain, DataLoader, Dense, glorot_uniform, logitcrossentropy,
    onecold, onehotbatch
using PythonCall: pyconvert, pyeval, pyexec, pyimport
using Random: seed!, shuffle

# The layer, in Python. `params` is a named tuple; `x` has the shape (batch, features).
pyexec("""
import jax

def gated(params, x):
    return jax.nn.silu(x @ params.gate) * (x @ params.weight + params.bias)
""", Main)

# The same layer in Julia. In reversed layout Flux's (features, batch) is JAX's
# (batch, features) without a copy; a weight of shape (in, out) has the size (out, in).
pb = pyimport("pybridge")
gated = pyconvert(Any, pb.to_julia(pyeval("gated", Main); layout="reversed"))
gated_layer((in, out)) = PyBridge.JaxLayer(gated, (
    gate=glorot_uniform(out, in), weight=glorot_uniform(out, in), bias=zeros(Float32, out)))

# 1797 images of 8 x 8 pixels, in a random order; a fifth is for the test.
seed!(1)
digits = pyimport("sklearn.datasets").load_digits()
images = permutedims(pyconvert(Matrix{Float32}, digits.data)) ./ 16
labels = onehotbatch(pyconvert(Vector{Int}, digits.target), 0:9)
order = shuffle(axes(images, 2))
train, test = order[1:1437], order[1438:end]

model = Chain(gated_layer(64 => 96), Dense(96 => 10))
println(model)
state = Flux.setup(Adam(0.005f0), model)
batches = DataLoader((images[:, train], labels[:, train]); batchsize=64, shuffle=true)
function accuracy(part)
    right = onecold(model(images[:, part])) .== onecold(labels[:, part])
    return sum(right) / length(right)
end

for epoch in 1:20
    Flux.train!(model, batches, state) do model, x, y
        logitcrossentropy(model(x), y)
    end
    epoch % 5 == 0 || continue
    println("epoch $epoch: test accuracy ", round(accuracy(test); digits=3))
end
