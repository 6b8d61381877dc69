"""Attention patterns, prefix matching and the in-context score beside values known by construction."""

import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.measures.attention import attention_patterns
from basinscope.measures.induction import in_context_score, position_losses, prefix_matching, repeated_tokens
from basinscope.zoo import models

WORDS, LENGTH = 11, 16


def tokens(count=6, length=LENGTH + 1):
    return torch.randint(WORDS, (count, length), generator=torch.Generator().manual_seed(0))


def landscape(net, data=None):
    data = tokens() if data is None else data
    return bs.Landscape(net, "cross_entropy", (data[:, :-1], data[:, 1:]))


class Lookup(nn.Module):
    """Looks wherever the token before was the present one, and copies what is there."""

    def __init__(self):
        super().__init__()
        self.heads = 1
        self.project = nn.Linear(2 * WORDS, 6 * WORDS, bias=False)
        self.output = nn.Linear(1, 1)
        with torch.no_grad():
            weight = torch.zeros(6 * WORDS, 2 * WORDS)
            weight[:WORDS, :WORDS] = 400 * torch.eye(WORDS)  # query: the present token
            weight[2 * WORDS : 3 * WORDS, WORDS:] = torch.eye(WORDS)  # key: the token before
            self.project.weight.copy_(weight)

    def forward(self, ids):
        own = nn.functional.one_hot(ids, WORDS).float()
        before = torch.cat([torch.zeros_like(own[:, :1]), own[:, :-1]], 1)
        return 0 * self.project(torch.cat([own, before], -1))[..., :WORDS] + self.output.weight


def test_a_head_that_looks_up_prefixes_scores_one():
    land = landscape(Lookup())
    assert repeated_tokens(land).shape == (16, LENGTH)
    scores = prefix_matching(land, sequences=64)
    assert list(scores) == ["layer 0 head 0"]
    # Where the present token comes more than once among those seen, the head looks at all of their successors.
    assert 0.5 < scores["layer 0 head 0"].value <= 1


def test_heads_that_look_everywhere_alike_score_what_chance_gives():
    net = models.transformer(WORDS, LENGTH, layers=2, width=8, heads=2)
    with torch.no_grad():
        for block in net.blocks:
            block.attention.project.weight.zero_()
            block.attention.project.bias.zero_()
    scores = prefix_matching(landscape(net))
    period = LENGTH // 2
    expected = sum(1 / (t + 1) for t in range(period, 2 * period - 1)) / (period - 1)
    for score in scores.values():
        assert score.value == pytest.approx(expected, rel=1e-5)
        assert score.stderr == pytest.approx(0, abs=1e-6)


def test_patterns_of_known_attentions_agree_with_their_own_weights():
    land = landscape(models.transformer(WORDS, LENGTH, layers=2, width=8, heads=2))
    for pattern in attention_patterns(land, tokens()[:, :-1]):
        assert torch.allclose(pattern.sum(-1), torch.ones(6, 2, LENGTH))
        assert (pattern.triu(1) == 0).all()


def test_patterns_of_multihead_attention():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(WORDS, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.readout = nn.Linear(8, WORDS)

        def forward(self, ids):
            mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
            x = self.embedding(ids)
            return self.readout(self.attention(x, x, x, attn_mask=mask)[0])

    (pattern,) = attention_patterns(landscape(Net()), tokens()[:, :-1])
    assert pattern.shape == (6, 2, LENGTH, LENGTH)
    assert (pattern.triu(1) == 0).all()


def test_patterns_of_saved_models_are_their_own():
    transformers = pytest.importorskip("transformers")
    net = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=8, n_layer=2, n_head=2)
    ).eval()
    data = tokens(length=LENGTH)
    net.set_attn_implementation("eager")
    expected = net(data, output_attentions=True).attentions
    for ours, theirs in zip(attention_patterns(bs.Landscape.from_pretrained(net, data), data), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_network_without_attention_has_no_pattern():
    net = nn.Sequential(nn.Embedding(WORDS, 4), nn.Linear(4, WORDS))
    with pytest.raises(bs.InputError, match="no attention that can be read in Sequential"):
        prefix_matching(landscape(net))


def test_losses_at_positions_add_up_to_those_of_samples():
    land = landscape(models.transformer(WORDS, LENGTH, layers=1, width=8, heads=2))
    assert torch.allclose(position_losses(land).sum(1), land.per_sample(), rtol=1e-5)
    x = torch.randn(7, 9, 3, generator=torch.Generator().manual_seed(0))
    squares = bs.Landscape(nn.Linear(3, 2), "mse", (x, x[..., :2]))
    assert torch.allclose(position_losses(squares).sum(1), squares.per_sample(), rtol=1e-5)


def test_the_in_context_score_is_late_less_early():
    class Falling(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * x

    target = torch.zeros(5, 32)
    x = torch.linspace(3, 1, 32).expand(5, 32)  # the error falls from 3 to 1
    score = in_context_score(bs.Landscape(Falling(), "mse", (x.clone(), target)))
    early, late = (x[0, 2:4] ** 2 / 2).mean(), (x[0, -2:] ** 2 / 2).mean()
    assert score.value == pytest.approx(float(late - early))
    assert score.stderr == pytest.approx(0, abs=1e-7)


def test_what_is_refused():
    short = torch.randint(WORDS, (4, 6), generator=torch.Generator().manual_seed(0))
    land = landscape(models.transformer(WORDS, LENGTH, layers=1, width=8, heads=2), short)
    with pytest.raises(bs.InputError, match="sequences of at least 8 positions, got 5"):
        in_context_score(land)
    with pytest.raises(bs.InputError, match="a loss at every position"):
        in_context_score(bs.Landscape(nn.Linear(2, 3), "cross_entropy", (torch.ones(4, 2), torch.arange(4) % 3)))
    assert math.isfinite(prefix_matching(land)["layer 0 head 0"].value)
