"""Basinscope tells how complex a trained neural network really is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import exact as exact
    from . import optim as optim
    from . import training as training
    from . import zoo as zoo
    from .curvature.operators import operator as operator
    from .curvature.penalty import penalty as penalty
    from .errors import BasinscopeError as BasinscopeError
    from .errors import InputError as InputError
    from .estimates import Check as Check
    from .estimates import Estimate as Estimate
    from .landscape import Landscape as Landscape
    from .language.model import LanguageModel as LanguageModel
    from .measures.coefficient import LearningCoefficient as LearningCoefficient
    from .measures.comparison import Comparison as Comparison
    from .measures.comparison import compare as compare
    from .measures.covariances import Covariances as Covariances
    from .measures.covariances import covariance as covariance
    from .measures.covariances import influence as influence
    from .measures.covariances import loss_kernel as loss_kernel
    from .measures.criteria import Criteria as Criteria
    from .measures.criteria import criteria as criteria
    from .measures.distances import information_distance as information_distance
    from .measures.distances import loss_distance as loss_distance
    from .measures.distances import parameter_error as parameter_error
    from .measures.evidence import LogLikelihood as LogLikelihood
    from .measures.fluctuation import fluctuation as fluctuation
    from .measures.free_energy import free_energy as free_energy
    from .measures.gap import gap as gap
    from .measures.llc import llc as llc
    from .measures.llc_along import LlcAlong as LlcAlong
    from .measures.llc_along import llc_along as llc_along
    from .measures.llc_by_part import LlcByPart as LlcByPart
    from .measures.llc_by_part import llc_by_part as llc_by_part
    from .measures.log_det import log_det as log_det
    from .measures.log_likelihood import log_likelihood as log_likelihood
    from .measures.loo import loo as loo
    from .measures.operator_norm import operator_norm as operator_norm
    from .measures.posterior import Posterior as Posterior
    from .measures.posterior import plan as plan
    from .measures.posterior import posterior as posterior
    from .measures.predictions import Predictions as Predictions
    from .measures.predictions import predict as predict
    from .measures.resolution_curve import ResolutionCurve as ResolutionCurve
    from .measures.resolution_curve import resolution_curve as resolution_curve
    from .measures.selftest import selftest as selftest
    from .measures.soft_rank import soft_rank as soft_rank
    from .measures.spectrum import spectrum as spectrum
    from .measures.susceptibilities import susceptibilities as susceptibilities
    from .measures.symmetries import Symmetries as Symmetries
    from .measures.symmetries import symmetries as symmetries
    from .measures.temperature import temperature_regression as temperature_regression
    from .measures.tic import tic as tic
    from .measures.tokens import token_losses as token_losses
    from .measures.trace import hessian_trace as hessian_trace
    from .measures.trace import trace as trace
    from .measures.volume import volume_scaling as volume_scaling
    from .measures.waic import waic as waic
    from .measures.wbic import wbic as wbic
    from .report.audit import Audit as Audit
    from .report.audit import audit as audit
    from .report.development import Development as Development
    from .report.development import develop as develop
    from .report.measure import measure as measure
    from .report.measure import quick as quick
    from .report.report import Report as Report
    from .sampling.clock import Nominal as Nominal
    from .sampling.clock import Schedule as Schedule

# Names are loaded on first use: the command line answers --help without importing torch.
_HOMES = {
    "BasinscopeError": "errors",
    "InputError": "errors",
    "Audit": "report.audit",
    "Check": "estimates",
    "Comparison": "measures.comparison",
    "Covariances": "measures.covariances",
    "Criteria": "measures.criteria",
    "Development": "report.development",
    "Estimate": "estimates",
    "Landscape": "landscape",
    "LanguageModel": "language.model",
    "LearningCoefficient": "measures.coefficient",
    "LlcAlong": "measures.llc_along",
    "LlcByPart": "measures.llc_by_part",
    "Nominal": "sampling.clock",
    "Posterior": "measures.posterior",
    "Predictions": "measures.predictions",
    "Report": "report.report",
    "ResolutionCurve": "measures.resolution_curve",
    "Schedule": "sampling.clock",
    "LogLikelihood": "measures.evidence",
    "Symmetries": "measures.symmetries",
    "audit": "report.audit",
    "compare": "measures.comparison",
    "covariance": "measures.covariances",
    "criteria": "measures.criteria",
    "develop": "report.development",
    "fluctuation": "measures.fluctuation",
    "free_energy": "measures.free_energy",
    "gap": "measures.gap",
    "hessian_trace": "measures.trace",
    "influence": "measures.covariances",
    "information_distance": "measures.distances",
    "llc": "measures.llc",
    "llc_along": "measures.llc_along",
    "llc_by_part": "measures.llc_by_part",
    "log_det": "measures.log_det",
    "log_likelihood": "measures.log_likelihood",
    "loo": "measures.loo",
    "loss_distance": "measures.distances",
    "loss_kernel": "measures.covariances",
    "measure": "report.measure",
    "operator": "curvature.operators",
    "operator_norm": "measures.operator_norm",
    "parameter_error": "measures.distances",
    "penalty": "curvature.penalty",
    "plan": "measures.posterior",
    "posterior": "measures.posterior",
    "predict": "measures.predictions",
    "quick": "report.measure",
    "resolution_curve": "measures.resolution_curve",
    "selftest": "measures.selftest",
    "soft_rank": "measures.soft_rank",
    "spectrum": "measures.spectrum",
    "susceptibilities": "measures.susceptibilities",
    "symmetries": "measures.symmetries",
    "temperature_regression": "measures.temperature",
    "tic": "measures.tic",
    "token_losses": "measures.tokens",
    "trace": "measures.trace",
    "volume_scaling": "measures.volume",
    "waic": "measures.waic",
    "wbic": "measures.wbic",
}

_PACKAGES = ("exact", "optim", "training", "zoo")

__all__ = ["__version__", *_PACKAGES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'basinscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
