"""The checkpoints of one training as landscapes, loaded one at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import nn

from ..adapters.checkpoints import SAFE, checkpoints_in, fitting, numbers_in, read_weights
from ..adapters.hugging_face import model_data, plain_forward, pretrained, saved_models, task
from ..adapters.training_header import training_header
from ..errors import InputError
from ..landscape import Landscape, check_landscape
from ..losses import PerSample
from ..samples import Samples, read

Points = Mapping[str, Landscape] | Sequence[Landscape] | str | Path


@dataclass(frozen=True)
class Series:
    """Checkpoints in order.

    Attributes:
        names: of the checkpoints.
        steps: of the training at which each was written; 1, 2, … where files do not tell.
        load: the landscape of the checkpoint at a place. All have the same data.
    """

    names: tuple[str, ...]
    steps: tuple[int, ...]
    load: Callable[[int], Landscape]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Landscape]:
        return (self.load(place) for place in range(len(self)))


def series_of(
    checkpoints: Points,
    *,
    model: nn.Module | None = None,
    loss: str | PerSample = "cross_entropy",
    data: Any = None,
    revisions: Sequence[str] = (),
) -> Series:
    """Checkpoints from wherever they are.

    Args:
        checkpoints: landscapes on the same data, in order, or a mapping of names to these; or a folder of weights,
            which needs the network, its loss and data; or a folder of saved Hugging Face models, or with `revisions`
            the name of one on the Hub, which need data alone.
        model: the network that the weights of a folder are for.
        loss, data: as for `Landscape`.
        revisions: of a model on the Hub, in order, such as `step1`, `step2`, `step4`.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(1, 1), "mse", (torch.ones(2, 1), torch.ones(2, 1)))
        >>> found = series_of({"step-10": land, "step-20": land})
        >>> found.names, found.steps, series_of({10: land, 20: land}).names
        (('step-10', 'step-20'), (10, 20), ('10', '20'))
    """
    if isinstance(checkpoints, Mapping):
        return _of_landscapes(tuple(map(str, checkpoints)), tuple(checkpoints.values()))
    if not isinstance(checkpoints, (str, Path)):
        return _of_landscapes(tuple(map(str, range(len(checkpoints)))), tuple(checkpoints))
    if revisions:
        return _of_pretrained(checkpoints, tuple(revisions), tuple(revisions), data)
    saved = saved_models(Path(checkpoints)) if model is None else []
    if saved:
        return _of_pretrained("", tuple(map(str, saved)), tuple(path.name for path in saved), data)
    if model is None or data is None:
        raise InputError(
            "a folder of checkpoints needs the network and its data: pass model, loss and data; the name of a model "
            "on the Hub needs revisions"
        )
    return _of_files(checkpoints_in(Path(checkpoints)), model, loss, data)


def _of_landscapes(names: tuple[str, ...], lands: tuple[Landscape, ...]) -> Series:
    if not lands:
        raise InputError("checkpoints must be at least one, got none")
    for land in lands:
        check_landscape(land)
    shapes = {(land.n, land.dimension) for land in lands}
    if len(shapes) != 1:
        raise InputError(
            f"checkpoints must be of one network on the same data: got {len(lands)}, with (samples, parameters) "
            f"{sorted(shapes)}"
        )
    return Series(names, steps_of([_number(name) for name in names]), lands.__getitem__)


def _of_files(files: Sequence[Path], model: nn.Module, loss: str | PerSample, data: Any) -> Series:
    causal = hasattr(model, "config") and hasattr(model, "can_generate")
    samples = model_data(data, task(model)[1]) if causal else read(data)

    def load(place: int) -> Landscape:
        network = copy.deepcopy(model)
        network.load_state_dict(fitting(network, read_weights(files[place]), files[place]))
        if not causal:
            return Landscape(network, loss, samples)
        with plain_forward(network):
            return Landscape(network, task(network)[0] if loss == "cross_entropy" else loss, samples)

    return Series(tuple(file.stem for file in files), steps_of([_step(file) for file in files]), load)


def _of_pretrained(source: str | Path, places: tuple[str, ...], names: tuple[str, ...], data: Any) -> Series:
    """Saved models by their folders, or revisions of one model."""
    if data is None:
        raise InputError("models need data to be measured on: pass data")
    if isinstance(data, Iterator):
        data = list(data)  # every checkpoint reads it anew

    def load(place: int) -> Landscape:
        if source:
            return Landscape.from_pretrained(pretrained(source, places[place]), data)
        return Landscape.from_pretrained(places[place], data)

    return Series(names, steps_of([_number(name) for name in names]), load)


def _step(file: Path) -> int | None:
    """The step at which a file was written, as far as it or its name tells."""
    try:
        header = training_header(file) if file.suffix.lower() in SAFE else None
    except InputError:
        header = None  # reading its weights says what is wrong
    return _number(file.stem) if header is None else int(header["clock"][0])


def _number(name: str) -> int | None:
    numbers = numbers_in(name)
    return numbers[-1] if numbers else None


def steps_of(known: Sequence[int | None]) -> tuple[int, ...]:
    """Steps where all are known and rise, else places in the order.

    Examples:
        >>> steps_of([0, 10, 100]), steps_of([None, 10]), steps_of([3, 3])
        ((0, 10, 100), (1, 2), (1, 2))
    """
    steps = [step for step in known if step is not None]
    if len(steps) == len(known) and all(first < second for first, second in pairwise(steps)):
        return tuple(steps)
    return tuple(range(1, len(known) + 1))


def samples_of(land: Landscape, count: int) -> Samples:
    """The first samples, on the landscape's device."""
    return land.samples.take(slice(0, min(count, land.n))).to(land.device)
