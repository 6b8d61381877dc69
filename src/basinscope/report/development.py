"""develop: a network growing up, checkpoint by checkpoint, on one axis of time."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..errors import InputError
from ..estimates import Estimate, plain
from ..files import write_whole
from ..foreign import contents, parsed
from ..landscape import Landscape
from ..losses import PerSample
from ..measures.checkpoint_series import Points, Series, series_of
from ..measures.induction import in_context_score, prefix_matching
from ..measures.llc import llc
from ..measures.llc_by_part import llc_by_part
from ..measures.settings import Sampling, refuse_unknown
from ..measures.stages import Boundary, stages
from ..measures.trajectory import outputs_on_fixed_inputs, principal_components
from ..progress import tracked
from ..sampling.calibration import resolution

FORMATS = ("html", "json", "csv")
KINDS = ("layer", "head", "attention", "mlp", "embedding", "unembedding")
CURVES = ("loss", "llc_basin", "in_context_score")  # whose stages are looked for
_AXES = 3
_NAMED = ("kind", "layer", "number")  # what the name of a part says already


@dataclass(frozen=True)
class Development:
    """A training seen from several sides, at one resolution and with one seed.

    Attributes:
        steps: of the training, one for each checkpoint.
        rows: of each checkpoint: its name and step, loss, λ̂ with basin and drop, in-context score; under `parts` the
            same λ̂ of each part, under `heads` the prefix-matching score of each head with its standard error.
        components: coordinates of each checkpoint along the principal axes of the path through function space.
        shares: of the path's variance, along each of these axes.
        boundaries: where stages end, by the curve that says so.
        settings: nβ, γ and all others that the checkpoints share.
        missing: what could not be measured of this network, each with the reason.
    """

    steps: tuple[int, ...]
    rows: tuple[Mapping[str, Any], ...]
    components: tuple[tuple[float, ...], ...]
    shares: tuple[float, ...]
    boundaries: Mapping[str, tuple[Boundary, ...]]
    settings: Mapping[str, Any]
    missing: Mapping[str, str]

    @property
    def times(self) -> list[float]:
        """The steps as a logarithmic axis has them: step 0, if it is there, stands at half of the next."""
        return times_of(self.steps)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that were measured."""
        return tuple(self.rows[-1].get("parts", {}))

    def curve(self, name: str, part_of: str = "") -> list[tuple[float, float, float]]:
        """(time, value, standard error) of a column, of the whole network or of a part."""
        rows = [row["parts"].get(part_of, {}) if part_of else row for row in self.rows]
        return [
            (time, _real(row.get(name)), _real(row.get(f"{name}_stderr")))
            for time, row in zip(self.times, rows, strict=True)
        ]

    def to_dataframe(self) -> Any:
        """A row for each checkpoint, and one for each of its parts, which `part` names; heads have their
        prefix-matching scores there."""
        import pandas as pd

        return pd.DataFrame(self._flat())

    def _flat(self) -> list[dict[str, Any]]:
        table = []
        for place, row in enumerate(self.rows):
            axes = {f"pc{axis + 1}": value for axis, value in enumerate(self.components[place])}
            at = {"checkpoint": row["checkpoint"], "step": row["step"]}
            nested = ("parts", "heads")
            table.append({**at, "part": "", **{k: v for k, v in row.items() if k not in nested}, **axes})
            for name in dict.fromkeys([*row["parts"], *row["heads"]]):
                heads = dict(
                    zip(("prefix_matching", "prefix_matching_stderr"), row["heads"].get(name, ()), strict=False)
                )
                table.append({**at, "part": name, **row["parts"].get(name, {}), **heads})
        return table

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        return {
            "settings": plain(dict(self.settings)), "missing": dict(self.missing),
            "stages": {name: [vars(found) for found in own] for name, own in self.boundaries.items()},
            "shares": list(self.shares),
            "checkpoints": [
                {**plain(dict(row)), "components": list(where)}
                for row, where in zip(self.rows, self.components, strict=True)
            ],
        }  # fmt: skip

    def write(self, path: str | Path, kind: str = "") -> Path:
        """Write the page, or the numbers as JSON or CSV, by the end of the file's name unless `kind` says which."""
        path = Path(path)
        kind = kind or path.suffix.removeprefix(".").lower()
        if kind == "html":
            from .development_page import page

            text = page(self)
        elif kind == "json":
            text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        elif kind == "csv":
            text = self.to_dataframe().to_csv(index=False)
        else:
            raise InputError(
                f"a development is written as one of {', '.join(FORMATS)}, got {kind!r} — name the file so"
            )
        write_whole(path, text.encode())
        return path

    def __str__(self) -> str:
        first, last = self.rows[0], self.rows[-1]
        lines = [
            f"{len(self.rows)} checkpoints, step {self.steps[0]:,} to {self.steps[-1]:,}, at nβ = "
            f"{self.settings['nbeta']:.4g} and γ = {self.settings['gamma']:.4g}",
            f"loss {first['loss']:.4g} → {last['loss']:.4g}; basin {_real(first.get('llc_basin')):.4g} → "
            f"{_real(last.get('llc_basin')):.4g}; λ̂ at the end {last['llc']:.4g} ± {last['llc_stderr']:.2g} "
            f"({last['llc_verdict']})",
        ]
        for name, boundaries in self.boundaries.items():
            listed = ", ".join(f"{each.at:.3g} ({each.low:.3g} to {each.high:.3g})" for each in boundaries)
            lines.append(f"stages of {name} end at {listed}" if boundaries else f"stages of {name}: one")
        return "\n".join(lines)


def develop(
    checkpoints: Points,
    *,
    model: nn.Module | None = None,
    loss: str | PerSample = "cross_entropy",
    data: Any = None,
    revisions: Sequence[str] = (),
    parts: Sequence[str] = ("layer", "head"),
    keep: str | Path | None = None,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> Development:
    """A training from its checkpoints: λ̂, basin and drop of the network and of its parts, loss, in-context score,
    prefix matching of heads, the path through function space, and the stages of all that.

    All checkpoints share nβ, γ, the seed and therefore the noise. They are loaded one at a time, so that the memory is
    that of one. What a network does not have is left out, and `missing` says why.

    Args:
        checkpoints: a folder of weights, which needs `model`, `loss` and `data`; a folder of saved Hugging Face
            models, or with `revisions` the name of one on the Hub, which need `data`; or landscapes in order.
        model: the network that the weights of a folder are for.
        loss, data: as for `Landscape`.
        revisions: of a model on the Hub, in order.
        parts: kinds of parts of a transformer of which λ̂ is wanted as well; empty for none.
        keep: folder that keeps what was measured of each checkpoint, to go on after a stop.
        progress: show a bar.
        settings: those of `posterior`, for every λ̂; γ is d/‖w*‖² of the last checkpoint unless given, `rtol` is 0.05
            and `budget` 10 seconds, which the network has at every checkpoint, and each kind of part.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> y, lands = x.sum(1, keepdim=True), {}
        >>> for step, weight in ((1, 0.8), (10, 0.9), (100, 1.0)):
        ...     net = torch.nn.Linear(3, 1, bias=False)
        ...     _ = torch.nn.init.constant_(net.weight, weight)
        ...     lands[f"step-{step}"] = bs.Landscape(net, "mse", (x, y))
        >>> found = bs.develop(lands, gamma=1.0, budget=bs.Nominal(1.0), progress=False)
        >>> found.steps, [row["llc_at_minimum"] for row in found.rows]
        ((1, 10, 100), ['no', 'no', 'yes'])
        >>> found.missing["in-context score"][:38]
        'an in-context score needs sequences of'
    """
    for kind in parts:
        if kind not in KINDS:
            raise InputError(f"parts must be kinds of parts, of {', '.join(KINDS)}, got {kind!r}")
    refuse_unknown(settings)
    series = series_of(checkpoints, model=model, loss=loss, data=data, revisions=revisions)
    last = series.load(len(series) - 1)
    at = resolution(last, settings.get("nbeta"), settings.get("gamma"))
    del last
    how: dict[str, Any] = {"rtol": 0.05, "budget": 10.0, "seed": 0, **settings, "nbeta": at.nbeta, "gamma": at.gamma}
    folder = None if keep is None else Path(keep)
    rows, outputs = [], []
    missing: dict[str, str] = {}
    with tracked(f"{len(series)} checkpoints", progress) as report:
        for place in range(len(series)):
            report(place / len(series), series.names[place])
            row, result, absent = _measured(series, place, how, tuple(parts), folder)
            rows.append(row)
            outputs.append(result)
            missing |= absent
    return assembled(series.steps, rows, outputs, how, missing)


def assembled(
    steps: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
    outputs: Sequence[NDArray[np.float32]],
    settings: Mapping[str, Any],
    missing: Mapping[str, str],
) -> Development:
    """A development of what was measured of each checkpoint: the path through function space and the stages."""
    where, shares = principal_components(outputs, min(_AXES, len(outputs)))
    times = times_of(steps)
    boundaries = {
        name: tuple(stages(times, [_real(row.get(name)) for row in rows], seed=int(settings["seed"])))
        for name in CURVES
        if sum(math.isfinite(_real(row.get(name))) for row in rows) > 1
    }
    return Development(
        tuple(steps), tuple(rows), tuple(map(tuple, where.tolist())), tuple(shares.tolist()), boundaries,
        dict(settings), dict(missing),
    )  # fmt: skip


def times_of(steps: Sequence[int]) -> list[float]:
    """Steps as a logarithmic axis has them.

    Examples:
        >>> times_of([0, 10, 100])
        [5.0, 10.0, 100.0]
    """
    first = next((step for step in steps if step > 0), 2)
    return [float(step) if step > 0 else first / 2 for step in steps]


def measured_of(
    land: Landscape, name: str, step: int, how: Mapping[str, Any], kinds: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The row of one checkpoint, and what it could not have."""
    losses = land.per_sample()
    missing: dict[str, str] = {}
    row: dict[str, Any] = {
        "checkpoint": name, "step": step, "loss": float(losses.mean()),
        "loss_stderr": float(losses.std()) / math.sqrt(land.n) if land.n > 1 else math.nan,
    }  # fmt: skip
    row |= llc(land, progress=False, **how).columns("llc")
    row["parts"] = {}
    for kind in kinds:
        if land.parts(kind):
            for each in llc_by_part(land, kind, progress=False, **how).to_dataframe().to_dict("records"):
                row["parts"][each.pop("part")] = {key: value for key, value in each.items() if key not in _NAMED}
        else:
            missing[f"parts of kind {kind}"] = f"none is known of {type(land.module).__name__}"
    row["heads"] = {}
    try:
        row |= _columns(in_context_score(land))
    except InputError as error:
        missing["in-context score"] = str(error)
    try:
        row["heads"] = {head: [score.value, score.stderr] for head, score in prefix_matching(land).items()}
    except InputError as error:
        missing["prefix matching"] = str(error)
    return row, missing


def _columns(estimate: Estimate) -> dict[str, float]:
    return {estimate.name: estimate.value, f"{estimate.name}_stderr": estimate.stderr}


def _measured(
    series: Series, place: int, how: Mapping[str, Any], kinds: tuple[str, ...], folder: Path | None
) -> tuple[dict[str, Any], NDArray[np.float32], dict[str, str]]:
    """What is known of a checkpoint: from the folder, or measured and put there."""
    land = series.load(place)
    outputs = outputs_on_fixed_inputs(land, int(how["seed"]))
    name, step = series.names[place], series.steps[place]
    if folder is None:
        row, missing = measured_of(land, name, step, how, kinds)
        return row, outputs, missing
    request = [name, step, land.samples.digest(), {key: repr(value) for key, value in how.items()}, kinds]
    weights = land.flatten(land.parameters).cpu().numpy().tobytes()
    key = hashlib.sha256(weights + json.dumps(request).encode()).hexdigest()[:32]
    file = folder / f"{key}.json"
    try:
        stored = parsed(contents(file))
        return dict(stored["row"]), outputs, dict(stored["missing"])
    except (OSError, ValueError, KeyError, TypeError, InputError):
        pass  # not there: it is measured
    row, missing = measured_of(land, name, step, how, kinds)
    write_whole(file, json.dumps(plain({"row": row, "missing": missing}), allow_nan=False).encode())
    return row, outputs, missing


def _real(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
