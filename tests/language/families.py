"""Tiny random language models of the families that people use."""

import torch
from torch import nn

import lacking

transformers = lacking.package("transformers")

VOCABULARY, LENGTH, LAYERS = 16, 8, 2
_SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": LAYERS, "intermediate_size": 16,
    "max_position_embeddings": LENGTH, "bos_token_id": 0, "eos_token_id": 0, "num_attention_heads": 4,
}  # fmt: skip


def gpt2(**changes):
    shape = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 8, "n_layer": LAYERS, "n_head": 4}
    config = transformers.GPT2Config(**{**shape, "bos_token_id": 0, "eos_token_id": 0, **changes})
    return transformers.GPT2LMHeadModel(config)


def gpt_neox():
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**_SHAPE))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **_SHAPE))


def qwen2():
    config = transformers.Qwen2Config(num_key_value_heads=2, tie_word_embeddings=True, **_SHAPE)
    return transformers.Qwen2ForCausalLM(config)


def qwen3():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(num_key_value_heads=2, head_dim=4, **_SHAPE))


def gpt_neo():
    config = transformers.GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=8, num_layers=LAYERS, num_heads=4, attention_types=[[["global"], LAYERS]],
        max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPTNeoForCausalLM(config)


FAMILIES = {
    "GPT-2": gpt2, "GPT-NeoX": gpt_neox, "Llama": llama, "Qwen2": qwen2, "Qwen3": qwen3, "GPT-Neo": gpt_neo,
}  # fmt: skip
OUTPUTS = {  # the layer that takes the heads' outputs, side by side
    "GPT-2": "c_proj", "GPT-NeoX": "dense", "Llama": "o_proj", "Qwen2": "o_proj", "Qwen3": "o_proj",
    "GPT-Neo": "out_proj",
}  # fmt: skip


def made(family):
    """A model of that family with weights large enough for every part to matter."""
    torch.manual_seed(0)
    net = FAMILIES[family]().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def tokens(count=6, length=LENGTH, seed=0):
    return torch.randint(VOCABULARY, (count, length), generator=torch.Generator().manual_seed(seed))


class LensAttention(nn.Module):
    """Attention with weights as TransformerLens keeps them: heads are the first axis."""

    def __init__(self, width, heads):
        super().__init__()
        size = width // heads
        for name in ("W_Q", "W_K", "W_V"):
            setattr(self, name, nn.Parameter(0.3 * torch.randn(heads, width, size)))
            setattr(self, name.replace("W", "b"), nn.Parameter(torch.zeros(heads, size)))
        self.W_O = nn.Parameter(0.3 * torch.randn(heads, size, width))
        self.b_O = nn.Parameter(torch.zeros(width))

    def forward(self, stream):
        query, key, value = (
            torch.einsum("btw,hws->bhts", stream, getattr(self, f"W_{n}")) + getattr(self, f"b_{n}")[:, None]
            for n in "QKV"
        )
        later = torch.ones(stream.shape[1], stream.shape[1], dtype=torch.bool).triu(1)
        scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
        return torch.einsum("bhts,hsw->btw", scores.softmax(-1) @ value, self.W_O) + self.b_O


class Embed(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.W_E = nn.Parameter(torch.randn(rows, width))

    def forward(self, numbers):
        return self.W_E[numbers]


class PosEmbed(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.W_pos = nn.Parameter(0.1 * torch.randn(rows, width))

    def forward(self, numbers):
        return self.W_pos[: numbers.shape[1]]


class Unembed(nn.Module):
    def __init__(self, width, rows):
        super().__init__()
        self.W_U = nn.Parameter(0.3 * torch.randn(width, rows))
        self.b_U = nn.Parameter(torch.zeros(rows))

    def forward(self, stream):
        return stream @ self.W_U + self.b_U


class LensBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = LensAttention(width, heads)

    def forward(self, stream):
        return stream + self.attn(stream)


class Lens(nn.Module):
    """An attention-only transformer with the names of TransformerLens."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.embed, self.pos_embed = Embed(VOCABULARY, width), PosEmbed(LENGTH, width)
        self.blocks = nn.ModuleList(LensBlock(width, heads) for _ in range(LAYERS))
        self.unembed = Unembed(width, VOCABULARY)

    def forward(self, numbers):
        stream = self.embed(numbers) + self.pos_embed(numbers)
        for block in self.blocks:
            stream = block(stream)
        return self.unembed(stream)
