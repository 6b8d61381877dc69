"""What a report says, in the order a reader asks for it: the same words on every page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._version import __version__
from ..estimates import Check, unmet
from ..measures.coefficient import minimum_checks
from ..measures.measured import Measurement
from ..progress import duration
from .report import Report
from .words import REFERENCE, moment, number, sentence, title_of, with_error


@dataclass(frozen=True)
class Story:
    """The words of a report.

    Attributes:
        verdict: of λ̂.
        others: how many of the other numbers are not ok.
        sentence: what was found, in one sentence.
        fit: losses and accuracies, on the data and on those that were held out.
        resolution: what nβ and γ mean for what counts.
        alike: whether all checkpoints were measured at one resolution.
        comparison: what the quadratic part says beside the sampled one.
        warnings: reasons and remedies, of λ̂ and of the run as a whole.
        asides: those of the other estimates.
        checks: of the chains.
        subject, choices, origin: names and values.
        command: how to make it again.
        methods: a sentence for a paper.
    """

    verdict: str
    others: str
    sentence: str
    fit: str
    resolution: str
    alike: str
    comparison: str
    warnings: list[tuple[str, str]]
    asides: list[tuple[str, str]]
    checks: tuple[Check, ...]
    subject: list[tuple[str, str]]
    choices: list[tuple[str, str]]
    origin: list[tuple[str, str]]
    command: str
    methods: str


def story(report: Report) -> Story:
    """The words of a report, about its last checkpoint unless they say otherwise."""
    measured = report.final
    return Story(
        verdict=measured.llc.verdict,
        others=_others(measured),
        sentence=_sentence(measured),
        fit=_fit(measured),
        resolution=_resolution(measured),
        alike=_alike(report),
        comparison=_comparison(measured),
        warnings=list(_warnings(report, measured)),
        asides=list(_asides(measured)),
        checks=measured.llc.checks,
        subject=list(_subject(report, measured)),
        choices=list(_choices(measured)),
        origin=list(_origin(report, measured)),
        command=report.command,
        methods=_methods(measured),
    )


def _sentence(measured: Measurement) -> str:
    value, dimension = measured.llc.value, measured.subject.parameters
    if not math.isfinite(value):
        return f"No learning coefficient could be had for this network of {dimension:,} parameters."
    if measured.llc.of_basin is not measured.llc:
        basin, coarser = measured.llc.basin.value, measured.llc.note.partition("; ")[2]
        return (
            f"At this resolution the weights are no minimum: {_why_no_minimum(measured)} a basin that counts as "
            f"{_counted(basin, dimension)}." + (f" {sentence(coarser)}." if coarser else "")
        )
    if value <= 0:
        return "The chains found lower loss than the network has, and no basin: λ̂ means nothing here."
    return f"At this resolution the network counts as {_counted(value, dimension)}."


def _why_no_minimum(measured: Measurement) -> str:
    """Where w* is in its basin, up to the name of that."""
    drop, diagnostics = measured.llc.drop.value, measured.llc.diagnostics
    first = unmet(minimum_checks(measured.llc.value, diagnostics))[:1]
    if first and not first[0].name.startswith("drop"):
        return "the loss still falls along some direction in"
    return f"they lie {number(drop, 3)} nats above the bottom of"


def _others(measured: Measurement) -> str:
    """How many of the other numbers are to be doubted; those that only serve as a reference do not count."""
    verdicts = [each.verdict for name, each in measured.by_name.items() if name not in ("llc", *REFERENCE)]
    shaky = {verdict: verdicts.count(verdict) for verdict in ("doubtful", "failed") if verdict in verdicts}
    counts = " and ".join(f"{count} {verdict}" for verdict, count in shaky.items()) or "none doubtful"
    return f"λ̂ {measured.llc.verdict}; of {len(verdicts)} other numbers {counts}"


def _fit(measured: Measurement) -> str:
    subject, gap = measured.subject, measured.estimates.get("measured_gap")
    parts = [f"training loss {number(subject.loss_value)}{_hits(subject.accuracy)}"]
    if gap is not None and gap.diagnostics.get("held_out_loss") is not None:
        seen = gap.diagnostics
        parts.append(f"held-out loss {number(seen['held_out_loss'])}{_hits(seen.get('held_out_accuracy'))}")
    elif measured.estimates.get("gap") is not None:
        parts.append("no held-out data were given")
    return sentence("; ".join(parts)) + "."


def _hits(accuracy: float | None) -> str:
    return "" if accuracy is None else f", accuracy {accuracy:.1%}"


def _resolution(measured: Measurement) -> str:
    nbeta, gamma = (measured.llc.diagnostics.get(name) for name in ("nbeta", "gamma"))
    if not (nbeta and gamma):
        return ""
    return (
        f"At this resolution a direction counts where the loss curves by more than γ/(nβ) = {number(gamma / nbeta, 3)}."
    )


def _alike(report: Report) -> str:
    """In words, whether λ̂ of the checkpoints may be compared."""
    seen = [point.measured.llc.diagnostics for point in report.points if point.measured is not None]
    spans = []
    for name, symbol in (("nbeta", "nβ"), ("gamma", "γ")):
        values = [float(each[name]) for each in seen if each.get(name) is not None]
        if values and not math.isclose(min(values), max(values), rel_tol=1e-6):
            spans.append(f"{symbol} from {number(min(values), 3)} to {number(max(values), 3)}")
    if spans:
        return f"Checkpoints were measured at {' and '.join(spans)}, so that their λ̂ must not be compared: set --gamma."
    first = seen[0] if seen else {}
    return f"Every checkpoint was measured at nβ = {number(first.get('nbeta'))} and γ = {number(first.get('gamma'))}."


def _methods(measured: Measurement) -> str:
    """What a paper has to say of the number, and what it cites."""
    llc, subject, seen = measured.llc, measured.subject, measured.llc.diagnostics
    if not math.isfinite(llc.value):
        return ""
    how = {"hmc": "Hamiltonian Monte Carlo on all data", "minibatch": "extrapolated minibatch Langevin chains"}
    sampler = how.get(str(seen.get("sampler")), f"{seen.get('sampler')} chains")
    return (
        f"The local learning coefficient (Lau et al., 2023) at nβ = {number(seen.get('nbeta'))} and "
        f"γ = {number(seen.get('gamma'))}, on n = {subject.samples:,} samples, was estimated with Basinscope "
        f"{__version__} by {sampler} ({seen.get('chains')} chains): λ̂ = {with_error(llc.value, llc.stderr)}, "
        f"verdict {llc.verdict}."
    )


def _counted(value: float, dimension: int) -> str:
    """A learning coefficient as a number of parameters."""
    share = 2 * value / dimension
    percent = f"{share:.{0 if share >= 0.1 else 1 if share >= 0.01 else 2}%}"
    return f"{number(2 * value, 3)} of its {dimension:,} parameters ({percent})"


def _comparison(measured: Measurement) -> str:
    llc, half = measured.llc.of_basin, measured.quadratic
    if not (math.isfinite(llc.value) and math.isfinite(half.value)):
        return "One of the two is missing, so they cannot be compared."
    error = math.hypot(*(estimate.stderr for estimate in (llc, half) if math.isfinite(estimate.stderr)))
    off = llc.value - half.value
    if half.value <= 0:
        return "The soft rank is zero: no direction of the basin is curved at this resolution."
    if abs(off) <= max(2 * error, 0.02 * half.value):
        return "They agree: at this resolution the basin is as good as quadratic."
    percent = f"{abs(off) / half.value:.0%}"
    if off < 0:
        return (
            f"Sampling finds {percent} less than curvature at w*: away from w* the basin is flatter. No Hessian at w* "
            f"sees this part."
        )
    return (
        f"Sampling finds {percent} more than curvature at w*: directions that are flat at w* rise further out. No "
        f"Hessian sees this part."
    )


def _warnings(report: Report, measured: Measurement) -> Iterator[tuple[str, str]]:
    yield from ((check.trouble, check.remedy) for check in unmet(measured.llc.checks))
    failed = [point for point in report.points if point.measured is None]
    if failed:
        yield (
            f"{len(failed)} of {len(report.points)} checkpoints could not be measured",
            "see the table of checkpoints",
        )
    shaky = [p for p in report.points[:-1] if p.measured is not None and p.measured.llc.verdict != "ok"]
    if shaky:
        yield (
            f"λ̂ is doubtful or failed at {len(shaky)} of {len(report.points) - 1} earlier checkpoints",
            "see the table of checkpoints",
        )


def _asides(measured: Measurement) -> Iterator[tuple[str, str]]:
    reported = {check.warning for check in measured.llc.checks}  # WBIC comes from the same chains
    for name, estimate in measured.by_name.items():
        for check in unmet(estimate.checks):
            if check.warning not in reported:
                reported.add(check.warning)
                yield f"{title_of(name)}: {check.trouble}", check.remedy


def _subject(report: Report, measured: Measurement) -> Iterator[tuple[str, str]]:
    subject = measured.subject
    yield "network", f"{subject.network}, {subject.parameters:,} free parameters"
    yield "data", f"{subject.samples:,} samples"
    yield "loss", f"{subject.loss}, {number(subject.loss_value)} at w*"
    yield "precision", f"{subject.dtype} on {subject.device}"
    if len(report.points) > 1:
        yield "checkpoints", f"{len(report.points)}, from {report.points[0].name} to {report.points[-1].name}"


def _choices(measured: Measurement) -> Iterator[tuple[str, str]]:
    diagnostics = measured.llc.diagnostics
    yield "resolution", f"nβ = {number(diagnostics.get('nbeta'))}, γ = {number(diagnostics.get('gamma'))}"
    batch = diagnostics.get("batch_size")
    kind = "on all data" if batch is None else f"on batches of {batch}"
    yield "sampler", f"{diagnostics.get('sampler')} {kind}"
    yield (
        "chains",
        f"{diagnostics.get('chains')} chains of {diagnostics.get('draws')} draws, "
        f"the first {diagnostics.get('burn_in')} burn-in",
    )
    if diagnostics.get("ess") is not None:
        stopped = ", budget used up" if diagnostics.get("exhausted") else ""
        yield "effective draws", number(diagnostics["ess"], 3) + stopped
    steps = [step for step in diagnostics.get("step_sizes") or [] if step is not None]
    if steps:
        persistence = diagnostics.get("persistence")
        momentum = f"; a step keeps {persistence:.0%} of the momentum" if persistence else ""
        yield "step sizes", ", ".join(number(step, 3) for step in steps) + momentum
    yield "control variates", _corrections(diagnostics)
    half = measured.quadratic.diagnostics
    if half.get("method"):
        yield "soft rank", f"of the {half.get('matrix')}, {half.get('method')}"
    for place, note in enumerate(measured.notes):
        yield ("by default" if place == 0 else ""), note


def _corrections(diagnostics: Mapping[str, Any]) -> str:
    """What was taken out of the mean, as it is."""
    used = [
        words
        for name, words in (
            ("virial_correction", "the virial identities"),
            ("control_variates", "the gradients of batches at w*"),
        )
        if diagnostics.get(name)
    ]
    return " and ".join(used) or "not used"


def _origin(report: Report, measured: Measurement) -> Iterator[tuple[str, str]]:
    provenance, subject = report.provenance, measured.subject
    yield "made", moment(report.made)
    yield "basinscope", " ".join(filter(None, (provenance.get("basinscope"), _commit(provenance.get("commit")))))
    yield "python", f"{provenance.get('python')} on {provenance.get('platform')}, {provenance.get('device')}"
    yield "libraries", ", ".join(f"{name} {version}" for name, version in (provenance.get("libraries") or {}).items())
    yield "weights", f"sha256 {subject.weights_sha256[:16]}…"
    yield "samples", f"sha256 {subject.data_sha256[:16]}…"
    total = sum(sum(p.measured.seconds.values()) for p in report.points if p.measured is not None)
    yield "time taken", duration(total)


def _commit(commit: str | None) -> str:
    return "" if not commit else f"({commit[:10]}{'+' if commit.endswith('+') else ''})"
