"""What a policy will cost and earn, from the log alone: estimates, calibrated thresholds, choice of a run."""

from bcrl.estimates.calibrating import Calibrated, calibrate
from bcrl.estimates.choosing import Ranked, choose
from bcrl.estimates.ensemble import Model, fit_model
from bcrl.estimates.estimating import Estimates, ThresholdEstimate, estimate
from bcrl.estimates.light import Light

__all__ = [
    "Calibrated",
    "Estimates",
    "Light",
    "Model",
    "Ranked",
    "ThresholdEstimate",
    "calibrate",
    "choose",
    "estimate",
    "fit_model",
]
