"""H and F of a language model in place, by products whose scores over the vocabulary are made a piece at a time.

The network is cut in two where its last linear layer begins. Derivatives of the losses in what that layer reads are
taken for a piece of the positions at a time, forwards over backwards, and the rest of the network carries them on: no
array of positions by vocabulary of first or second derivatives is ever whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, func, nn
from torch.func import functional_call, grad
from torch.nn import functional

from ..adapters.hugging_face import IGNORED_LABEL, plain_forward
from ..errors import InputError
from ..landscape import math_attention
from ..language.model import LanguageModel
from ..losses import logits
from ..network import Parameters, transformable
from ..restriction import whole
from ..samples import Samples
from .tiles import DEFAULT_MEMORY, check_vectors

jvp: Any = func.jvp  # whose types say that it returns more than it does
vjp: Any = func.vjp
MATRICES = ("hessian", "fisher")
_COPIES = 8  # of the scores of a piece, that its derivatives take
_TOKENS = 4096  # that go through the network at once
_SAME = 1e-3  # relative difference between scores that are made in one way and in another


class LanguageOperator:
    """(1/n) Σ_i ∇²l_i, or the Fisher matrix, of a language model at its present weights; n counts its units.

    Args:
        land: the language model.
        matrix: `hessian` or `fisher`.
        memory: bytes that the scores of a piece of the positions may take, with their derivatives.
    """

    def __init__(self, land: LanguageModel, matrix: str, memory: int | None = None) -> None:
        if matrix not in MATRICES:
            raise InputError(
                f"matrix must be {' or '.join(map(repr, MATRICES))} for a language model in place, got {matrix!r} — "
                f"use bs.Landscape.from_pretrained(model, tokens)"
            )
        self.land, self.name, self.psd = land, matrix, matrix == "fisher"
        self.dimension, self.device, self.dtype = land.dimension, land.device, land.dtype
        self._memory = DEFAULT_MEMORY if memory is None else memory
        self._point = {name: leaf.value() for name, leaf in land.leaves().items()}
        self._halves = _halves(land, self._state(self._point))
        self._sequences = max(1, _TOKENS // land.length)

    def __repr__(self) -> str:
        return f"LanguageOperator({self.name}, {self.dimension:,} × {self.dimension:,})"

    def __matmul__(self, v: Tensor) -> Tensor:
        check_vectors(v, self.dimension, self.name)
        columns = v.to(self.device, self.dtype).reshape(self.dimension, -1)
        total = torch.zeros_like(columns)
        with still(self.land), torch.no_grad():
            for batch in self.land.data.ordered(self._sequences):
                mine = self.land.checked(batch).to(self.device)
                for number in range(columns.shape[1]):
                    total[:, number] += self._flat(self._product(mine, self._shaped(columns[:, number])))
        return (total / self.land.count).reshape(v.shape)

    def sampled(self, v: Tensor) -> int:
        """A product with the first sequences alone, for its price; how many of them there are."""
        with still(self.land), torch.no_grad():
            few = self.land.take_first(min(self.land.n, self._sequences)).to(self.device)
            self._product(few, self._shaped(v.to(self.device, self.dtype)))
        return few.n

    def _product(self, batch: Samples, way: Parameters) -> Parameters:
        """Σ_i ∇²l_i v, or the Fisher matrix's, over a batch."""
        body, head = self._halves

        def inner(point: Parameters) -> Tensor:
            return body(self._state(point), batch)

        hidden, moved = jvp(inner, (self._point,), (way,))
        slope, turned, mine = self._through_head(head, hidden, moved, batch.target, way)

        def left(point: Parameters) -> Tensor:
            """⟨turned, h(w)⟩ + ⟨slope, J(w) v⟩, whose gradient is what the head leaves to this part."""
            hidden, back = vjp(inner, point)
            total = (turned * hidden).sum()
            if self.name == "fisher":
                return total
            (pulled,) = back(slope)
            return total + sum((pulled[name] * way[name]).sum() for name in way)

        through = grad(left)(self._point)
        return {name: through[name] + mine[name] for name in self._point}

    def _through_head(
        self, head: Head, hidden: Tensor, moved: Tensor, target: Tensor, way: Parameters
    ) -> tuple[Tensor, Tensor, Parameters]:
        """Gradient of the losses in what the last layer reads, its change along v, and the change of the layer's own
        gradient; of the Fisher matrix, the change by the losses' curvature in the scores alone."""
        rows, along, labels = hidden.flatten(0, 1), moved.flatten(0, 1), target.flatten()
        slope, turned = torch.zeros_like(rows), torch.zeros_like(rows)
        mine = {name: torch.zeros_like(tensor) for name, tensor in self._point.items()}
        width = head(self._state(self._point), rows[:1]).shape[-1]
        size = max(1, self._memory // (_COPIES * width * rows.element_size()))
        for start in range(0, len(rows), size):
            piece = slice(start, start + size)
            at, to, wanted = rows[piece], along[piece], labels[piece]
            if not bool((wanted != IGNORED_LABEL).any()):
                continue

            def scores(point: Parameters, read: Tensor) -> Tensor:
                return head(self._state(point), read)

            if self.name == "fisher":
                values, back = vjp(scores, self._point, at)
                _, change = jvp(scores, (self._point, at), (way, to))
                own, turned[piece] = back(_curved(values, change, wanted))
            else:

                def losses(point: Parameters, read: Tensor, wanted: Tensor = wanted) -> Tensor:
                    return functional.cross_entropy(
                        scores(point, read), wanted, ignore_index=IGNORED_LABEL, reduction="sum"
                    )

                (_, slope[piece]), (own, turned[piece]) = jvp(
                    grad(losses, argnums=(0, 1)), (self._point, at), (way, to)
                )
            for name in mine:
                mine[name] += own[name]
        return slope.view_as(hidden), turned.view_as(hidden), mine

    def _state(self, point: Parameters) -> Parameters:
        """All parameters of the module, by the names that it has for them."""
        return whole({**self.land.held(), **point}, self.land.slices)

    def _flat(self, parameters: Parameters) -> Tensor:
        return torch.cat([parameters[name].reshape(-1) for name in self._point])

    def _shaped(self, vector: Tensor) -> Parameters:
        pieces = vector.split([tensor.numel() for tensor in self._point.values()])
        return {name: piece.view_as(self._point[name]) for name, piece in zip(self._point, pieces, strict=True)}


Body = Callable[[Parameters, Samples], Tensor]
Head = Callable[[Parameters, Tensor], Tensor]


def still(land: LanguageModel) -> ExitStack:
    """Within it the module is as products need it: without dropout, and with attention that has second derivatives."""
    stack = ExitStack()
    stack.enter_context(land.borrowed())
    if hasattr(land.module, "config"):
        stack.enter_context(plain_forward(land.module))
    stack.enter_context(math_attention())
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, where it loads what forward mode takes
    stack.enter_context(transformable())
    return stack


def _curved(scores: Tensor, change: Tensor, labels: Tensor) -> Tensor:
    """The curvature of −log softmax times a change of the scores: p ∘ (z − pᵀz), 0 where no label counts."""
    p = scores.softmax(-1)
    turned = p * (change - (p * change).sum(-1, keepdim=True))
    return turned * (labels != IGNORED_LABEL)[:, None]


def _halves(land: LanguageModel, state: Parameters) -> tuple[Body, Head]:
    """What comes before the last linear layer, and that layer; all of it and nothing, where the two do not make the
    whole."""
    module: Any = land.module

    def everything(state: Parameters, batch: Samples) -> Tensor:
        return logits(_called(module, state, batch))

    last = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
    trunk = getattr(module, "base_model", None)
    if not isinstance(last, nn.Linear) or not isinstance(trunk, nn.Module) or trunk is module:
        return everything, lambda _, read: read
    path = next(name for name, each in module.named_modules() if each is trunk)
    names = {id(each): name for name, each in module.named_parameters()}
    weight, bias = names[id(last.weight)], None if last.bias is None else names[id(last.bias)]

    def body(state: Parameters, batch: Samples) -> Tensor:
        inside = {name[len(path) + 1 :]: each for name, each in state.items() if name.startswith(f"{path}.")}
        hidden: Tensor = _called(trunk, inside, batch).last_hidden_state
        return hidden

    def head(state: Parameters, read: Tensor) -> Tensor:
        return functional.linear(read, state[weight], None if bias is None else state[bias])

    few = land.take_first(1).to(land.device)
    with still(land), torch.no_grad():
        scores, again = everything(state, few), head(state, body(state, few))
    if scores.shape == again.shape and torch.allclose(scores, again, rtol=_SAME, atol=_SAME):
        return body, head
    return everything, lambda _, read: read


def _called(module: nn.Module, state: Parameters, batch: Samples) -> Any:
    """The module at these parameters."""
    if hasattr(module, "config"):
        return functional_call(module, state, (), {**batch.inputs, "use_cache": False})
    return functional_call(module, state, (batch.inputs["input_ids"],))
