"""The shapes of language models that are timed, with random weights."""

from __future__ import annotations

from typing import Any

import torch

_SPECIAL = {"bos_token_id": 0, "eos_token_id": 0}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny": ("GPT2", {"vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}),
    "gpt2": ("GPT2", {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}),
    "pythia-1.4b": (
        "GPTNeoX", {
            "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
            "num_attention_heads": 16, "max_position_embeddings": 2048,
        },
    ),
    "pythia-6.9b": (
        "GPTNeoX", {
            "vocab_size": 50432, "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32,
            "num_attention_heads": 32, "max_position_embeddings": 2048,
        },
    ),
}  # fmt: skip


def language_model(shape: str, device: torch.device, **changes: Any) -> Any:
    """A model of that shape with random weights in float32, without dropout."""
    import transformers

    family, sizes = SHAPES[shape]
    config = getattr(transformers, f"{family}Config")(**{**sizes, **_SPECIAL, **changes})
    with torch.device(device):
        torch.manual_seed(0)
        model = getattr(transformers, f"{family}{'LMHeadModel' if family == 'GPT2' else 'ForCausalLM'}")(config)
    return model.eval()


def trained(model: Any, tokens: torch.Tensor, seconds: float, *, batch: int = 16, length: int = 64, lr: float = 1e-3,
            autocast: torch.dtype | None = None, clock: Any = None) -> float:  # fmt: skip
    """Train on random pieces of a stream of tokens for so many seconds; the mean loss per token of the last steps."""
    import time

    clock = clock or time.monotonic
    device = next(model.parameters()).device
    step = torch.compile(model) if device.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    until, seen = clock() + seconds, []
    while clock() < until:
        starts = torch.randint(len(tokens) - length, (batch,), generator=generator)
        ids = torch.stack([tokens[start : start + length] for start in starts.tolist()]).to(device)
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            loss = step(input_ids=ids, labels=ids).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen.append(loss.detach())
    return float(torch.stack(seen[-20:]).mean())
