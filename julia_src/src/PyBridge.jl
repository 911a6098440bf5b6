"""
    PyBridge

Differentiation-aware primitives for Julia's AD systems, and the Julia half of the Python
package `pybridge`.

Ask `within_gradient(x)` or `is_differentiating(xs...)` whether a derivative is being
taken, and act on the answer with `PyBridge.cond` and `PyBridge.switch`. The names mean the
same as in Python.
"""
module PyBridge

using ChainRulesCore: ChainRulesCore, @thunk, AbstractZero, HasReverseMode, NoTangent,
    ProjectTo, RuleConfig, Tangent, ZeroTangent, rrule_via_ad, unthunk
using LinearAlgebra: BLAS, LinearAlgebra
using Logging: AbstractLogger, Logging, with_logger
using NNlib: NNlib, sigmoid_fast, tanh_fast
using Random: AbstractRNG, Random
using Random123: Random123

include("primitives/detection.jl")
include("primitives/order.jl")
include("primitives/cond.jl")
include("primitives/switch.jl")
include("primitives/take.jl")
include("primitives/erfinv.jl")
include("primitives/random.jl")
include("trees.jl")
include("backends.jl")
include("sources.jl")
include("observation.jl")
include("axes.jl")
include("wire.jl")
include("bridge/copyonwrite.jl")
include("bridge/forms.jl")
include("bridge/rules.jl")
include("bridge/programs.jl")
include("bridge/devices.jl")
include("bridge/pullbacks.jl")
include("bridge/outputs.jl")
include("bridge/ffi.jl")
include("nn/rebuild.jl")
include("loading.jl")
include("boundary.jl")
include("nn/models.jl")
include("jaxfunction.jl")
include("jaxrules.jl")
include("nn/layer.jl")
include("nn/checks.jl")
include("nn/ruled.jl")
include("nn/dropout.jl")
include("nn/init.jl")
include("nn/dense.jl")
include("nn/bilinear.jl")
include("nn/conv.jl")
include("nn/crosscor.jl")
include("nn/pool.jl")
include("nn/upsample.jl")
include("nn/embedding.jl")
include("nn/embeddingbag.jl")
include("nn/recurrentcells.jl")
include("nn/trajectory.jl")
include("nn/recurrent.jl")
include("nn/attention.jl")
include("nn/cells.jl")
include("nn/statistics.jl")
include("nn/normalise.jl")
include("nn/batchnorm.jl")
include("nn/instancenorm.jl")
include("nn/groupnorm.jl")
include("nn/layernorm.jl")
include("nn/weightnorm.jl")
include("nn/containers.jl")
include("nn/fusion.jl")
include("nn/show.jl")
include("lowering/Lowering.jl")
include("precompile.jl")

__init__() = open_store()

export DetectionError, is_differentiating, within_gradient

# `cond` is no export: LinearAlgebra has one, and Flux has the layers' names. They are public all
# the same.
const PUBLIC = (
    :take, :IndexOutOfBoundsError, :cond, :switch, :primal, :differentiation_order,
    :value_and_gradient, :pullback, :pushforward, :jacobian, :hessian, :JaxFunction,
    :JaxLayer, :JaxError, :fold_in, :split, :bits, :uniform, :normal, :keep_mask, :init,
    :apply, :Layer, :dropout, :Dropout, :alphadropout, :AlphaDropout, :Dense, :Conv,
    :ConvTranspose, :SamePad, :MaxPool, :MeanPool, :GlobalMeanPool, :Embedding,
    :BatchNorm, :InstanceNorm, :LayerNorm, :GroupNorm, :WeightNorm, :Chain,
    :SkipConnection, :Parallel, :PairwiseFusion, :Maxout, :Bilinear, :Scale, :CrossCor,
    :DepthwiseConv, :AdaptiveMaxPool, :AdaptiveMeanPool, :GlobalMaxPool, :Upsample,
    :PixelShuffle, :EmbeddingBag, :mean_along, :Cell, :RNNCell, :LSTMCell, :GRUCell,
    :GRUv3Cell, :RNN, :LSTM, :GRU, :GRUv3, :Recurrence, :initial_hidden, :step,
    :MultiHeadAttention, :make_causal_mask, :batchnorm, :instancenorm, :layernorm, :groupnorm,
    :glorot_uniform, :glorot_normal, :kaiming_uniform, :kaiming_normal, :truncated_normal,
    :lecun_normal, :orthogonal, :identity_init, :normal_init, :zeros_init, :ones_init,
    :MaskRNG, :rekey!
)
@static VERSION >= v"1.11" && eval(Expr(:public, PUBLIC...))

end
