"""Every limit of every verdict, with runs that pass at it and would not at another; used by several tests."""

import basinscope as bs
from basinscope.measures import checks, llc_checks
from basinscope.sampling import convergence

SOUND = {
    "started": 8, "chains": 8, "draws": 100, "burn_in": 50, "diverged": 0, "interrupted": False, "sampler": "hmc",
    "acceptance": 0.8, "rhat": 1.01, "drift": 0.0, "virial": 1.0, "virial_stderr": 0.001, "slope": 0.0, "nbeta": 10.0,
    "gamma": 1.0, "largest_eigenvalue": 0.01, "batch_size": None, "gamma_slope": -2.0, "rtol": 0.02,
    "rounding": 1e-5, "gradient_mismatch": 0.001,
}  # fmt: skip

# Each limit of λ̂ with what to change for a λ̂ = 10 ± 0.2 that passes, and a limit under which the same run would not.
OF_LLC = {
    "MIN_ACCEPTANCE": ({"acceptance": 0.15}, 0.2),
    "MAX_DRIFT_STDERRS": ({"drift": 1.0}, 3.0),
    "MAX_VIRIAL_ERROR": ({"virial": 1.04}, 0.03),
    "MAX_VIRIAL_STDERRS": ({"virial": 1.3, "virial_stderr": 0.1}, 2.0),
    "MAX_STEP_BIAS": ({"slope": 0.1, "sampler": "minibatch"}, 0.05),
    "PRECISE": ({"rhat": 1.3, "stderr": 0.09}, 0.4),
    "MAX_LOCALISER_SHARE": ({"largest_eigenvalue": 0.01}, 0.1),
    "MAX_ROUNDING": ({"rounding": 0.05}, 0.01),
    "MAX_MISMATCH": ({"gradient_mismatch": 0.1}, 0.05),
    "MAX_RHAT": ({"rhat": 1.05}, 1.01),
    "MAX_RHAT_OF_PRECISE": ({"rhat": 1.4, "stderr": 0.01}, 1.2),
    "MAX_RELATIVE_STDERR": ({"stderr": 0.9}, 0.05),
}

# Of whether w* is a minimum: another limit, and the answer of a run that was a minimum.
MINIMUM = {"drop": 0.9, "drop_stderr": 0.01, "basin": 10.9, "smallest_eigenvalue": -0.05, "nbeta": 10.0, "gamma": 1.0}
OF_MINIMUM = {
    "MAX_DROP_SHARE": (0.08, "no"), "MAX_DOWNWARD_CURVATURE": (0.1, "no"), "MAX_DROP_ERROR": (5e-4, "unknown"),
}  # fmt: skip

# The limits of the other measures, by the module that says them.
OF_OTHERS = {
    "curvature.averages": ("MAX_ROUNDING_OF_RTOL", "MAX_STDERR_OF_RTOL"),
    "curvature.calibration": ("CALIBRATED_RATIOS",),
    "curvature.sandwich": ("MAX_DECREMENT_SHARE",),
    "measures.audit_checks": ("FEWEST_EFFECTIVE", "GROWTH", "MAX_BIAS", "MAX_RHAT", "MAX_SHIFT", "MAX_STDERRS"),
    "measures.checks": ("MAX_RELATIVE_STDERR",),
    "measures.evidence": ("MAX_DRAW_BIAS",),
    "measures.gap": ("MAX_PARAMETERS_PER_SAMPLE",),
    "measures.held_out": ("MIN_SAMPLES",),
    "measures.psis": ("MAX_SHAPE",),
    "measures.selftest": ("MAX_DOUBTFUL_ERROR", "MAX_ERROR", "MAX_ERROR_STDERRS", "CHANCE_STDERRS"),
    "measures.symmetries": ("MAX_EXCESS_STDERRS",),
    "measures.temperature": ("MAX_DIVERGENT_SHARE", "MIN_R_SQUARED", "MAX_STDERR_OF_PRECISE"),
    "measures.trace": ("MAX_STDERR_OF_RTOL",),
    "measures.volume": ("MAX_CHI_SQUARED", "MAX_MISSED", "MIN_BETTER_FIT"),
    "measures.waic": ("MAX_DESCENT", "MAX_IRREGULARITY", "MAX_VARIANCE"),
    "runs.chains": ("MIN_AGREEMENT",),
    "sampling.convergence": ("MAX_RHAT", "MAX_RHAT_OF_PRECISE"),
}


def coefficient(changes):
    """λ̂ of a run without fault but for the changes."""
    seen = {**SOUND, **changes}
    stderr = seen.pop("stderr", 0.2)
    return bs.LearningCoefficient("llc", 10.0, stderr, llc_checks.llc_checks(10.0, stderr, seen), seen)


def set_limit(monkeypatch, name, value):
    """Another limit of λ̂ in its only place."""
    module = next(module for module in (llc_checks, checks, convergence) if name in vars(module))
    monkeypatch.setattr(module, name, value)
