"""Machines that do not fit: weights, buffers and data on several devices or without values, and too little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import basinscope as bs
from hostile.networks import R, X, land
from hostile.outcomes import refused

GPU = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1.00 GiB of which 512.00 MiB is free."
CPU = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000000 bytes. Error code 12"
IDS = torch.randint(8, (20, 6), generator=torch.Generator().manual_seed(0))
FEW = {"budget": bs.Nominal(1), "draws": 16, "progress": False}


class Greedy(nn.Module):
    """Asks for more than there is as soon as it is given more than `most` samples."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.linear, self.error, self.limit = nn.Linear(4, 3), error, [10**9]

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.limit[0]:
            raise self.error
        return self.linear(x)


def greedy(error: BaseException, most: int = 0) -> bs.Landscape:
    """A landscape that could still be made, and whose network then gets no memory for more than `most` samples."""
    network = Greedy(error)
    made = land(network)
    made._skeleton.limit[0] = most
    return made


def partly(part: str) -> nn.Module:
    """Two layers; of the second a part is on the meta device."""
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3, device="meta" if part == "frozen" else None))
    network[1].requires_grad_(part != "frozen")
    if part == "buffer":
        network[1].register_buffer("mask", torch.ones(3, device="meta"))
    return network


def language(part: str) -> bs.LanguageModel:
    """A transformer, of which the last layer or the data are on the meta device."""
    network = bs.zoo.models.transformer(8, 6, layers=1, width=4, heads=2)
    if part != "data":
        list(network.children())[-1].to("meta").requires_grad_(part != "frozen")
    return bs.LanguageModel(network, IDS.to("meta") if part == "data" else IDS)


def meant(weights: bs.Landscape) -> bs.Landscape:
    return weights.at({name: tensor.to("meta") for name, tensor in weights.parameters.items()})


def short(name: str, measure: Callable[[bs.Landscape], Any]) -> list[Any]:
    """A measure on a GPU that lacks 1.6 GB, and on a processor that lacks more than there is."""
    return [
        refused(
            f"{name} with too little memory of a GPU",
            lambda _: measure(greedy(torch.OutOfMemoryError(GPU))),
            "1.6 GB are missing",
        ),
        refused(f"{name} with too little memory", lambda _: measure(greedy(RuntimeError(CPU))), "are missing"),
    ]


CASES = [
    refused(
        "a frozen layer on the meta device",
        lambda _: land(partly("frozen")),
        "'1.weight' of the model is on the meta device",
    ),
    refused(
        "a buffer on the meta device", lambda _: land(partly("buffer")), "'1.mask' of the model is on the meta device"
    ),
    refused("weights on the meta device", lambda _: meant(land(nn.Linear(4, 3))), "without values"),
    refused(
        "inputs and targets on two devices",
        lambda _: land(nn.Linear(4, 3), data=(X, R.to("meta"))),
        "different devices",
    ),
    refused(
        "held-out data on another device",
        lambda _: bs.gap(land(nn.Linear(4, 3)), weight_decay=0.1, held_out=(X.to("meta"), R.to("meta"))),
        "different devices",
    ),
    refused(
        "a loss on another device",
        lambda _: land(nn.Linear(4, 3), lambda output, target: (output - target).square().sum(1).to("meta")),
        "cannot be called",
    ),
    refused("a language model on two devices", lambda _: language("free"), "different devices"),
    refused("a language model with a frozen layer on the meta device", lambda _: language("frozen"), "without values"),
    refused("tokens on the meta device", lambda _: language("data"), "the data are on the meta device"),
    refused(
        "no memory for the first samples", lambda _: land(_full(torch.OutOfMemoryError(GPU))), "1.6 GB are missing"
    ),
    refused(
        "Python without memory", lambda _: bs.trace(greedy(MemoryError()), progress=False), "memory does not suffice"
    ),
    refused(
        "NumPy without memory",
        lambda _: bs.trace(greedy(MemoryError("Unable to allocate 900. TiB for an array")), progress=False),
        "are missing",
    ),
    *short("llc", lambda at: bs.llc(at, **FEW)),
    *short("llc on minibatches", lambda at: bs.llc(at, sampler="minibatch", batch_size=5, **FEW)),
    *short("trace", lambda at: bs.trace(at, progress=False)),
    *short("spectrum", lambda at: bs.spectrum(at, progress=False)),
    *short("soft_rank", lambda at: bs.soft_rank(at, weight_decay=0.1, progress=False)),
    *short("log_det", lambda at: bs.log_det(at, weight_decay=0.1, progress=False)),
    *short("operator_norm", lambda at: bs.operator_norm(at, progress=False)),
    *short("gap", lambda at: bs.gap(at, weight_decay=0.1, progress=False)),
    *short("tic", lambda at: bs.tic(at, weight_decay=0.1, progress=False)),
    *short("waic", lambda at: bs.waic(at, **FEW)),
    *short("quick", lambda at: bs.quick(at, progress=False)),
    *short("measure", lambda at: bs.measure(at, budget=bs.Nominal(1), progress=False)),
    refused(
        "one sample at a time with too little memory",
        lambda _: bs.llc(greedy(torch.OutOfMemoryError(GPU)), sampler="lean", batch_size=5, **FEW),
        "one sample at a time does not fit into memory: 2.1 GB were asked for and 0.54 GB are free, so that 1.6 GB are missing",
    ),
]


def _full(error: BaseException) -> nn.Module:
    network = Greedy(error)
    network.limit[0] = 0
    return network
