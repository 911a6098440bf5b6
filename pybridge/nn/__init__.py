"""Layers in JAX with the numbers of Flux: explicit parameters and state, no hidden mode."""

from ._batchnorm import BatchNorm as BatchNorm
from ._containers import Chain as Chain
from ._containers import Parallel as Parallel
from ._containers import SkipConnection as SkipConnection
from ._dropout import AlphaDropout as AlphaDropout
from ._dropout import Dropout as Dropout
from ._groupnorm import GroupNorm as GroupNorm
from ._instancenorm import InstanceNorm as InstanceNorm
from ._layer import Layer as Layer
from ._layernorm import LayerNorm as LayerNorm
from ._mode import Mode as Mode
from ._mode import ModeWarning as ModeWarning
from ._weightnorm import WeightNorm as WeightNorm
