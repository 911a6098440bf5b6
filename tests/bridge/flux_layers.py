"""Flux's layers, as the tests of `from_flux` and the table in docs/layers/parity.md see them."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
from flux_helpers import inputs

from pybridge import nn
from pybridge.julia._session import session

IMAGES, VECTORS, SEQUENCES, INDICES = (3, 4, 6, 5), (7, 4), (3, 5, 4), (2, 4)
LAYERS = {
    "Dense(4 => 3, relu)": VECTORS,
    "Dense(4 => 3; bias=false)": VECTORS,
    "Conv((3, 2), 4 => 6, gelu; pad=(1, 0, 2, 1), stride=(1, 2), groups=2)": IMAGES,
    "Conv((3, 3), 4 => 2; pad=SamePad(), dilation=2, bias=false)": IMAGES,
    "ConvTranspose((3, 2), 4 => 6, swish; stride=2, pad=(1, 0, 0, 1), outpad=1, groups=2)": IMAGES,
    "MaxPool((3, 2); pad=(1, 0), stride=2)": IMAGES,
    "MeanPool((3, 2); pad=(1, 0, 0, 1))": IMAGES,
    "GlobalMeanPool()": IMAGES,
    "BatchNorm(4, tanh)": IMAGES,
    "BatchNorm(4; affine=false, eps=0.25, momentum=0.3)": VECTORS,
    "BatchNorm(4; track_stats=false)": VECTORS,
    "InstanceNorm(4, σ; affine=true, track_stats=true)": IMAGES,
    "InstanceNorm(4)": IMAGES,
    "GroupNorm(4, 2, elu)": IMAGES,
    "GroupNorm(4, 4; affine=false)": IMAGES,
    "LayerNorm(4, relu; eps=0.5)": VECTORS,
    "LayerNorm((5, 6), tanh; affine=false)": IMAGES,
    "Flux.WeightNorm(Dense(4 => 3))": VECTORS,
    "Flux.WeightNorm(Conv((3, 3), 4 => 2); dims=(1, 2))": IMAGES,
    "Dropout(0.3)": VECTORS,
    "Dropout(0.3; dims=(3, 4))": IMAGES,
    "AlphaDropout(0.3)": VECTORS,
    "SkipConnection(Chain(Dense(4 => 4), Dropout(0.5)), +)": VECTORS,
    "Parallel(vcat, Dense(4 => 2), Chain(Dense(4 => 3), Dropout(0.5)), identity)": VECTORS,
    "Chain(first=Dense(4 => 4, mish), second=logsoftmax)": VECTORS,
    "Parallel(+; a=Dense(4 => 2), b=Chain(BatchNorm(4), Dense(4 => 2)))": VECTORS,
    "Chain(PairwiseFusion(+; a=Dense(4 => 4), b=BatchNorm(4)), Parallel(+, σ, σ))": VECTORS,
    "Maxout(Dense(4 => 2), Dense(4 => 2, tanh))": VECTORS,
    "Chain(Dense(4 => 3), x -> relu.(x), x -> x, x -> softmax(x))": VECTORS,
    "Parallel((a, b) -> a .+ b, Dense(4 => 2), Dense(4 => 2, x -> gelu(x)))": VECTORS,
    "SkipConnection(Chain(MultiHeadAttention(4; nheads=2), first), (y, x) -> y + x)": SEQUENCES,
    "Flux.Bilinear(4 => 3, tanh)": VECTORS,
    "Flux.Scale(4, relu)": VECTORS,
    "Flux.Scale(5, 6; bias=false)": IMAGES,
    "CrossCor((3, 2), 4 => 2, gelu; stride=(1, 2), pad=(1, 0, 2, 1))": IMAGES,
    "DepthwiseConv((3, 2), 4 => 8; pad=1)": IMAGES,
    "AdaptiveMaxPool((2, 3))": IMAGES,
    "AdaptiveMeanPool((2, 3))": IMAGES,
    "GlobalMaxPool()": IMAGES,
    "Upsample(2)": IMAGES,
    "Upsample(:bilinear; scale=(1.5, 2))": IMAGES,
    "Upsample(:nearest; size=(10, 12))": IMAGES,
    "Upsample(:nearest; scale=(3,))": IMAGES,
    "PixelShuffle(2)": IMAGES,
    "RNN(4 => 3, relu)": SEQUENCES,
    "LSTM(4 => 3; return_state=true)": SEQUENCES,
    "GRU(4 => 3; bias=false)": SEQUENCES,
    "GRUv3(4 => 3)": SEQUENCES,
    "Recurrence(LSTMCell(4 => 3))": SEQUENCES,
    "RNNCell(4 => 3)": VECTORS,
    "LSTMCell(4 => 3)": VECTORS,
    "GRUCell(4 => 3)": VECTORS,
    "GRUv3Cell(4 => 3; bias=false)": VECTORS,
    "MultiHeadAttention(4; nheads=2, dropout_prob=0.25)": SEQUENCES,
    "MultiHeadAttention(4 => (6, 4) => 3; nheads=2, bias=true)": SEQUENCES,
    "Embedding(5 => 3)": INDICES,
    "EmbeddingBag(5 => 3, sum)": INDICES,
    "Chain(Chain(Flux.flatten), Dense(120 => 2), logsoftmax)": IMAGES,
}


def exported_layers():
    """Name the layers that Flux exports: its own types whose values can be called, and functions
    with a type's name."""
    session().require("Flux")
    source = """begin
        import Flux
        is_layer(T::Type) = !isempty(Base._methods_by_ftype(
            Tuple{T,Vararg{Any}}, -1, Base.get_world_counter()))
        is_layer(x) = x isa Function
        join((name for name in names(Flux) if isuppercase(first(string(name))) &&
            parentmodule(getfield(Flux, name)) === Flux && is_layer(getfield(Flux, name))), ' ')
    end"""
    import juliacall

    return str(session().call(lambda _: juliacall.Main.seval(source))).split()


def made_by(name, source):
    """Tell whether the source makes a layer of this name."""
    return re.search(rf"\b{name}\(", source) is not None


def layer_input(source, dtype):
    """Make an input for a Flux layer; indices count from 1."""
    shape = LAYERS[source]
    if shape == INDICES:
        return jnp.asarray(np.random.default_rng(1).integers(1, 6, shape))
    return jnp.asarray(inputs(shape, dtype))


def twin_input(layer, x):
    """Make the input of the twin: indices count from 0 there."""
    return x - 1 if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else x


def shaken(tree, dtype):
    """Weights that are nothing special; variances stay positive."""
    leaves, treedef = jax.tree.flatten(tree)
    moved = [jnp.abs(a) + inputs(a.shape, dtype, seed=i) ** 2 for i, a in enumerate(leaves)]
    return jax.tree.unflatten(treedef, [a.astype(dtype) for a in moved])
