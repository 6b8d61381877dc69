"""Landscape: a model, its per-sample loss and its data, seen as a function of the parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import losses as _losses
from .adapters import hugging_face, lightning
from .errors import InputError
from .independence import independent_losses
from .mended import Mended
from .network import Parameters as Parameters
from .network import (
    explained,
    refuse_batch_statistics,
    refuse_non_finite,
    refuse_without_values,
    skeleton,
    tensors_of,
    transformable,
    unwrapped,
)
from .parts import KINDS, Part, Piece, parts_of
from .restriction import chosen, freed, whole
from .samples import Samples, Tree, dense, map_tensors, read, tensors

_MOST_AT_ONCE, _OUTPUTS = 4096, 2**26  # samples that are evaluated at once, and numbers in their outputs


class Landscape:
    """The loss landscape of a trained network around its parameters w*.

    L_n(w) = (1/n) Σ_i l_i(w) with l_i(w) = −log p(y_i | x_i, w), as a pure function of a parameter dictionary.
    The model is copied without its weights and never touched again: dropout is off, buffers are frozen at their
    present values, tied parameters count once. Extra axes of the loss (positions of a sequence) are summed, so
    that a sample is a whole sequence. A model that draws random numbers, changes from call to call or lets samples of
    a batch influence each other is refused.

    Args:
        model: any `nn.Module`. Parameters with `requires_grad=False` are held fixed.
        loss: `cross_entropy`, `gaussian` (with `sigma`), `bernoulli`, `mse`, or a callable
            `(output, target) -> (m,)` of negative log-likelihoods.
        data: `(x, y)` arrays, a `Dataset`, or an iterable of `(x, y)` batches. `x` may be a tuple (several
            positional inputs) or a dict (keyword inputs).
        sigma: standard deviation of the Gaussian loss.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> land = bs.Landscape(torch.nn.Linear(1, 1), loss="mse", data=(x, 2 * x))
        >>> land.n, land.dimension
        (20, 2)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | _losses.PerSample | _losses.Loss = "cross_entropy",
        data: Any = None,
        *,
        sigma: float | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        if data is None:
            raise InputError("data is missing: pass data=(x, y), a Dataset or an iterable of batches")
        model = unwrapped(model)
        refuse_batch_statistics(model)
        self.loss = _losses.named_loss(loss, sigma)
        self._skeleton = skeleton(model)
        trainable, frozen = tensors_of(model)
        self.parameters: Parameters = trainable
        self._frozen: Parameters = frozen
        self._slices: dict[str, Piece] = {}  # where free slices of frozen parameters belong
        self._samples = _placed(read(data), self.device, self.dtype)
        self._entries = 1  # numbers in the output of one sample
        self._mended = False  # whether the network uses functions whose derivatives are mended
        self._check_model()

    # ------------------------------------------------------------------ from other packages

    @classmethod
    def from_pretrained(
        cls, model: Any, data: Any, *, loss: str | _losses.PerSample | None = None, revision: str | None = None,
        subfolder: str = "",
    ) -> Landscape:  # fmt: skip
        """The landscape of a Hugging Face causal language model or classifier of images or texts.

        A sample of a language model is a whole sequence: l_i = −Σ_t log p(x_{i,t+1} | x_{i,≤t}), over the positions
        that the attention mask and labels of −100 leave.

        Args:
            model: a model of transformers, or the folder or name of a saved one, which is loaded in float32.
                Adapters of PEFT move alone: what is frozen stays so.
            data: token numbers of shape (n, T), or dicts as the model takes them, with `labels` for classifiers.
            loss: of the logits against the labels; that of the model's configuration unless given.
            revision: of a model on the Hub: a branch, tag or commit, such as Pythia's `step3000`. A name may say it
                itself, as in `EleutherAI/pythia-14m@step3000`.
            subfolder: where in the folder or repository the model is.

        Examples:
            >>> import torch, basinscope as bs
            >>> from transformers import GPT2Config, GPT2LMHeadModel
            >>> net = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=6, n_embd=8, n_layer=1, n_head=1)).eval()
            >>> land = bs.Landscape.from_pretrained(net, torch.randint(8, (10, 6)))
            >>> land.n, land.loss.name
            (10, 'cross_entropy')
        """
        network = hugging_face.pretrained(model, revision, subfolder)
        model_loss, causal = hugging_face.task(network)
        samples = hugging_face.model_data(data, causal)
        if causal:
            hugging_face.check_tokens(network, samples.inputs["input_ids"])
        with hugging_face.plain_forward(network):
            return cls(network, model_loss if loss is None else loss, samples)

    @classmethod
    def from_lightning(
        cls, module: nn.Module, data: Any = None, *, loss: str | _losses.PerSample | None = None
    ) -> Landscape:
        """The landscape of a Lightning module, as a function of the parameters that its `forward` depends on.

        Args:
            module: a `LightningModule`.
            data: a loader, a `LightningDataModule`, or data as for a `Landscape`; the module's own training data
                unless given. Samples are taken in the order of their numbers, each once, whatever the loader shuffles.
            loss: by name or as a callable; unless given, the plain `nn.CrossEntropyLoss`, `nn.BCEWithLogitsLoss` or
                `nn.MSELoss` (as a Gaussian of unit variance) that the module holds as `loss`, `criterion` or `loss_fn`.

        Examples:
            >>> import torch, basinscope as bs
            >>> from pytorch_lightning import LightningModule
            >>> class Net(LightningModule):
            ...     def __init__(self):
            ...         super().__init__()
            ...         self.layer, self.criterion = torch.nn.Linear(2, 3), torch.nn.CrossEntropyLoss()
            ...     def forward(self, x):
            ...         return self.layer(x)
            >>> bs.Landscape.from_lightning(Net(), (torch.randn(6, 2), torch.randint(3, (6,)))).dimension
            9
        """
        module_loss, samples = lightning.parts(module, data, loss)
        return cls(module, module_loss, samples)

    # ------------------------------------------------------------------ size and place

    @property
    def n(self) -> int:
        """Number of samples."""
        return self._samples.n

    @property
    def samples(self) -> Samples:
        """The resident data."""
        return self._samples

    @property
    def dimension(self) -> int:
        """Number d of free parameters, tied ones counted once."""
        return sum(tensor.numel() for tensor in self.parameters.values())

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(iter(self.parameters.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the parameters."""
        return next(iter(self.parameters.values())).dtype

    @property
    def module(self) -> nn.Module:
        """The model's structure, without weights (they live on the meta device)."""
        return self._skeleton

    def __repr__(self) -> str:
        return (
            f"Landscape({type(self._skeleton).__name__}, loss={self.loss.name}, n={self.n:,}, "
            f"parameters={self.dimension:,}, {str(self.dtype).removeprefix('torch.')} on {self.device})"
        )

    # ------------------------------------------------------------------ the function of the parameters

    def outputs(self, parameters: Mapping[str, Tensor], inputs: Tree) -> Any:
        """The network's output for `inputs` at `parameters`."""
        state = whole({**self._frozen, **parameters}, self._slices)
        with Mended() if self._mended else nullcontext(), transformable():
            if isinstance(inputs, Mapping):
                return functional_call(self._skeleton, state, (), dict(inputs))
            return functional_call(self._skeleton, state, inputs if isinstance(inputs, tuple) else (inputs,))

    def losses(self, parameters: Mapping[str, Tensor], batch: Samples) -> Tensor:
        """The vector of negative log-likelihoods l_i(w), one per sample of the batch."""
        return self.loss.per_sample(self.outputs(parameters, batch.inputs), batch.target)

    def batches(self, size: int | None = None) -> Iterator[Samples]:
        """All data in order, in pieces of at most `size` samples on the parameters' device."""
        step = self.n if size is None else size
        for start in range(0, self.n, step):
            piece = self._samples if step >= self.n else self._samples.take(slice(start, start + step))
            yield piece.to(self.device)

    def take(self, indices: Tensor) -> Samples:
        """The samples at `indices`, on the parameters' device."""
        return self._samples.take(indices.to(self._samples.device)).to(self.device)

    def per_sample(self, parameters: Mapping[str, Tensor] | None = None, batch_size: int | None = None) -> Tensor:
        """l_i(w) for all n samples (at w* unless given), in float64.

        Unless a `batch_size` is given, as many samples go through the network at once as have outputs of 256 MB.

        Examples:
            >>> import torch, basinscope as bs
            >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (torch.zeros(3, 1), torch.ones(3, 1)))
            >>> land.per_sample().tolist()
            [0.5, 0.5, 0.5]
        """
        point = self.parameters if parameters is None else parameters
        size = batch_size or max(1, min(_MOST_AT_ONCE, _OUTPUTS // self._entries))
        with torch.no_grad():
            return torch.cat([self.losses(point, batch).double() for batch in self.batches(size)])

    # ------------------------------------------------------------------ flat vectors

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """A parameter dictionary as one vector of length d."""
        return torch.cat([parameters[name].reshape(-1) for name in self.parameters])

    def unflatten(self, vector: Tensor) -> Parameters:
        """A vector of length d as a parameter dictionary (views, differentiable)."""
        pieces = torch.split(vector, [tensor.numel() for tensor in self.parameters.values()])
        return {
            name: piece.view(tensor.shape)
            for (name, tensor), piece in zip(self.parameters.items(), pieces, strict=True)
        }

    # ------------------------------------------------------------------ parts of it

    def restrict(self, *patterns: str) -> Landscape:
        """The same landscape as a function of the parameters whose names match; the others are held fixed.

        A transformer has parts by names that people use, such as `layer 3 head 5`, which `parts` lists; `l3h5` is the
        same, and `*` stands for anything in them, too.

        Examples:
            >>> import torch, basinscope as bs
            >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
            >>> land = bs.Landscape(net, "mse", (torch.ones(4, 2), torch.ones(4, 1)))
            >>> land.restrict("0.*").dimension
            9
        """
        pieces = chosen(patterns, self.parameters, self.parts())
        part = copy.copy(self)
        part.parameters, part._frozen, part._slices = freed(pieces, self.parameters, self._frozen, self._slices)
        if not part.parameters:
            raise InputError(f"{patterns} are held fixed here — restrict the landscape of the whole network instead")
        return part

    def parts(self, kind: str | None = None) -> tuple[Part, ...]:
        """What a transformer has, by the names that `restrict` takes: embeddings, and layers with their attention, its
        heads and groups of heads that share keys and values, MLP and norms. None of another network.

        A head is its queries, keys and values and what it writes: where a group of heads shares keys and values, these
        belong to the group. Embeddings that are tied count once, as `embedding`.

        Args:
            kind: `layer`, `attention`, `head`, `group`, `mlp`, `norm`, `embedding`, `positions` or `unembedding`.

        Examples:
            >>> import torch, basinscope as bs
            >>> net = bs.zoo.models.transformer(8, 6, layers=1, width=4, heads=2)
            >>> tokens = torch.randint(8, (10, 7))
            >>> land = bs.Landscape(net, "cross_entropy", (tokens[:, :-1], tokens[:, 1:]))
            >>> [part.name for part in land.parts("head")], land.restrict("layer 0 head 1").dimension
            (['layer 0 head 0', 'layer 0 head 1'], 38)
        """
        if kind is not None and kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        sliced = {piece.parameter: self._frozen[piece.parameter] for piece in self._slices.values()}
        parts = parts_of(self._skeleton, {**self.parameters, **sliced}, self._slices.values())
        return tuple(part for part in parts if kind in (None, part.kind))

    def subset(self, indices: Tensor | Sequence[int] | slice) -> Landscape:
        """The same landscape on part of the data.

        Examples:
            >>> import torch, basinscope as bs
            >>> land = bs.Landscape(torch.nn.Linear(1, 1), "mse", (torch.ones(9, 1), torch.ones(9, 1)))
            >>> land.subset(range(4)).n
            4
        """
        chosen = indices if isinstance(indices, slice) else self._sample_numbers(indices)
        part = copy.copy(self)
        part._samples = self._samples.take(chosen)
        if part.n == 0:
            raise InputError("subset is empty: expected at least one sample")
        return part

    def _sample_numbers(self, indices: Any) -> Tensor:
        """Indices or a mask of length n as sample numbers."""
        try:
            numbers = torch.as_tensor(indices, device=self._samples.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"indices must be sample numbers in 0..{self.n - 1} or a mask, got {indices!r}") from error
        if numbers.numel() == 0:
            raise InputError("subset is empty: expected at least one sample")
        if numbers.dtype == torch.bool and numbers.shape == (self.n,):
            return numbers.nonzero().squeeze(1)
        real = numbers.is_floating_point() or numbers.dtype == torch.bool
        if real or numbers.ndim != 1 or not 0 <= int(numbers.min()) <= int(numbers.max()) < self.n:
            raise InputError(
                f"indices must be a list of sample numbers in 0..{self.n - 1} or a mask of length {self.n}, got "
                f"{numbers.dtype} of shape {tuple(numbers.shape)}"
            )
        return numbers

    def at(self, parameters: Mapping[str, Tensor]) -> Landscape:
        """The same landscape seen from another point w*: one entry of `parameters` per parameter name."""
        if not isinstance(parameters, Mapping):
            raise InputError(
                f"parameters must be a dict of tensors by name, got {type(parameters).__name__} — land.unflatten makes "
                f"one of a vector"
            )
        missing = self.parameters.keys() ^ parameters.keys()
        if missing:
            raise InputError(f"parameters must name exactly the landscape's own: {sorted(missing)} differ")
        part = copy.copy(self)
        part.parameters = {}
        for name, old in self.parameters.items():
            tensor = dense(parameters[name]).detach()
            if tensor.is_complex():
                raise InputError(f"{name} must be real, got {tensor.dtype}")
            refuse_without_values({name: tensor})
            new = tensor.to(device=old.device, dtype=old.dtype, copy=True)
            if new.shape != old.shape:
                raise InputError(f"{name} must have shape {tuple(old.shape)}, got {tuple(new.shape)}")
            part.parameters[name] = new
        refuse_non_finite(part.parameters)
        return part

    def relabel(self, target: Tree) -> Landscape:
        """The same landscape with other targets, one per sample.

        Examples:
            >>> import torch, basinscope as bs
            >>> land = bs.Landscape(torch.nn.Linear(1, 1), "mse", (torch.zeros(3, 1), torch.zeros(3, 1)))
            >>> land.relabel(torch.ones(3, 1)).samples.target.sum().item()
            3.0
        """
        counts = {len(tensor) for tensor in tensors(target) if tensor.ndim}
        if counts != {self.n}:
            raise InputError(f"target must hold {self.n} samples, one per input, got {sorted(counts)}")
        part = copy.copy(self)
        part._samples = _placed(Samples(self._samples.inputs, target, self.n), self.device, self.dtype)
        part._check_loss()
        _refuse_bad(part.per_sample())
        return part

    def on(self, data: Any) -> Landscape:
        """The same network at the same parameters, with the same loss, on other data: a `Landscape` of them.

        Examples:
            >>> import torch, basinscope as bs
            >>> land = bs.Landscape(torch.nn.Linear(1, 1), "mse", (torch.zeros(3, 1), torch.zeros(3, 1)))
            >>> land.on((torch.zeros(5, 1), torch.ones(5, 1))).n
            5
        """
        part = copy.copy(self)
        part._samples = _placed(read(data), self.device, self.dtype)
        part._check_model()
        return part

    # ------------------------------------------------------------------ checks

    def _check_model(self) -> None:
        """Refuse a model that is no fixed function of each sample by itself, and a loss that is no number for each."""

        def all_losses() -> Tensor:
            self._check_loss()
            return self.per_sample()

        with explained():
            losses = independent_losses(all_losses, self.losses, self.take, self.n, self.parameters, self._frozen)
        _refuse_bad(losses)

    def _check_loss(self) -> None:
        """On a few samples, the loss must be per-sample, made for these targets, and depend on the parameters."""
        few = self.take(torch.arange(min(self.n, 8)))  # a copy, lest the model writes into the data
        with torch.no_grad():
            with Mended() as mode:
                output = self.outputs(self.parameters, few.inputs)
            self._mended |= mode.used
            scores = output if isinstance(output, Tensor) else getattr(output, "logits", None)
            self._entries = max(1, scores.numel() // few.n) if isinstance(scores, Tensor) else 1
            _losses.check_labels(self.loss, output, few.target, self._samples.target)
            values = self.loss.per_sample(output, few.target)
        _losses.check_values(values, few.n)
        self._check_dependence(few)

    def _check_dependence(self, few: Samples) -> None:
        """The loss must have a finite gradient in the parameters."""
        point = {name: tensor.detach().requires_grad_() for name, tensor in self.parameters.items()}
        with torch.enable_grad(), transformable():
            total = self.losses(point, few).sum()
            if not total.requires_grad:
                raise InputError(
                    "the loss does not depend on the parameters: expected a differentiable output — remove detach() or "
                    "torch.no_grad() from the model and the loss"
                )
            slopes = torch.autograd.grad(total, list(point.values()), allow_unused=True)
        bad = [
            name
            for name, slope in zip(point, slopes, strict=True)
            if slope is not None and bool(torch.isfinite(total)) and not bool(torch.isfinite(slope.to_dense()).all())
        ]
        if bad:
            raise InputError(
                f"the loss has a NaN or infinite gradient in '{bad[0]}' at w* — look for a root or a logarithm of 0 in "
                f"the model or the loss, and keep its argument away from 0"
            )


def math_attention() -> Any:
    """The attention implementation that can be differentiated twice and batched over chains."""
    return sdpa_kernel(SDPBackend.MATH)


def _refuse_bad(losses: Tensor) -> None:
    bad = int((~torch.isfinite(losses)).sum())
    if bad:
        raise InputError(
            f"the loss is NaN or infinite on {bad} of {len(losses)} samples at w* — check the checkpoint, the targets "
            f"and the loss function"
        )


def _placed(samples: Samples, device: torch.device, dtype: torch.dtype) -> Samples:
    """Samples in the model's floating-point type, on its device when they take less than half of its free memory."""
    devices = {tensor.device for tensor in tensors((samples.inputs, samples.target))}
    elsewhere = devices - {torch.device("cpu"), device}
    if len(devices) > 1 or elsewhere:
        raise InputError(
            f"data and model are on different devices: data on {sorted(map(str, devices))}, model on "
            f"{device} — move one with .to(); data on the CPU are moved for you"
        )

    def typed(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    samples = Samples(map_tensors(typed, samples.inputs), map_tensors(typed, samples.target), samples.n)
    if device.type == "cuda" and samples.bytes > 0.5 * torch.cuda.mem_get_info(device)[0]:
        return samples
    return samples.to(device)


def check_landscape(land: Any) -> None:
    """Refuse what is no landscape, and say how to make one.

    Examples:
        >>> check_landscape(3)
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: land must be a Landscape, got int — make one with bs.Landscape(model, ...)
    """
    if getattr(land, "in_place", False):
        raise InputError(
            f"this measure needs a copy of the network, got {type(land).__name__}, whose module is in place — measure "
            f"bs.Landscape.from_pretrained(model, tokens), or a part of the model by bs.llc, bs.trace, bs.spectrum or "
            f"bs.soft_rank"
        )
    if not isinstance(land, Landscape):
        raise InputError(
            f"land must be a Landscape, got {type(land).__name__} — make one with bs.Landscape(model, ...)"
        )


def watanabe_nbeta(n: int) -> float:
    """nβ at Watanabe's temperature β = 1/log n: nβ = n / log n.

    Examples:
        >>> round(watanabe_nbeta(60000), 1)
        5453.5
    """
    if n < 3:
        raise InputError(f"nβ = n/log n needs at least 3 samples, got n={n} — pass nbeta yourself")
    return n / math.log(n)
