"""Layers in JAX with the numbers of Flux: explicit parameters and state, no hidden mode."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._later import imported_later as _imported_later
from . import losses as losses
from ._activations import celu as celu
from ._activations import elu as elu
from ._activations import gelu as gelu
from ._activations import gelu_erf as gelu_erf
from ._activations import gelu_sigmoid as gelu_sigmoid
from ._activations import gelu_tanh as gelu_tanh
from ._activations import hardsigmoid as hardsigmoid
from ._activations import hardswish as hardswish
from ._activations import hardtanh as hardtanh
from ._activations import hardσ as hardσ
from ._activations import identity as identity
from ._activations import leakyrelu as leakyrelu
from ._activations import lisht as lisht
from ._activations import logcosh as logcosh
from ._activations import logsigmoid as logsigmoid
from ._activations import logσ as logσ
from ._activations import mish as mish
from ._activations import relu as relu
from ._activations import relu6 as relu6
from ._activations import rrelu as rrelu
from ._activations import selu as selu
from ._activations import sigmoid as sigmoid
from ._activations import sigmoid_fast as sigmoid_fast
from ._activations import softplus as softplus
from ._activations import softshrink as softshrink
from ._activations import softsign as softsign
from ._activations import swish as swish
from ._activations import tanh as tanh
from ._activations import tanh_fast as tanh_fast
from ._activations import tanhshrink as tanhshrink
from ._activations import thresholdrelu as thresholdrelu
from ._activations import trelu as trelu
from ._activations import σ as σ
from ._adaptive_pool import AdaptiveMaxPool as AdaptiveMaxPool
from ._adaptive_pool import AdaptiveMeanPool as AdaptiveMeanPool
from ._adaptive_pool import GlobalMaxPool as GlobalMaxPool
from ._attention import MultiHeadAttention as MultiHeadAttention
from ._attention import make_causal_mask as make_causal_mask
from ._batchnorm import BatchNorm as BatchNorm
from ._bilinear import Bilinear as Bilinear
from ._cell import Cell as Cell
from ._cells import GRUCell as GRUCell
from ._cells import GRUv3Cell as GRUv3Cell
from ._cells import LSTMCell as LSTMCell
from ._cells import RNNCell as RNNCell
from ._connections import first as first
from ._connections import flatten as flatten
from ._connections import plus as plus
from ._connections import vcat as vcat
from ._containers import Chain as Chain
from ._containers import Parallel as Parallel
from ._containers import SkipConnection as SkipConnection
from ._conv import Conv as Conv
from ._conv import ConvTranspose as ConvTranspose
from ._crosscor import CrossCor as CrossCor
from ._crosscor import DepthwiseConv as DepthwiseConv
from ._dense import Dense as Dense
from ._dropout import AlphaDropout as AlphaDropout
from ._dropout import Dropout as Dropout
from ._embedding import Embedding as Embedding
from ._embedding_bag import EmbeddingBag as EmbeddingBag
from ._fusion import Maxout as Maxout
from ._fusion import PairwiseFusion as PairwiseFusion
from ._groupnorm import GroupNorm as GroupNorm
from ._init import glorot_normal as glorot_normal
from ._init import glorot_uniform as glorot_uniform
from ._init import identity_init as identity_init
from ._init import kaiming_normal as kaiming_normal
from ._init import kaiming_uniform as kaiming_uniform
from ._init import lecun_normal as lecun_normal
from ._init import nfan as nfan
from ._init import ones as ones
from ._init import orthogonal as orthogonal
from ._init import rand as rand
from ._init import randn as randn
from ._init import sparse_init as sparse_init
from ._init import truncated_normal as truncated_normal
from ._init import zeros as zeros
from ._instancenorm import InstanceNorm as InstanceNorm
from ._layer import Layer as Layer
from ._layernorm import LayerNorm as LayerNorm
from ._mode import Mode as Mode
from ._mode import ModeWarning as ModeWarning
from ._pool import GlobalMeanPool as GlobalMeanPool
from ._pool import MaxPool as MaxPool
from ._pool import MeanPool as MeanPool
from ._recurrent import GRU as GRU
from ._recurrent import LSTM as LSTM
from ._recurrent import RNN as RNN
from ._recurrent import GRUv3 as GRUv3
from ._recurrent import Recurrence as Recurrence
from ._scale import Scale as Scale
from ._softmax import glu as glu
from ._softmax import logsoftmax as logsoftmax
from ._softmax import logsumexp as logsumexp
from ._softmax import softmax as softmax
from ._tied import Tied as Tied
from ._upsample import PixelShuffle as PixelShuffle
from ._upsample import Upsample as Upsample
from ._weightnorm import WeightNorm as WeightNorm

if _TYPE_CHECKING:
    from ..flux_models import from_flux as from_flux
    from ..flux_models import register_flux as register_flux
    from ..flux_models import to_flux as to_flux

# The public names of what is above the layers.
__getattr__, __dir__ = _imported_later(
    __name__,
    {name: "..flux_models" for name in ("from_flux", "register_flux", "to_flux")},
)
