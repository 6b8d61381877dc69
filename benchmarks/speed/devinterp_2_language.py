"""Worker: milliseconds per chain draw of a small GPT-2 by devinterp 2.x, which was made for such models.

Reads a JSON object (config, sequences, length, chains, draws, batch, device) and prints one with `milliseconds`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from devinterp.slt.llc import llc
from transformers import GPT2Config, GPT2LMHeadModel


def per_token(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Losses of all predicted tokens, (batch, length − 1)."""
    scores = model(input_ids=tokens).logits[:, :-1]
    return torch.nn.functional.cross_entropy(scores.transpose(1, 2), tokens[:, 1:], reduction="none")


def seconds(asked: dict[str, Any], draws: int) -> float:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**asked["config"])).to(asked["device"]).eval()
    tokens = torch.randint(asked["config"]["vocab_size"], (asked["sequences"], asked["length"]))
    data = Dataset.from_dict({"input_ids": tokens.tolist()}).with_format("torch")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        llc(
            model, data, {}, loss_fn=per_token, device=asked["device"], output_path=Path(folder) / "samples.zarr",
            num_chains=asked["chains"], num_draws=draws, num_burnin_steps=0, batch_size=asked["batch"], lr=1e-9,
            localization=1.0, n_beta=10.0, init_seed=0,
        )  # fmt: skip
        return time.perf_counter() - began


if __name__ == "__main__":
    told = json.loads(sys.stdin.read())
    few, many = max(2, told["draws"] // 4), told["draws"]
    short, long = seconds(told, few), seconds(told, many)
    print(json.dumps({"milliseconds": 1e3 * (long - short) / ((many - few) * told["chains"])}))
