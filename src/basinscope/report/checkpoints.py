"""From files to a report: a user's network, its data, and one checkpoint or a folder of them."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..adapters.checkpoints import SAFE, checkpoints_in, fitting, numbers_in, read_weights
from ..adapters.hugging_face import model_data, plain_forward, task
from ..adapters.training_header import training_header
from ..errors import BasinscopeError, InputError
from ..files import write_whole
from ..foreign import contents, parsed
from ..landscape import Landscape
from ..measures.measured import Measurement
from ..measures.measurement import measurement, subject_of
from ..measures.quick import quick_measurement
from ..objects import named_object
from ..progress import part, tracked
from ..samples import read
from ..sampling.calibration import resolution
from .measure import assembled
from .report import Point, Report

_MANY, _ONE = 10.0, 60.0  # seconds of sampling a checkpoint
_PERSIST = "points"
_SAVED_PRETRAINED = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Subject:
    """A network without its weights, and the data and loss to measure it on. Data are read once, whatever they are.

    A model of Hugging Face transformers takes data as `Landscape.from_pretrained` does, and its own loss if `loss` is
    `cross_entropy`: the next tokens of a language model are the targets.
    """

    network: nn.Module
    data: Any
    loss: Any
    held_out: Any = None

    def __post_init__(self) -> None:
        for name in ("data", "held_out"):
            given = getattr(self, name)
            if given is not None:
                samples = model_data(given, task(self.network)[1]) if self._pretrained else read(given)
                object.__setattr__(self, name, samples)

    @property
    def _pretrained(self) -> bool:
        return hasattr(self.network, "config") and hasattr(self.network, "can_generate")

    @classmethod
    def load(
        cls, model: str, data: str, loss: str = "cross_entropy", device: str = "cpu", held_out: str = ""
    ) -> Subject:
        """From references to a function that builds the network and one that loads the data.

        Examples:
            >>> Subject.load("torch.nn:Identity", "math:pi")
            Traceback (most recent call last):
            ...
            basinscope.errors.InputError: --data math:pi must be a function that returns the data, got float
        """
        network = _made("--model", model, "builds the network")
        if not isinstance(network, nn.Module):
            raise InputError(f"--model {model} must return a torch.nn.Module, got {type(network).__name__}")
        content = loaded("--data", data)
        try:
            network = network.to(device).eval()
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"--device {device!r} cannot be used: {str(error).splitlines()[0]} — try cpu") from error
        others = loaded("--held-out", held_out) if held_out else None
        return cls(network, content, named_object(loss) if ":" in loss else loss, others)

    def at(self, weights: Mapping[str, Tensor], source: Path) -> Landscape:
        """The landscape at the weights of a checkpoint, which must fit the network name by name."""
        network = copy.deepcopy(self.network)
        if self._pretrained and source.name in _SAVED_PRETRAINED and (source.parent / "config.json").is_file():
            # what `save_pretrained` wrote may have other names in the file than in the model
            weights = type(network).from_pretrained(source.parent).state_dict()  # type: ignore[attr-defined]
        network.load_state_dict(fitting(network, weights, source))
        if not self._pretrained:
            return Landscape(network, self.loss, self.data)
        loss = task(network)[0] if self.loss == "cross_entropy" else self.loss
        with plain_forward(network):
            return Landscape(network, loss, self.data)


def loaded(option: str, reference: str) -> Any:
    """The data that a function returns."""
    content = _made(option, reference, "returns the data")
    if content is None:
        raise InputError(f"{option} {reference} returned None — return (x, y), a Dataset or an iterable of batches")
    return content


def _made(option: str, reference: str, does: str) -> Any:
    """What a factory returns."""
    factory = named_object(reference)
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise InputError(f"{option} {reference} must be a function that {does}, got {type(factory).__name__}")
    try:
        return factory()
    except BasinscopeError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{option} {reference}() failed with {type(error).__name__}: {error} — it is called without arguments; "
            f"try it in Python first"
        ) from error


def measure_checkpoints(
    subject: Subject,
    path: Path,
    settings: Mapping[str, Any],
    *,
    command: str,
    title: str = "",
    keep: Path | None = None,
    progress: bool = True,
    quick: bool = False,
) -> Report:
    """Measure one checkpoint in full, or every one of a folder in brief and the last in full; with `quick`, take no
    more than a quick look at any.

    Several are measured at one γ, that of the last one unless given. One of them that cannot be read or measured
    becomes a row that says why; a single one raises its error. With `keep`, every result is written to that folder as
    it exists, and what is there already is not measured again. Ctrl-C ends it with a report of what there
    is by then.
    """
    files = checkpoints_in(path)
    many = len(files) > 1
    options = given(settings) if quick else with_budget(settings, many)
    if many and options.get("gamma") is None:
        options |= _gamma_of_last(subject, files)
    name = title or path.resolve().name
    points: list[Point] = []
    history: list[dict[str, Any]] = []
    with tracked(f"{len(files)} checkpoints" if many else files[0].name, progress) as report:
        for place, file in enumerate(files):
            report(place / len(files), file.name)
            moment, rows = _moment(file)
            history = rows or history
            if points and moment.get("step") is not None and moment["step"] == points[-1].step:
                points.pop()  # the run's last state was kept as a step too
            how = {"quick": True} if quick else {"brief": many and place < len(files) - 1}
            with part(report, place / len(files), (place + 1) / len(files)):
                measured, error = _measurement_or_error(subject, file, {**options, **how}, keep, many, progress)
            points.append(Point(file.stem, measured, error, **moment))
            if keep is not None:
                assembled(points, settings, command, name, history).to_json(keep / "report.json")
            if measured is not None and measured.interrupted:
                break  # Ctrl-C ends the run with what there is by then
    full_report = assembled(points, settings, command, name, history)
    if not any(point.measured for point in points):
        raise InputError(f"none of {len(points)} checkpoints in {path} could be measured: {points[-1].error}")
    if keep is not None:
        full_report.save(keep)
    return full_report


def _gamma_of_last(subject: Subject, files: list[Path]) -> dict[str, float]:
    """γ = d/‖w*‖² of the last checkpoint that can be read; nothing where none can."""
    for file in reversed(files):
        try:
            return {"gamma": resolution(subject.at(read_weights(file), file)).gamma}
        except BasinscopeError:
            continue
    return {}


def given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that are left at their defaults."""
    return {name: value for name, value in settings.items() if value is not None}


def with_budget(settings: Mapping[str, Any], many: bool) -> dict[str, Any]:
    """Settings with the budget of one checkpoint, or of each of many."""
    return {"budget": _MANY if many else _ONE, **given(settings)}


def _measurement_or_error(
    subject: Subject, file: Path, options: Mapping[str, Any], keep: Path | None, forgive: bool, progress: bool
) -> tuple[Measurement | None, str | None]:
    """The measurement, or why it was refused."""
    try:
        land = subject.at(read_weights(file), file)
        held_out = None if subject.held_out is None else land.on(subject.held_out)
        request = options if held_out is None else {**options, "held_out": held_out.samples.digest()}

        def compute() -> Measurement:
            if "quick" in options:
                look = {name: value for name, value in options.items() if name != "quick"}
                return quick_measurement(land, **look, progress=progress)
            return measurement(land, **options, held_out=held_out, progress=progress)

        return _stored_or_computed(land, request, keep, compute), None
    except BasinscopeError as error:
        if not forgive:
            raise
        return None, str(error)


def _stored_or_computed(
    land: Landscape, options: Mapping[str, Any], keep: Path | None, compute: Callable[[], Measurement]
) -> Measurement:
    """A measurement of this very landscape with these very settings, from the folder or computed and put there."""
    if keep is None:
        return compute()
    request = json.dumps([asdict(subject_of(land)), dict(sorted(options.items()))], default=str)
    file = keep / _PERSIST / f"{hashlib.sha256(request.encode()).hexdigest()[:32]}.json"
    try:
        return Measurement.from_dict(parsed(contents(file)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not there, or of another version: it is measured again
    result = compute()
    if not result.interrupted:
        write_whole(file, json.dumps(result.to_dict(), allow_nan=False).encode())
    return result


def _moment(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """When in training a checkpoint was written, as far as it or its name tells, and the rows it holds."""
    try:
        header = training_header(file) if file.suffix.lower() in SAFE else None
    except InputError:
        header = None  # reading its weights says what is wrong
    if header is None:
        numbers = numbers_in(file.stem)
        return {"step": numbers[0]} if len(numbers) == 1 else {}, []
    rows, moment = list(header["rows"]), {"step": header["clock"][0]}
    last = rows[-1] if rows else {}
    if last.get("step") == moment["step"]:
        names = ("epoch", "train_loss", "validation_loss")
        moment |= {name: last[name] for name in names if last.get(name) is not None}
    return moment, rows
