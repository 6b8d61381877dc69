"""What a language model makes of its context: the in-context score, and the prefix matching of its heads."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ..checks import whole
from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape, math_attention
from ..losses import logits
from .attention import attention_patterns
from .tokens import token_losses

_FEWEST = 8  # positions of a sequence with which early and late can be told apart


def position_losses(land: Landscape) -> Tensor:
    """The loss at every position of every sequence at w*, (n, T): −log p of a token, or half a squared error."""
    target = land.samples.target
    if land.loss.family == "categorical" and isinstance(target, Tensor) and target.ndim == 2:
        with torch.no_grad():
            return token_losses(land)(land.parameters).double()
    if land.loss.family != "gaussian" or not isinstance(target, Tensor) or target.ndim < 2:
        raise InputError(
            f"an in-context score needs a loss at every position: expected loss='cross_entropy' with labels (n, T), or "
            f"'mse' with targets (n, T), got {land.loss.name}"
        )
    rows = []
    with torch.no_grad(), math_attention():
        for batch in land.batches(256):
            missed = logits(land.outputs(land.parameters, batch.inputs)).reshape(batch.target.shape) - batch.target
            rows.append(missed.double().square().flatten(2).sum(2) / 2 if missed.ndim > 2 else missed.double() ** 2 / 2)
    return torch.cat(rows)


def in_context_score(land: Landscape) -> Estimate:
    """Mean loss late in a sequence less that early in it: below zero where a model makes use of its context.

    Olsson et al. 2022 (https://arxiv.org/abs/2209.11895) take the loss of the 500th token less that of the 50th of
    512. Here late is the last sixteenth of the positions and early is the sixteenth around a tenth of them, at least
    one position each. The standard error is that over sequences.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = bs.zoo.models.transformer(8, 16, layers=1, width=4, heads=2)
        >>> data = torch.randint(8, (10, 17), generator=torch.Generator().manual_seed(0))
        >>> score = in_context_score(bs.Landscape(net, "cross_entropy", (data[:, :-1], data[:, 1:])))
        >>> abs(score.value) < 5 * score.stderr
        True
    """
    losses = position_losses(land)
    length = losses.shape[1]
    if length < _FEWEST:
        raise InputError(f"an in-context score needs sequences of at least {_FEWEST} positions, got {length}")
    width = max(1, length // 16)
    first = max(0, length // 10 - width // 2)
    apart = losses[:, -width:].mean(1) - losses[:, first : first + width].mean(1)
    return _mean("in_context_score", apart)


def repeated_tokens(land: Landscape, sequences: int = 16, seed: int = 0) -> Tensor:
    """Sequences of random tokens, each followed by itself: only a head that matches prefixes can tell what comes.

    Tokens are drawn from those of the data, and a sequence is as long as those of the data, or one token shorter.
    """
    inputs = land.samples.inputs
    tokens = inputs["input_ids"] if isinstance(inputs, Mapping) else inputs
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.ndim != 2 or tokens.shape[1] < 4:
        raise InputError("prefix matching needs token numbers (n, T) with T of at least 4")
    known = tokens.unique().cpu()
    generator = torch.Generator().manual_seed(seed)
    drawn = known[torch.randint(len(known), (whole("sequences", sequences, 2), tokens.shape[1] // 2),
                                generator=generator)]  # fmt: skip
    return torch.cat([drawn, drawn], 1).to(land.device)


def prefix_matching(land: Landscape, sequences: int = 16, seed: int = 0) -> dict[str, Estimate]:
    """How much each head looks at the token after the previous occurrence of the present one, by the head's name.

    On random tokens that are repeated once, the mean over the second time of the attention that position t pays to
    t − p + 1, with p the period: 1 for a perfect induction head (Olsson et al. 2022). A head that looks everywhere
    alike has about ln 2/p. The standard error is that over sequences.

    Args:
        land: of a transformer whose inputs are tokens.
        sequences: number of random ones.
        seed: of these.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = bs.zoo.models.transformer(8, 16, layers=1, width=4, heads=2)
        >>> data = torch.randint(8, (10, 17), generator=torch.Generator().manual_seed(0))
        >>> scores = prefix_matching(bs.Landscape(net, "cross_entropy", (data[:, :-1], data[:, 1:])))
        >>> list(scores), scores["layer 0 head 1"].value < 0.3
        (['layer 0 head 0', 'layer 0 head 1'], True)
    """
    tokens = repeated_tokens(land, sequences, seed)
    period = tokens.shape[1] // 2
    queries = torch.arange(period, 2 * period - 1, device=tokens.device)
    scores = {}
    for layer, pattern in enumerate(attention_patterns(land, tokens)):
        looked = pattern[:, :, queries, queries - period + 1].double().mean(-1)
        for head in range(looked.shape[1]):
            name = f"layer {layer} head {head}"
            scores[name] = _mean(f"prefix_matching of {name}", looked[:, head])
    return scores


def _mean(name: str, values: Tensor) -> Estimate:
    """The mean over sequences with its standard error."""
    count = len(values)
    stderr = float(values.std()) / math.sqrt(count) if count > 1 else math.nan
    return Estimate(name, float(values.mean()), stderr, freedom=max(1, count - 1))
