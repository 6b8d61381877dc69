"""Train hundreds of networks of one architecture as one program."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...checks import positive, whole
from ...errors import InputError
from ...landscape import Landscape, Parameters
from ...losses import PerSample
from ...progress import tracked
from ...samples import map_tensors
from . import store
from .batches import groups_of, order_of
from .initial import stacked_weights
from .members import Member, Subset, Subsets, subsets_of
from .program import program_of
from .steps import BLOCK, State, Stepper
from .updates import Layout, Update, update_of

_MAX_INITIAL_SAMPLES = 512  # on which the loss at the start is measured
_MAX_ACTIVATION_BYTES = {"cpu": 64 * 2**20, "cuda": 4 * 2**30}  # of an evaluation


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and share of labels met per member, float64 on the CPU; NaN for members that diverged."""

    loss: Tensor
    accuracy: Tensor | None


class Population:
    """Hundreds of networks of one architecture, trained as one batched program.

    Member m minimizes L_n + (w_m/2)‖θ‖² on its own subset, with its own learning rate, weight decay, batch size and
    seed. It ends where the same network trained alone ends, up to rounding: its weights and its minibatches depend on
    its seed alone. Plain chains of linear and convolutional layers run as hand-written batched products, all else
    through vmap; on a GPU a block of steps is one CUDA graph, in the precision of `set_float32_matmul_precision`.

    A member whose weights or loss are no longer finite, or whose batch loss passes `ceiling`, is put back to where it
    was at the start of the block of 32 steps and frozen. Its number and the step are in `diverged`, and its losses are
    NaN.

    Args:
        models: a function that builds a network, called once per member with torch seeded by the member's seed; or the
            networks themselves, one per member.
        members: the settings of each member.
        data: as for `Landscape`; subsets are numbers of these samples.
        loss: as for `Landscape`; its mean over a batch is minimized.
        optimizer: `adam`, `sgd`, or an `Adam`, `SGD` or `OnlineNGD` of this package.
        sigma: as for `Landscape`.
        device: where to train; the networks' device if None.
        memory: bytes that the activations may take; members beyond that go in turns.
        ceiling: largest credible batch loss; by default 100 times a member's loss at the start, and at least 100.

    Examples:
        >>> from basinscope.zoo.models import ffnn
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> members = [Member(seed=s, lr=lr, batch_size=16) for s in range(2) for lr in (0.1, 0.01)]
        >>> population = Population(lambda: ffnn([4, 8, 2]), members, (x, (x[:, 0] > 0).long()))
        >>> population.train(200, progress=False)
        True
        >>> bool((population.evaluate().accuracy > 0.9).all())
        True
    """

    def __init__(
        self,
        models: Callable[[], nn.Module] | Sequence[nn.Module],
        members: Sequence[Member],
        data: Any,
        loss: str | PerSample = "cross_entropy",
        *,
        optimizer: str | Update = "adam",
        sigma: float | None = None,
        device: str | torch.device | None = None,
        memory: int | None = None,
        ceiling: float | None = None,
    ) -> None:
        self.members = list(members)
        if not self.members or not all(isinstance(member, Member) for member in self.members):
            raise InputError("members must be a non-empty list of Member(...)")
        memory = None if memory is None else whole("memory", memory, least=1)
        limit = None if ceiling is None else positive("ceiling", ceiling)
        # One network stands for all: its landscape holds the data and the loss, and the program is made from it.
        self._model, weights = stacked_weights(models, self.members, device)
        self._loss, self._sigma = loss, sigma
        self._land = Landscape(self._model, loss, data, sigma=sigma)
        self._update = update_of(optimizer)
        self._program = program_of(self._land)
        # Members of one batch size lie side by side, so that rows are not in the order of the members.
        device = self._land.device
        self._subsets = subsets_of([member.subset for member in self.members], self._land.n).to(device)
        self._order = order_of(self.members)
        self._rows = torch.tensor(self._order, device=device).argsort()  # of each member
        self._layout = Layout(self._program.places, tuple(tensor.shape for tensor in self._land.parameters.values()))
        # The loss at the start bounds what counts as divergence.
        self._state = self._start(weights.to(device))
        initial_losses = self._averages(self._land, self._subsets, _MAX_INITIAL_SAMPLES).loss
        self._stepper = Stepper(
            self._program,
            self._update,
            groups_of(self.members, self._order, self._subsets),
            self._program.pool(self._land.samples.to(device)),
            self._layout,
            self._state,
            self._column(lambda member: member.lr),
            self._column(lambda member: member.weight_decay),
            self._ceiling(initial_losses, limit).to(device),
            memory,
        )

    def _start(self, weights: Tensor) -> State:
        """The state before the first step."""
        program, count = self._program, len(self.members)
        points = program.template.repeat(count, 1)
        points[:, program.places] = weights[self._order]
        return State(
            points,
            self._update.start(points, self._layout, self._order),
            torch.zeros((), dtype=torch.long, device=points.device),
            torch.full((count,), -1, device=points.device),
            torch.full((count,), torch.nan, dtype=points.dtype, device=points.device),
        )

    def _column(self, value: Callable[[Member], float]) -> Tensor:
        """A setting of the members, in rows."""
        return torch.tensor([float(value(self.members[m])) for m in self._order], dtype=torch.float64)

    def _ceiling(self, initial_losses: Tensor, limit: float | None) -> Tensor:
        """The largest credible batch loss of every row."""
        bad = [m for m, value in enumerate(initial_losses.tolist()) if not value < float("inf")]
        if bad:
            raise InputError(f"the loss of members {bad[:8]} is not finite at the start — check their initial weights")
        ceilings = (100 * initial_losses).clamp(min=100) if limit is None else torch.full_like(initial_losses, limit)
        return ceilings[self._order].to(self._state.points.dtype)

    # ------------------------------------------------------------------ members

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"Population({len(self)} members, {self._land.dimension:,} parameters each, step {self.step:,})"

    @property
    def step(self) -> int:
        """Steps taken."""
        return int(self._state.step)

    @property
    def diverged(self) -> dict[int, int]:
        """The members that diverged, with the step at which they were frozen."""
        steps = self._state.diverged[self._rows].tolist()
        return {m: step for m, step in enumerate(steps) if step >= 0}

    @property
    def batch_losses(self) -> Tensor:
        """Each member's loss on its last batch of the last block (M,); NaN before the first."""
        return self._state.losses[self._rows].clone()

    @property
    def parameters(self) -> Parameters:
        """The weights of all members: each parameter with a leading axis of members."""
        flat = self._state.points[:, self._program.places][self._rows]
        pieces = flat.split([tensor.numel() for tensor in self._land.parameters.values()], dim=1)
        return {
            name: piece.reshape(-1, *tensor.shape)
            for (name, tensor), piece in zip(self._land.parameters.items(), pieces, strict=True)
        }

    def model(self, member: int) -> nn.Module:
        """One member as a network of its own, with its present weights."""
        self._check_number(member)
        network = copy.deepcopy(self._model)
        parameters = dict(network.named_parameters())
        with torch.no_grad():
            for name, stacked in self.parameters.items():
                parameters[name].copy_(stacked[member])
        return network

    def landscape(self, member: int) -> Landscape:
        """The landscape of one member on its own training samples, to measure it."""
        self._check_number(member)
        point = {name: stacked[member] for name, stacked in self.parameters.items()}
        return self._land.subset(self._subsets.of(member).cpu()).at(point)

    def batch(self, member: int, step: int) -> Tensor:
        """The numbers of the samples that a member sees at a step (0, 1, …): what its twin trained alone must see."""
        self._check_number(member)
        group = groups_of([self.members[member]], [0], subsets_of([self.members[member].subset], self._land.n))[0]
        return group.draw(whole("step", step, least=0), 1)[0, 0]

    def _check_number(self, member: int) -> None:
        if not 0 <= whole("member", member) < len(self):
            raise InputError(f"member must lie in 0..{len(self) - 1}, got {member}")

    # ------------------------------------------------------------------ training

    def train(
        self,
        steps: int,
        *,
        checkpoint: str | Path | None = None,
        save_every: float = 60.0,
        seconds: float | None = None,
        progress: bool = True,
    ) -> bool:
        """Train until `steps` steps have been taken since the start; True if they have, False if time ran out.

        Args:
            steps: in all, those already taken included.
            checkpoint: a file to go on from if it is there, and to write on the way and at the end. A run that is
                killed at any moment and called again ends in the same bits.
            save_every: seconds between two writes of the checkpoint.
            seconds: stop at the end of a block once so much time has passed.
            progress: show a progress bar.
        """
        steps = whole("steps", steps, least=0)
        limit = None if seconds is None else positive("seconds", seconds)
        positive("save_every", save_every)
        path = None if checkpoint is None else Path(checkpoint)
        if path is not None and path.is_file():
            self.load(path)
        started = saved = time.monotonic()
        at = self.step
        with tracked(f"training {len(self)} networks", progress) as report:
            while at < steps and (limit is None or time.monotonic() - started < limit):
                stop = min(steps, (at // BLOCK + 1) * BLOCK)
                self._stepper.block(stop - at)
                at = self.step  # waits for the device
                report(at / steps, f"step {at:,} of {steps:,}")
                if path is not None and time.monotonic() - saved > save_every:
                    self.save(path)
                    saved = time.monotonic()
        if path is not None:
            self.save(path)
        return at >= steps

    # ------------------------------------------------------------------ measuring

    def evaluate(self, data: Any = None, subsets: Sequence[Subset] | None = None) -> Evaluation:
        """Mean losses, and for classifiers accuracies, of all members.

        Args:
            data: as for `Landscape`; the training data if None.
            subsets: for each member the numbers of the samples of `data` it is measured on; all of them if None, or
                each member's own training samples where `data` is None too.
        """
        if data is None:
            land = self._land
            chosen = self._subsets if subsets is None else self._chosen(subsets, land)
        else:
            land = Landscape(self._model, self._loss, data, sigma=self._sigma)
            chosen = self._chosen([None] * len(self) if subsets is None else subsets, land)
        evaluation = self._averages(land, chosen)
        diverged = list(self.diverged)
        for values in (evaluation.loss, evaluation.accuracy):
            if values is not None:
                values[diverged] = torch.nan
        return evaluation

    def _chosen(self, subsets: Sequence[Subset], land: Landscape) -> Subsets:
        if len(subsets) != len(self):
            raise InputError(f"subsets must hold one entry per member: expected {len(self)}, got {len(subsets)}")
        return subsets_of(subsets, land.n).to(land.device)

    @torch.no_grad()
    def _averages(self, land: Landscape, subsets: Subsets, first: int | None = None) -> Evaluation:
        """Averages over each member's subset, or over its first samples; members of one subset go together."""
        device = self._state.points.device
        pool = self._program.pool(land.samples.to(device))
        loss = torch.empty(len(self), dtype=torch.float64)
        accuracy = torch.empty_like(loss) if land.loss.family == "categorical" else None
        by_subset: dict[str, list[int]] = {}
        for m, digest in enumerate(subsets.digests):
            by_subset.setdefault(digest, []).append(m)
        for group in by_subset.values():
            numbers = subsets.of(group[0])[:first]
            bound = _MAX_ACTIVATION_BYTES.get(device.type, _MAX_ACTIVATION_BYTES["cpu"])
            # A tile of members times samples, as large as fits; with 256 samples at least, while there are as many.
            tile = max(1, bound // self._program.sample_bytes)
            most_members = max(1, tile // min(len(numbers), 256))
            for start in range(0, len(group), most_members):
                members = group[start : start + most_members]
                losses, met = self._sums(pool, members, numbers, max(1, tile // len(members)))
                loss[members] = losses / len(numbers)
                if accuracy is not None and met is not None:
                    accuracy[members] = met / len(numbers)
        return Evaluation(loss, accuracy)

    def _sums(self, pool: Any, members: list[int], numbers: Tensor, size: int) -> tuple[Tensor, Tensor | None]:
        """Sums of the losses of some members, and of labels met, over samples of these numbers."""
        points = self._state.points[self._rows[members]]
        total = torch.zeros(len(members), dtype=torch.float64)
        hits: Tensor | None = None
        for piece in numbers.split(size):
            inputs, target = (map_tensors(lambda tensor: tensor[piece], part) for part in pool)  # noqa: B023
            losses, met = self._program.evaluate(points, inputs, target)
            total += losses.double().sum(1).cpu()
            if met is not None:
                count = met.double().sum(1).cpu()
                hits = count if hits is None else hits + count
        return total, hits

    # ------------------------------------------------------------------ checkpoints

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file, atomically."""
        store.save(Path(path), self._tensors(), self._about())

    def load(self, path: str | Path) -> None:
        """Go on from a file that `save` wrote for a population of the same members, data and optimizer."""
        if not Path(path).is_file():
            raise InputError(f"checkpoint {path} is not there")
        tensors = self._tensors()
        loaded = store.load(Path(path), self._about(), tensors)
        for name, tensor in tensors.items():
            tensor.copy_(loaded[name])
        self._stepper.reset_rates()

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint."""
        state = self._state
        return {
            "points": state.points,
            **state.slots,
            "step": state.step,
            "diverged": state.diverged,
            "losses": state.losses,
        }

    def _about(self) -> dict[str, Any]:
        """The settings that a checkpoint must agree with to be resumed."""
        if not hasattr(self, "_description"):
            self._description = {
                "format": 1,
                "parameters": [[name, list(tensor.shape)] for name, tensor in self._land.parameters.items()],
                "dtype": str(self._land.dtype),
                "program": type(self._program).__name__,
                "loss": [self._land.loss.name, self._land.loss.variance],
                "optimizer": [type(self._update).__name__, vars(self._update)],
                "members": [
                    [member.seed, member.lr, member.weight_decay, member.batch_size, digest[:16]]
                    for member, digest in zip(self.members, self._subsets.digests, strict=True)
                ],
                "data": self._land.samples.digest(),
            }
        return self._description
