"""Flux's losses: functions of a prediction and a target, aggregated by their mean."""

from ._classes import binary_focal_loss as binary_focal_loss
from ._classes import binarycrossentropy as binarycrossentropy
from ._classes import crossentropy as crossentropy
from ._classes import focal_loss as focal_loss
from ._classes import kldivergence as kldivergence
from ._classes import label_smoothing as label_smoothing
from ._classes import logitbinarycrossentropy as logitbinarycrossentropy
from ._classes import logitcrossentropy as logitcrossentropy
from ._margins import dice_coeff_loss as dice_coeff_loss
from ._margins import hinge_loss as hinge_loss
from ._margins import siamese_contrastive_loss as siamese_contrastive_loss
from ._margins import squared_hinge_loss as squared_hinge_loss
from ._margins import tversky_loss as tversky_loss
from ._numbers import huber_loss as huber_loss
from ._numbers import mae as mae
from ._numbers import mse as mse
from ._numbers import msle as msle
from ._numbers import poisson_loss as poisson_loss
