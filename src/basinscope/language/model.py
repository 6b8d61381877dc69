"""A language model in place: its own module, with autocast, attention, compilation and sharding as it has them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..adapters import hugging_face
from ..adapters.hugging_face import IGNORED_LABEL
from ..checks import whole
from ..errors import InputError
from ..losses import logits
from ..network import Parameters, explained, refuse_without_values, unwrapped
from ..parts import KINDS, Part, Piece, parts_of
from ..restriction import chosen, freed
from ..samples import Samples, Tree
from .loss import token_losses
from .sequences import Sequences, read_sequences
from .units import checked_unit, nbeta_in

_COUNTED = 64  # sequences whose tokens are counted
DELTAS = (None, "float32", "bfloat16")  # how δ = w − w* may be kept; None: by the weights themselves
_MOMENTS = ("exp_avg_sq", "square_avg")  # of Adam and its kin, of RMSprop


class Leaf(NamedTuple):
    """A parameter of the module, and which part of it is free; None: all of it."""

    tensor: Tensor
    piece: Piece | None

    def value(self) -> Tensor:
        """What is free of it, at present."""
        whole, piece = self.tensor.detach(), self.piece
        if piece is None or piece.index is None:
            return whole
        return whole.index_select(piece.axis, piece.index.to(whole.device))


class LanguageModel:
    """A language model on token sequences, as a function of its own weights, which nothing copies.

    A `Landscape` copies the network and sees it as a pure function. Here the module itself is used as it stands, so
    that its attention, `torch.compile`, gradient checkpointing, adapters and FSDP2 work as they do in training, and
    data are read as they are wanted. `bs.llc` walks on the weights, and puts them back to the bit whatever happens.

    Loss and samples are those of `Landscape.from_pretrained`: l_i = −Σ_t log p(x_{i,t+1} | x_{i,≤t}) of sequence i.

    Args:
        model: a causal language model of transformers, the folder or name of one, or a module that makes scores
            (m, T, vocabulary) of token numbers (m, T), such as one of TransformerLens. Parameters with
            `requires_grad=False` are held fixed, so that adapters of PEFT move alone.
        data: token numbers (n, T), or a stream of them, in memory or memory-mapped; a data set with `input_ids`;
            a `DataLoader` or another source of batches that can be iterated again.
        length: tokens of a sequence, into which a stream of them is cut.
        sequences: how many of the data to use; streams need it.
        units: what nβ and n count, `sequence` or `token`.
        autocast: type for `torch.autocast`, such as `torch.bfloat16`; the weights stay as they are.
        delta: how chains keep δ = w − w*: None by the weights themselves, of modules in 16 bits beside them in float32;
            `bfloat16` in 2 bytes a parameter with stochastic rounding, which is right on average.
        replicas: whether the processes of torch.distributed have a copy of the model each, as under DDP, and share the
            chains: call `bs.llc` in all of them with the same arguments.
        optimizer: that trained the model, such as Adam. Chains are preconditioned by its second moments, a number for
            each tensor, instead of by the curvature that a product with the Hessian shows.
        revision, subfolder: of a model by name, as for `Landscape.from_pretrained`.

    Examples:
        >>> import torch, basinscope as bs
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> net = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=6, n_embd=8, n_layer=1, n_head=1))
        >>> land = bs.LanguageModel(net, torch.randint(8, (10, 6)), units="token")
        >>> land.n, land.tokens, land.dimension
        (10, 50, 1000)
    """

    in_place = True

    def __init__(
        self,
        model: Any,
        data: Any,
        *,
        length: int | None = None,
        sequences: int | None = None,
        units: str = "sequence",
        autocast: torch.dtype | None = None,
        delta: str | None = None,
        replicas: bool = False,
        optimizer: torch.optim.Optimizer | None = None,
        revision: str | None = None,
        subfolder: str = "",
    ) -> None:
        if isinstance(model, (str, Path)):
            model = hugging_face.pretrained(model, revision, subfolder)
        elif revision is not None or subfolder:
            raise InputError("revision and subfolder are of models by name: pass the name, or the model alone")
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch.nn.Module or the name of one, got {type(model).__name__}")
        self._call = unwrapped(model, sharded=True)
        self.module: nn.Module = getattr(self._call, "_orig_mod", self._call)  # what torch.compile was given
        self.parameters: Parameters = dict(_free(self.module))
        self._slices: dict[str, Piece] = {}
        self._fixed: Parameters = {}
        self.units = checked_unit(units)
        self.autocast = autocast
        if delta not in DELTAS:
            raise InputError(f"delta must be one of {', '.join(map(repr, DELTAS))}, got {delta!r}")
        self.delta = delta
        self.replicas = replicas
        self._optimizer = optimizer
        self.data: Sequences = read_sequences(data, length, sequences)
        first = self.take_first(min(self.data.n, _COUNTED))
        if first.device.type == "meta":
            raise InputError("the data are on the meta device, without values — pass tokens that have some")
        self.tokens_per_sequence = float((first.target != IGNORED_LABEL).sum()) / first.n
        self.length = int(_ids(first).shape[1])
        if not self.tokens_per_sequence:
            raise InputError("no position of the first sequences has a next token: look at masks and labels")

    def __repr__(self) -> str:
        return (
            f"LanguageModel({type(self.module).__name__}, n={self.n:,} sequences of {self.length:,} tokens, "
            f"parameters={self.dimension:,}, {str(self.dtype).removeprefix('torch.')} on {self.device})"
        )

    # ------------------------------------------------------------------ size and place

    @property
    def n(self) -> int:
        """Number of sequences."""
        return self.data.n

    @property
    def tokens(self) -> int:
        """Number of tokens that are predicted, counted on the first sequences."""
        return round(self.n * self.tokens_per_sequence)

    @property
    def count(self) -> int:
        """n in the units asked for."""
        return self.tokens if self.units == "token" else self.n

    @property
    def dimension(self) -> int:
        """Number d of free parameters, tied ones counted once."""
        return sum(tensor.numel() for tensor in self.parameters.values())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.parameters.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the weights."""
        return next(iter(self.parameters.values())).dtype

    def per_sequence(self, nbeta: float) -> float:
        """nβ as it multiplies the mean loss of a sequence, from what it is in the units of this landscape."""
        return nbeta_in("sequence", nbeta, given_in=self.units, tokens_per_sequence=self.tokens_per_sequence)

    def devinterp_nbeta(self, batch_size: int) -> float:
        """nβ, in the units of this landscape, at which devinterp 2 samples unless told another: m / log m.

        Its m is the number of sequences of a batch, and its loss the mean over their tokens. With this nβ and its γ the
        posterior is the same, and λ̂ can be set beside that of devinterp, or of a paper that used it.

        Examples:
            >>> import torch, basinscope as bs
            >>> net = bs.zoo.models.transformer(8, 6, layers=1, width=4, heads=2)
            >>> land = bs.LanguageModel(net, torch.randint(8, (10, 6)), units="token")
            >>> round(land.devinterp_nbeta(4), 4)
            2.8854
        """
        size = whole("batch_size", batch_size, 2)
        nbeta = size / math.log(size)
        return nbeta_in(self.units, nbeta, given_in="token", tokens_per_sequence=self.tokens_per_sequence)

    # ------------------------------------------------------------------ the function of the weights

    def leaves(self) -> dict[str, Leaf]:
        """The module's own tensors that are free, by name, with which part of them is."""
        tensors = dict(self.module.named_parameters())
        return {
            name: Leaf(tensors[piece.parameter] if (piece := self._slices.get(name)) else tensors[name], piece)
            for name in self.parameters
        }

    @property
    def slices(self) -> Mapping[str, Piece]:
        """Where free slices belong, by the names that they have as parameters."""
        return self._slices

    def held(self) -> Parameters:
        """The module's parameters that are held fixed, and the whole of those that are free in part."""
        wholly = self.parameters.keys() - self._slices.keys()
        return {name: each.detach() for name, each in self.module.named_parameters() if name not in wholly}

    def token_losses(self, batch: Samples) -> Tensor:
        """−log p of each token of a batch at the module's present weights, (m, T); 0 where there is none to predict."""
        batch = batch.to(self.device)
        ids = _ids(batch)
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None), explained():
            scores = logits(self._outputs(batch.inputs))
            if scores.ndim != 3 or scores.shape[:2] != ids.shape:
                raise InputError(
                    f"the model must make scores of shape (m, T, vocabulary) of tokens (m, T): got "
                    f"{tuple(scores.shape)} of {tuple(ids.shape)}"
                )
            return token_losses(scores, batch.target, compiled=scores.is_cuda and self._call is not self.module)

    def _outputs(self, inputs: Tree) -> Any:
        if _is_of_transformers(self.module):
            return self._call(**inputs, use_cache=False)
        if "attention_mask" in inputs:
            raise InputError(
                f"sequences have attention masks or unequal lengths, which {type(self.module).__name__} is not known "
                f"to take — cut them to one length"
            )
        return self._call(inputs["input_ids"])

    def moments(self) -> dict[str, float] | None:
        """The root mean square of the gradients of each free tensor, as the optimizer keeps it; None without one."""
        if self._optimizer is None:
            return None
        roots = {}
        for name, leaf in self.leaves().items():
            state = self._optimizer.state.get(leaf.tensor, {})
            moments = next((state[key] for key in _MOMENTS if key in state), None)
            if moments is None:
                raise InputError(
                    f"the optimizer keeps no second moment of '{name}': expected one such as Adam or RMSprop that has "
                    f"trained this very module — or leave optimizer out"
                )
            roots[name] = float(leaf._replace(tensor=moments).value().mean(dtype=torch.float64)) ** 0.5
        return roots

    # ------------------------------------------------------------------ data

    def take(self, numbers: Tensor) -> Samples:
        """The sequences of these numbers."""
        return self.checked(self.data.take(numbers))  # type: ignore[attr-defined]

    def take_first(self, size: int) -> Samples:
        """The first sequences."""
        return self.checked(self.data.first(size))

    def checked(self, batch: Samples) -> Samples:
        """A batch whose tokens the model knows."""
        if _is_of_transformers(self.module):
            hugging_face.check_tokens(self.module, _ids(batch))
        return batch

    # ------------------------------------------------------------------ parts

    def parts(self, kind: str | None = None) -> tuple[Part, ...]:
        """What the model has, by the names that `restrict` takes; as `Landscape.parts`."""
        if kind is not None and kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        tensors = dict(self.module.named_parameters())
        sliced = {piece.parameter: tensors[piece.parameter] for piece in self._slices.values()}
        parts = parts_of(self.module, {**self.parameters, **sliced}, self._slices.values())
        return tuple(part for part in parts if kind in (None, part.kind))

    def restrict(self, *patterns: str) -> LanguageModel:
        """The same model as a function of the weights whose names match, such as `layer 3 head 5`.

        Examples:
            >>> import torch, basinscope as bs
            >>> net = bs.zoo.models.transformer(8, 6, layers=1, width=4, heads=2)
            >>> bs.LanguageModel(net, torch.randint(8, (10, 6))).restrict("layer 0 head 1").dimension
            38
        """
        pieces = chosen(patterns, self.parameters, self.parts())
        part = copy.copy(self)
        part.parameters, part._fixed, part._slices = freed(pieces, self.parameters, self._fixed, self._slices)
        if not part.parameters:
            raise InputError(f"{patterns} are held fixed here — restrict the whole model instead")
        if part._slices and any(hasattr(leaf.tensor, "placements") for leaf in part.leaves().values()):
            raise InputError(
                f"{patterns} are slices of weights that are sharded over processes — measure heads on one process, or "
                f"whole parameters by name"
            )
        return part

    # ------------------------------------------------------------------ what a measurement may change

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Within it the module is still, and only what is free has gradients; afterwards it is as it was."""
        before = _State(self.module)
        try:
            before.still({id(leaf.tensor) for leaf in self.leaves().values()})
            yield
        finally:
            surely(before.restore)


class _State:
    """Modes, gradients and flags of a module, as they are."""

    def __init__(self, module: nn.Module) -> None:
        self._modes = [(each, each.training) for each in module.modules()]
        self._parameters = [(each, each.requires_grad, each.grad) for each in module.parameters()]

    def still(self, free: set[int]) -> None:
        """No dropout, no gradients but of what is free. Layers that recompute activations do so in training alone."""
        for module, _ in self._modes:
            module.training = bool(getattr(module, "gradient_checkpointing", False))
        for parameter, _, _ in self._parameters:
            parameter.grad = None
            parameter.requires_grad_(id(parameter) in free)

    def restore(self) -> None:
        for module, mode in self._modes:
            module.training = mode
        for parameter, wanted, gradient in self._parameters:
            parameter.requires_grad_(wanted)
            parameter.grad = gradient


def surely(act: Any) -> None:
    """Do what may be done again and again, until no interruption comes between."""
    while True:
        try:
            act()
            return
        except KeyboardInterrupt:
            continue


def _free(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters that may move, refused where no walk could."""
    parameters = [(name, each) for name, each in module.named_parameters() if each.requires_grad and each.numel()]
    if not parameters:
        raise InputError("the model has no trainable parameters: set requires_grad=True on those to be measured")
    devices = sorted({str(each.device) for _, each in parameters})
    if len(devices) > 1:
        raise InputError(
            f"the weights are on different devices, {', '.join(devices)} — load the model on one device, without "
            f"device_map, or shard it by FSDP2"
        )
    refuse_without_values({**dict(module.named_parameters()), **dict(module.named_buffers())})
    for name, each in parameters:
        if not each.is_floating_point():
            raise InputError(f"parameter '{name}' has dtype {each.dtype}: only real weights have a landscape")
        if each._post_accumulate_grad_hooks:
            raise InputError(
                f"parameter '{name}' has a hook that takes its gradient as it arrives, as of an optimizer in backward, "
                f"which would move it while it is measured — remove that hook first"
            )
    yield from parameters


def _is_of_transformers(module: nn.Module) -> bool:
    return hasattr(module, "config") and hasattr(module, "can_generate")


def _ids(batch: Samples) -> Tensor:
    ids: Tensor = batch.inputs["input_ids"]
    return ids


def is_language_model(land: Any) -> bool:
    """Whether a landscape is that of a module in place."""
    return isinstance(land, LanguageModel)
