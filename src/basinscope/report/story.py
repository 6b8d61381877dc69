"""What a report says, in the order a reader asks for it: the same words on every page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..estimates import Check, unmet
from ..measures.measured import Measurement
from ..progress import duration
from .report import Report
from .words import moment, number, sentence, title_of


@dataclass(frozen=True)
class Story:
    """The words of a report.

    Attributes:
        verdict: of λ̂.
        sentence: what was found, in one sentence.
        comparison: what the quadratic part says beside the sampled one.
        warnings: reasons and remedies, of λ̂ and of the run as a whole.
        asides: those of the other estimates.
        checks: of the chains.
        subject, choices, origin: names and values.
        command: how to make it again.
    """

    verdict: str
    sentence: str
    comparison: str
    warnings: list[tuple[str, str]]
    asides: list[tuple[str, str]]
    checks: tuple[Check, ...]
    subject: list[tuple[str, str]]
    choices: list[tuple[str, str]]
    origin: list[tuple[str, str]]
    command: str


def story(report: Report) -> Story:
    """The words of a report, about its last checkpoint unless they say otherwise."""
    measured = report.final
    return Story(
        verdict=measured.llc.verdict,
        sentence=_sentence(measured),
        comparison=_comparison(measured),
        warnings=list(_warnings(report, measured)),
        asides=list(_asides(measured)),
        checks=measured.llc.checks,
        subject=list(_subject(report, measured)),
        choices=list(_choices(measured)),
        origin=list(_origin(report, measured)),
        command=report.command,
    )


def _sentence(measured: Measurement) -> str:
    value, dimension = measured.llc.value, measured.subject.parameters
    if not math.isfinite(value):
        return f"No learning coefficient could be had for this network of {dimension:,} parameters."
    if measured.llc.of_basin is not measured.llc:
        basin, drop = measured.llc.basin.value, measured.llc.drop.value
        coarser = measured.llc.note.partition("; ")[2]
        return (
            f"At this resolution the weights are no minimum: they lie {number(drop, 3)} nats above the bottom of a "
            f"basin that counts as {_counted(basin, dimension)}." + (f" {sentence(coarser)}." if coarser else "")
        )
    if value <= 0:
        return "The chains found lower loss than the network has, and no basin: λ̂ means nothing here."
    return f"At this resolution the network counts as {_counted(value, dimension)}."


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
    yield "control variates", "used" if diagnostics.get("control_variates") else "not used"
    half = measured.quadratic.diagnostics
    if half.get("method"):
        yield "soft rank", f"of the {half.get('matrix')}, {half.get('method')}"
    for place, note in enumerate(measured.notes):
        yield ("by default" if place == 0 else ""), note


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
