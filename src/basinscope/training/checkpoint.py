"""Checkpoints of training runs, and the state of the random generators that they hold."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..adapters.training_file import load_checkpoint as load_checkpoint
from ..adapters.training_file import save_checkpoint as save_checkpoint


def rng_state(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's own generators, which dropout draws from."""
    state = {"cpu": torch.get_rng_state()}
    return {**state, "cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def set_rng_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Put the generators back to where `rng_state` found them."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
