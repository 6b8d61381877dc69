"""What was measured of one landscape, as typed values that go to JSON and come back without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..estimates import Check, Estimate, as_float, checks_from_dict, plain
from .coefficient import LearningCoefficient

if TYPE_CHECKING:
    from .spectrum import Spectrum

_CHAINS = 12  # drawn one by one; their mean is over all
_BLOCKS = 128
_DENSITY = 160
_DIGITS = 5
_LONGEST = 64  # entries of a diagnostic that a page has room for


@dataclass(frozen=True)
class LandscapeFacts:
    """What a landscape is: its network, data and loss, with digests of weights and samples.

    Attributes:
        network: class of the model.
        parameters: number of free ones.
        layers: name and shape of each.
        samples: their number.
        loss, loss_value: its name, and its mean at w*.
        dtype, device: of the parameters.
        weights_sha256, data_sha256: digests.
        accuracy: the share of samples whose class the network names; None where outputs are no scores of classes.
    """

    network: str
    parameters: int
    layers: Sequence[Any]
    samples: int
    loss: str
    loss_value: float
    dtype: str
    device: str
    weights_sha256: str
    data_sha256: str
    accuracy: float | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LandscapeFacts:
        """The facts that a file holds; one of an earlier version knows no accuracy."""
        accuracy = data.get("accuracy")
        values = {entry.name: data[entry.name] for entry in fields(cls) if entry.name != "accuracy"}
        for name, kind in (("parameters", int), ("samples", int), ("weights_sha256", str), ("data_sha256", str)):
            if not isinstance(values[name], kind) or isinstance(values[name], bool):
                raise InputError(f"{name} must be of type {kind.__name__}, got {values[name]!r}")
        values["loss_value"] = as_float(values["loss_value"])
        return cls(**values, accuracy=None if accuracy is None else as_float(accuracy))


@dataclass(frozen=True)
class ChainTraces:
    """The chains' excess loss nβ(L − L*) in few enough points to be drawn.

    Attributes:
        draws, burn_in: of each chain.
        count: number of chains.
        chains: some of them, in blocks.
        mean: of all of them, in blocks.
    """

    draws: int
    burn_in: int
    count: int
    chains: Sequence[Sequence[float]]
    mean: Sequence[float]

    @classmethod
    def of(cls, llc: Estimate) -> ChainTraces | None:
        """The traces of an estimate; None where it kept none."""
        diagnostics = llc.diagnostics
        if diagnostics.get("trace") is None:
            return None
        rows = np.asarray(diagnostics["trace"])
        if not rows.size:
            return None
        stride = max(1, math.ceil(rows.shape[1] / _BLOCKS))
        whole = rows.shape[1] // stride * stride
        rows = rows[:, :whole].reshape(len(rows), -1, stride).mean(2)
        return cls(
            diagnostics["draws"],
            diagnostics["burn_in"],
            len(rows),
            [_rounded(row) for row in rows[:_CHAINS]],
            _rounded(rows.mean(0)),
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ChainTraces:
        """The traces that a file holds."""
        return cls(
            int(data["draws"]), int(data["burn_in"]), int(data["count"]), [_floats(row) for row in data["chains"]],
            _floats(data["mean"]),
        )  # fmt: skip


@dataclass(frozen=True)
class SpectrumCurve:
    """A spectrum in few enough points to be drawn.

    Attributes:
        matrix: whose.
        largest, smallest: the outermost eigenvalues.
        sizes, density, stderr: eigenvalues per e-fold of all others, at these sizes.
        resolution: the size around zero below which sizes cannot be told apart.
        checks: whether the outermost eigenvalues converged.
    """

    matrix: str
    largest: Sequence[float]
    smallest: Sequence[float]
    sizes: Sequence[float]
    density: Sequence[float]
    stderr: Sequence[float]
    resolution: float
    checks: tuple[Check, ...] = ()

    @classmethod
    def of(cls, spectrum: Spectrum) -> SpectrumCurve:
        """The curve of a spectrum."""
        from .spectrum_figure import density

        sizes, mean, stderr, resolution = density(spectrum, _DENSITY)
        parts = (spectrum.largest, spectrum.smallest, sizes, mean, stderr)
        largest, smallest, *bulk = (_rounded(part.tolist()) for part in parts)
        return cls(spectrum.matrix, largest, smallest, bulk[0], bulk[1], bulk[2], resolution, spectrum.checks)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SpectrumCurve:
        """The curve that a file holds."""
        return cls(
            str(data["matrix"]), _floats(data["largest"]), _floats(data["smallest"]), _floats(data["sizes"]),
            _floats(data["density"]), _floats(data["stderr"]), as_float(data["resolution"]), checks_from_dict(data),
        )  # fmt: skip


@dataclass(frozen=True)
class Measurement:
    """What was measured of one landscape.

    Attributes:
        subject: what was measured.
        llc: the learning coefficient λ̂, from sampling.
        quadratic: ½ soft rank at γ/(nβ), what λ̂ is on a quadratic basin.
        curve: pairs of γ and ½ soft rank.
        estimates: everything else by name.
        trace: of the chains behind λ̂; None where none were kept.
        spectrum: of the Hessian; None where it was left out or refused.
        notes: choices made on the way, in words.
        seconds: it took, by part.
    """

    subject: LandscapeFacts
    llc: LearningCoefficient
    quadratic: Estimate
    curve: Sequence[tuple[float, float]]
    estimates: Mapping[str, Estimate]
    trace: ChainTraces | None = None
    spectrum: SpectrumCurve | None = None
    notes: Sequence[str] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, Estimate]:
        """All estimates, λ̂ and its quadratic part first."""
        return {"llc": self.llc, "half_soft_rank": self.quadratic, **self.estimates}

    def __repr__(self) -> str:
        return f"Measurement({self.llc!r} and {len(self.by_name) - 1} more)"

    @property
    def interrupted(self) -> bool:
        """Whether sampling was stopped before its end."""
        return bool(self.llc.diagnostics.get("interrupted"))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON, but for diagnostics as long as the chains or the data."""
        return {
            "subject": plain(asdict(self.subject)),
            "llc": self.llc.to_dict(_LONGEST),
            "trace": None if self.trace is None else plain(asdict(self.trace)),
            "quadratic": self.quadratic.to_dict(_LONGEST),
            "curve": plain([_rounded(point) for point in self.curve]),
            "estimates": {name: estimate.to_dict(_LONGEST) for name, estimate in self.estimates.items()},
            "spectrum": None if self.spectrum is None else plain(asdict(self.spectrum)),
            "notes": list(self.notes),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        """The measurement that `to_dict` wrote, of this version or of an earlier one."""
        return cls(
            LandscapeFacts.from_dict(data["subject"]),
            LearningCoefficient.from_dict(data["llc"]),
            Estimate.from_dict(data["quadratic"]),
            [(as_float(gamma), as_float(half)) for gamma, half in data["curve"]],
            {str(name): Estimate.from_dict(estimate) for name, estimate in data["estimates"].items()},
            None if data["trace"] is None else ChainTraces.from_dict(data["trace"]),
            None if data["spectrum"] is None else SpectrumCurve.from_dict(data["spectrum"]),
            [str(note) for note in data["notes"]],
            {str(name): as_float(value) for name, value in data["seconds"].items()},
        )


def _floats(values: Any) -> list[float]:
    return [as_float(value) for value in values]


def _rounded(values: Any) -> list[float]:
    """Numbers in the digits that a figure shows, so that files stay small."""
    return [float(f"{value:.{_DIGITS}g}") for value in values]
