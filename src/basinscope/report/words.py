"""Numbers and warnings as a reader wants them: digits that mean something, reasons apart from remedies."""

from __future__ import annotations

import math
import time
from typing import Any

from ..estimates import Check as Check
from ..estimates import Estimate, unmet

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MISSING = "–"

# What each estimate is called, and what it says, in one line.
NAMES: dict[str, tuple[str, str]] = {
    "llc": ("learning coefficient λ̂", "half the effective number of parameters, from sampling"),
    "llc_basin": ("basin", "nβ(E L − L(ŵ)): coefficient of the basin around w*, wherever in it w* is"),
    "llc_drop": ("drop", "nβ(L(w*) − L(ŵ)) in nats: how far above the bottom of its basin w* is"),
    "half_soft_rank": ("½ soft rank", "λ̂ of a quadratic basin of the same curvature"),
    "llc_verdict": ("verdict on λ̂", ""),
    "train_loss": ("training loss", ""),
    "trace": ("Hessian trace", "total curvature; the slope of λ̂ where nβ is small"),
    "hessian_trace": ("Hessian trace", "total curvature; the slope of λ̂ where nβ is small"),
    "largest_eigenvalue": ("largest eigenvalue", "sharpest direction of the Hessian"),
    "log_det": ("½ log det(I + F/Λ)", "Laplace's complexity term: volume of the basin against the prior's"),
    "waic": ("WAIC", "predicted loss per sample on new data, averaged over the local posterior"),
    "loo": ("LOO", "the same by leaving out each sample in turn, Pareto-smoothed"),
    "tic": ("TIC", "the same from curvature: L + (1/n) Tr(C H⁻¹)"),
    "llc_nbeta": ("nβ of λ̂", "inverse temperature times samples"),
    "llc_gamma": ("γ of λ̂", "precision of the localiser"),
    "llc_at_minimum": ("w* is a minimum", "at this resolution"),
    "aic": ("AIC", "the same counting every parameter: L + d/n"),
    "gap": ("predicted gap", "(1/n) (Tr C / Tr F) · soft rank: loss on new data less training loss"),
    "measured_gap": ("measured gap", "loss on held-out data less training loss"),
    "wbic": ("WBIC", "E[n L] at β = 1/log n: free energy in nats, smaller is better among models of the same data"),
    "bic": ("BIC", "n L + (d/2) log n: free energy of a regular model"),
    "fluctuation": ("singular fluctuation ν̂", "half the functional variance: effective parameters of WAIC, halved"),
}

VERDICTS = {
    "ok": "Believe it: every check passed.",
    "doubtful": "Read with care: a check did not pass.",
    "failed": "Do not use this number.",
}


def number(value: Any, digits: int = 4) -> str:
    """A number in `digits` significant digits, with a power of ten where that is shorter.

    Examples:
        >>> number(1234.567), number(0.000012345), number(None), number(12), number(7e8), number(0.1)
        ('1,235', '1.234×10⁻⁵', '–', '12', '7×10⁸', '0.1')
    """
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if isinstance(value, int) and abs(value) < 10**9:
        return f"{value:,}".replace("-", "−")
    power = math.floor(math.log10(abs(value)))
    if power < -3 or power >= 7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−")
    places = max(0, digits - 1 - power)
    text = f"{value:,.{places}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")


def with_error(value: Any, stderr: Any) -> str:
    """A value with its standard error, both to the error's second digit.

    Examples:
        >>> with_error(50.8934, 0.674), with_error(3.0, 0.0), with_error(None, None), with_error(1234.5, 87.0)
        ('50.89 ± 0.67', '3', '–', '1,234 ± 87')
    """
    if not isinstance(value, (int, float)) or not isinstance(stderr, (int, float)) or not math.isfinite(stderr):
        return number(value)
    if not stderr > 1e-6 * abs(value) or not math.isfinite(value):
        return number(value, 5)  # exact, or as good as
    power = math.floor(math.log10(stderr))
    scale = max(abs(value), stderr)
    if scale < 1e-3 or scale >= 1e7:
        top = math.floor(math.log10(scale))
        places = max(0, top - power + 1)
        shown = f"({value / 10**top:.{places}f} ± {stderr / 10**top:.{places}f})"
        return f"{shown}×10{str(top).translate(_SUPERSCRIPT)}".replace("-", "−")
    places = max(0, 1 - power)
    return f"{value:,.{places}f} ± {stderr:,.{places}f}".replace("-", "−")


def interval(estimate: Estimate) -> str:
    """The 90 % interval, to the digits of the standard error; empty for an exact value.

    Examples:
        >>> interval(Estimate("llc", 50.9, 0.67)), interval(Estimate("llc", 3.0, 0.0))
        ('49.80 … 52.00', '')
    """
    low, high = ends = estimate.interval(0.9)
    largest = max(map(abs, ends))
    if not math.isfinite(largest) or estimate.stderr <= 1e-6 * largest:
        return ""
    places = max(0, 1 - math.floor(math.log10(estimate.stderr)))
    if places > 5 or largest >= 1e7:
        return f"{number(low)} … {number(high)}"
    return f"{low:,.{places}f} … {high:,.{places}f}".replace("-", "−")


def keywords(estimate: Estimate) -> str:
    """What an estimate's warnings are about, for a table: the words before their colons.

    Examples:
        >>> warnings = ["not converged: R̂ = 1.3", "not converged: it drifts", "imprecise: 20 %"]
        >>> keywords(Estimate("llc", 1.0, 0.2, tuple(map(Check.not_passed, warnings))))
        'not converged, imprecise'
    """
    return ", ".join(dict.fromkeys(check.trouble.partition(":")[0] for check in unmet(estimate.checks)))


def sentence(text: str) -> str:
    """A text with a capital in front; Greek letters stay what they are.

    Examples:
        >>> sentence("train longer"), sentence("λ̂ is doubtful")
        ('Train longer', 'λ̂ is doubtful')
    """
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


REFERENCE = ("aic", "bic")  # of regular models: there to be compared with, not to be believed of a network
BIBTEX = """@software{basinscope,
  title = {Basinscope: how complex a trained network really is},
  author = {{The Basinscope authors}},
  version = {%s},
  year = {2026}
}
@article{lau2023local,
  title = {The Local Learning Coefficient: A Singularity-Aware Complexity Measure},
  author = {Lau, Edmund and Furman, Zach and Wang, George and Murfet, Daniel and Wei, Susan},
  journal = {arXiv preprint arXiv:2308.12108},
  year = {2023}
}"""


def title_of(name: str) -> str:
    """What an estimate is called.

    Examples:
        >>> title_of("llc"), title_of("own_measure")
        ('learning coefficient λ̂', 'own measure')
    """
    return NAMES[name][0] if name in NAMES else name.replace("_", " ")


def meaning_of(name: str) -> str:
    """What an estimate says; empty for one that is not known here."""
    return NAMES[name][1] if name in NAMES else ""


def moment(seconds: float) -> str:
    """A time as date and minute, UTC.

    Examples:
        >>> moment(0.0)
        '1970-01-01 00:00 UTC'
    """
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
