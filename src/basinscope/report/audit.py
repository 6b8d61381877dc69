"""The auditor: what chains that another tool made are worth, in words and on a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..adapters.chains import ForeignChains, read_chains
from ..checks import positive, whole
from ..errors import InputError
from ..estimates import Check, Estimate, plain
from ..files import write_whole
from ..landscape import Landscape, watanabe_nbeta
from ..measures.audit_checks import BITS, SamplingFacts, audit_checks, localisation, reading_of
from ..measures.measured import ChainTraces
from ..measures.trace import trace
from ..verdict import Checked, unmet
from .words import number, sentence, with_error

FEWEST = 16  # steps of each chain
_DRAWN, _BLOCKS = 8, 200
_PRECISIONS = ("float64", "float32", *BITS)


@dataclass(frozen=True)
class Audit(Checked):
    """What an audit found.

    Attributes:
        source: whose chains they are.
        llc: λ̂ of the second half of the chains, with the verdict on it; without a value where nβ or L(w*) is unknown.
        reported: λ̂ as the tool's own function has it; NaN if unknown.
        checks: what was looked at.
        facts: settings, and what was seen.
        chains: the chains in few enough points to be drawn.
    """

    source: str
    llc: Estimate
    reported: float
    checks: tuple[Check, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    chains: ChainTraces | None = None

    @property
    def defects(self) -> tuple[str, ...]:
        """The kinds of trouble that were found, failures first."""
        return tuple(check.trouble.partition(":")[0] for check in unmet(self.checks))

    @property
    def words(self) -> str:
        """The verdict in a sentence or two."""
        defects = self.defects
        value = (
            f"λ̂ = {with_error(self.llc.value, self.llc.stderr)}" if math.isfinite(self.llc.value) else "The mean loss"
        )
        if not defects:
            return f"Sound: {value} can be believed. {self.resolution}"
        worth = "is not that of the local posterior" if self.verdict == "failed" else "is to be doubted"
        return f"{value} {worth}: {'; '.join(defects)}. {self.resolution}"

    @property
    def resolution(self) -> str:
        """To which nβ and γ the number belongs, in words."""
        nbeta, gamma, reached = (self.facts[name] for name in ("nbeta", "gamma", "gamma_reached"))
        samples = self.facts["samples"]
        if not math.isfinite(nbeta):
            return "nβ is not known, so that losses can be judged but no λ̂ can be given."
        usual = f" (n/log n is {number(watanabe_nbeta(int(samples)))})" if samples >= 3 else ""
        localiser = f"γ = {number(gamma)}" if math.isfinite(gamma) else "an unknown γ"
        effective = f", of which the run is long enough for γ ≈ {number(reached)}" if reached > 1.1 * gamma else ""
        return f"It belongs to nβ = {number(nbeta)}{usual} and {localiser}{effective}."

    def to_dict(self) -> dict[str, Any]:
        """Everything but the chains as plain values, ready for JSON."""
        return {
            "source": self.source, "verdict": self.verdict, "words": self.words, "defects": list(self.defects),
            "llc": self.llc.to_dict(), "reported": plain(self.reported),
            "checks": [asdict(check) for check in self.checks], "facts": plain(dict(self.facts)),
        }  # fmt: skip

    def to_html(self, path: str | Path) -> Path:
        """Write the audit as one page without scripts."""
        from .figures import chains
        from .pages import templates

        figure = None if self.chains is None else chains(self.chains, self.llc)
        troubles = [(check.trouble, check.remedy) for check in unmet(self.checks)]
        text = templates().get_template("audit.html").render(audit=self, drawn=figure, troubles=troubles)
        write_whole(path, text.encode())
        return Path(path)

    def __repr__(self) -> str:
        return f"Audit({self.source}: {self.verdict}{''.join(f'; {kind}' for kind in self.defects)})"


def audit(
    chains: Any,
    land: Landscape | None = None,
    *,
    init_loss: float | None = None,
    reported: float | None = None,
    nbeta: float | None = None,
    gamma: float | None = None,
    step_size: float | None = None,
    batch_size: float | None = None,
    burn_in: int | None = None,
    samples: int | None = None,
    hessian_trace: float | None = None,
    noise_trace: float | None = None,
    weight_scale: float | None = None,
    dtype: str | None = None,
) -> Audit:
    """Judge chains of stochastic-gradient Langevin dynamics, or of any other sampler, that another tool made.

    Named are burn-in that was averaged in, drift, disagreement of chains, too few effective draws, diffusion instead
    of equilibrium, weights moved in 16 bits, bias of the step size, and the γ that the run was long enough for. What a
    file does not tell can be said here; a check that nothing is known for passes, and says that it does not know.

    Args:
        chains: losses, an array (chains, steps); what devinterp 1 returned; or the path of a Zarr store of devinterp 2
            or of `Posterior.save`, of an ArviZ file, or of an array (`.npy`, `.npz`, `.json`).
        land: the landscape at w*, which knows L(w*), Tr H, the noise of batches, the size of the weights, and n.
        init_loss: L(w*).
        reported: λ̂ as the other tool gave it.
        nbeta, gamma, step_size, batch_size: of the sampler; steps are −(ε/2)∇U + √ε ξ.
        burn_in: steps at the beginning of `chains` that are not averaged over.
        samples: n.
        hessian_trace: Tr H of the mean loss at w*.
        noise_trace: trace of the covariance of one sample's gradient.
        weight_scale: root mean square of the weights.
        dtype: in which the weights were moved: `float64`, `float32`, `bfloat16` or `float16`; told from the losses
            unless given.

    Examples:
        >>> import numpy as np, basinscope as bs
        >>> noise = np.random.default_rng(0).gamma(2.0, 0.01, size=(4, 2000))
        >>> bs.audit(1.0 + noise, init_loss=1.0, nbeta=100.0).verdict
        'ok'
        >>> bs.audit(1.0 + noise + np.linspace(0.1, 0, 2000), init_loss=1.0, nbeta=100.0).defects
        ('burn-in averaged in', 'drift', 'chains disagree', 'too few effective draws')
    """
    read = read_chains(chains)
    given = {
        "init_loss": init_loss, "reported": reported, "nbeta": nbeta, "gamma": gamma, "step_size": step_size,
        "batch_size": batch_size, "samples": samples,
    }  # fmt: skip
    changes: dict[str, Any] = {name: _checked(name, value) for name, value in given.items() if value is not None}
    if burn_in is not None:
        changes["burn_in"] = whole("burn_in", burn_in, 0)
    if dtype is not None and dtype not in _PRECISIONS:
        raise InputError(f"dtype must be one of {', '.join(_PRECISIONS)}, got {dtype!r}")
    known = SamplingFacts(
        _checked("hessian_trace", hessian_trace), _checked("noise_trace", noise_trace),
        _checked("weight_scale", weight_scale), dtype or "",
    )  # fmt: skip
    read = replace(read, **changes)
    if land is not None:
        read, known = _with_landscape(land, read, known)
    _refuse_bad(read)
    return _audited(read, audit_checks(read, known))


def _audited(chains: ForeignChains, checks: tuple[Check, ...]) -> Audit:
    reading = reading_of(chains)
    value = chains.nbeta * (reading.mean - chains.init_loss)
    facts = {
        "nbeta": chains.nbeta, "gamma": chains.gamma, "gamma_reached": localisation(chains),
        "step_size": chains.step_size, "batch_size": chains.batch_size, "samples": chains.samples,
        "chains": len(chains.losses), "steps": chains.losses.shape[1], "burn_in": chains.burn_in,
        "init_loss": chains.init_loss, "mean_loss": reading.mean, "ess": reading.ess,
    }  # fmt: skip
    estimate = Estimate("llc", value, chains.nbeta * reading.stderr, checks, facts, max(1.0, reading.ess - 1))
    excess = chains.nbeta * (chains.losses - chains.init_loss) if math.isfinite(value) else chains.losses
    blocks = [block.mean(1) for block in np.array_split(excess, min(_BLOCKS, excess.shape[1]), axis=1)]
    rows = np.stack(blocks, 1)
    steps = excess.shape[1]
    traces = ChainTraces(
        steps, chains.burn_in + (steps - chains.burn_in) // 2, len(rows), rows[:_DRAWN].tolist(), rows.mean(0).tolist()
    )
    return Audit(chains.source, estimate, chains.reported, checks, facts, traces if math.isfinite(value) else None)


def _with_landscape(
    land: Landscape, chains: ForeignChains, known: SamplingFacts
) -> tuple[ForeignChains, SamplingFacts]:
    """What the landscape knows, where it was not said."""

    def unless(value: float, otherwise: Any) -> float:
        return value if math.isfinite(value) else float(otherwise())

    weights = land.flatten(land.parameters).double()
    mean = land.per_sample().mean
    chains = replace(chains, init_loss=unless(chains.init_loss, mean), samples=unless(chains.samples, lambda: land.n))
    hessian = unless(known.hessian_trace, lambda: trace(land, progress=False).value)
    noise = unless(known.noise_trace, lambda: trace(land, matrix="covariance", progress=False).value)
    return chains, SamplingFacts(hessian, noise, unless(known.weight_scale, weights.square().mean().sqrt), known.dtype)


def _refuse_bad(chains: ForeignChains) -> None:
    steps = chains.losses.shape[1]
    if steps - chains.burn_in < FEWEST:
        raise InputError(
            f"chains must have at least {FEWEST} steps after burn_in={chains.burn_in}, got {steps} — run them longer"
        )
    bad = ~np.isfinite(chains.losses)
    if bad.any():
        raise InputError(
            f"losses must be finite, got {int(bad.sum())} of {bad.size} that are not, in chains "
            f"{np.flatnonzero(bad.any(1))[:5].tolist()} — leave out chains that diverged; a file may be cut off"
        )


def _checked(name: str, value: Any) -> float:
    """A number as it was said; NaN where nothing was."""
    if value is None:
        return math.nan
    if name in ("nbeta", "step_size", "batch_size", "weight_scale"):
        return positive(name, value)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def in_words(audit: Audit) -> str:
    """The verdict, with what to do about each defect."""
    return "\n".join([audit.words, *(f"• {sentence(warning)}" for warning in audit.warnings)])
