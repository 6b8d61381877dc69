"""Hostile models: those that are refused, and those whose curvature must be that of a dense reference."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import basinscope as bs
from hostile.networks import (
    IMAGES,
    TOKENS,
    WAVES,
    WORDS,
    Attending,
    Embedded,
    Ends,
    Net,
    R,
    Recurrent,
    Square,
    X,
    Y,
    added_to,
    agrees,
    convolution,
    counted,
    grows,
    half_normed,
    land,
    parametrized,
    standardized,
    table,
    unseen_norm,
    with_hook,
    with_parameter,
    without_gradient,
    written,
)  # fmt: skip
from hostile.outcomes import CLEAR, RIGHT, Case, refused, works

_REFUSED: list[Case] = [
    refused("no parameters", lambda _: land(nn.Flatten()), "no trainable parameters"),
    refused("a function instead of a module", lambda _: land(lambda x: x), "nn.Module"),
    refused("a class instead of an instance", lambda _: land(nn.Linear), "nn.Module"),
    refused("every parameter frozen", lambda _: land(nn.Linear(4, 3).requires_grad_(False)), "requires_grad"),
    refused("integer parameter", lambda _: land(with_parameter("k", torch.ones(3, dtype=torch.int64), False)), "int64"),
    refused("complex parameter", lambda _: land(with_parameter("k", torch.ones(3, dtype=torch.complex64))), "complex"),
    refused("bfloat16 weights", lambda _: land(nn.Linear(4, 3).bfloat16()), "float32 or float64"),
    refused("half-precision weights", lambda _: land(nn.Linear(4, 3).half()), "float32 or float64"),
    refused("two precisions", lambda _: land(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3).double())), "one dtype"),
    refused("a NaN weight", lambda _: land(written(float("nan"))), "NaN"),
    refused("an infinite weight", lambda _: land(written(float("inf"))), "infinite"),
    refused("weights so large that the loss overflows", lambda _: land(written(1e38)), "infinite"),
    refused("lazy layer that has seen no data", lambda _: land(nn.Sequential(nn.LazyLinear(3))), "forward pass"),
    refused("meta device", lambda _: land(nn.Linear(4, 3, device="meta")), "meta"),
    refused("dropout that is always on", lambda _: land(Net(lambda n, h: functional.dropout(h, 0.5))), "fixed"),
    refused(
        "BatchNorm in training mode", lambda _: land(Net(lambda n, h: n.norm(h), norm=nn.BatchNorm1d(5))), "eval()"
    ),
    refused("functional batch norm", lambda _: land(Net(unseen_norm)), "others of its batch"),
    refused("batch standardized by hand", lambda _: land(Net(standardized)), "others of its batch"),
    refused("batch centred", lambda _: land(Net(lambda n, h: h - h.mean(0))), "others of its batch"),
    refused("softmax over the batch", lambda _: land(Net(lambda n, h: h.softmax(0))), "others of its batch"),
    refused("samples shifted", lambda _: land(Net(lambda n, h: h.roll(1, 0))), "others of its batch"),
    refused("sorted over the batch", lambda _: land(Net(lambda n, h: h.sort(0)[0])), "others of its batch"),
    refused("attention over the batch", lambda _: land(Net(lambda n, h: (h @ h.T).softmax(1) @ h)), "its batch"),
    refused("LSTM that takes samples for time", lambda _: land(Recurrent(nn.LSTM), data=(WAVES, R)), "batch_first"),
    refused("random numbers by torch", lambda _: land(Ends(lambda n, y, x: y + torch.randn_like(y))), "fixed"),
    refused("random numbers by NumPy", lambda _: land(Ends(lambda n, y, x: y + np.random.rand())), "fixed"),  # noqa: NPY002
    refused("random only in large batches", lambda _: land(Net(lambda n, h: functional.dropout(h, 0.5, len(h) > 8)))),
    refused("output that drifts from call to call", lambda _: land(Ends(grows)), "call to call"),
    refused("buffer that counts calls", lambda _: land(Ends(counted, calls=torch.zeros(1))), "fixed"),
    refused("input changed in place", lambda _: land(Ends(added_to)), "in place"),
    refused("returns nothing", lambda _: land(Ends(lambda n, y, x: None)), "NoneType"),
    refused("returns a tuple to a named loss", lambda _: land(Ends(lambda n, y, x: (y, x))), "tuple"),
    refused(
        "returns a list to cross-entropy", lambda _: land(Ends(lambda n, y, x: [y]), "cross_entropy", (X, Y)), "list"
    ),
    refused("returns a dict to a named loss", lambda _: land(Ends(lambda n, y, x: {"scores": y})), "dict"),
    refused("returns an object without logits", lambda _: land(Ends(lambda n, y, x: types.SimpleNamespace(a=y)))),
    refused("returns text", lambda _: land(Ends(lambda n, y, x: "y")), "str"),
    refused("returns complex numbers", lambda _: land(Ends(lambda n, y, x: torch.complex(y, y))), "complex"),
    refused("raises", lambda _: land(Ends(lambda n, y, x: 1 / 0)), "ZeroDivisionError"),
    refused("needs more inputs than there are", lambda _: land(nn.Bilinear(4, 4, 3)), "forward"),
    refused("wider than the inputs", lambda _: land(nn.Linear(7, 3)), "shapes"),
    refused("output detached", lambda _: land(Ends(lambda n, y, x: y.detach())), "detach"),
    refused("argmax as output", lambda _: land(Ends(lambda n, y, x: y.argmax(1, keepdim=True).expand(-1, 3) + 0.0))),
    refused("a root of zero", lambda _: land(Net(lambda n, h: (h - h).abs().sqrt())), "gradient"),
    refused("compiled ahead by torch.jit.script", lambda _: land(torch.jit.script(nn.Linear(4, 3))), "jit"),
    refused("compiled ahead by torch.jit.trace", lambda _: land(torch.jit.trace(nn.Linear(4, 3), X)), "jit"),
    refused("quantized", lambda _: land(torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3))))),
    refused("embedding that rescales its rows", lambda _: land(table(max_norm=0.5), data=(TOKENS, R)), "max_norm"),
    refused("pickles itself badly", lambda _: land(Ends(lambda n, y, x: y, lock=threading.Lock())), "copied"),
]


def must_agree(
    name: str,
    make: Callable[[], nn.Module],
    inputs: torch.Tensor = X,
    *,
    fixed: bool = False,
    like: Callable[[], nn.Module] | None = None,
) -> Case:
    return works(f"curvature: {name}", agrees(make, inputs, fixed, like))


def agrees_or_refused(name: str, make: Callable[[], nn.Module], like: Callable[[], nn.Module] | None = None) -> Case:
    """Functions without second derivatives, or beyond vmap: the right number, or one sentence."""
    case = works(f"curvature: {name}", agrees(make, same_as=like))
    return Case(case.name, case.attempt, (RIGHT, CLEAR), case.judge)


def tanh() -> nn.Module:
    return Net(lambda n, h: h.tanh())


_CURVATURE: list[Case] = [
    must_agree("tanh", tanh),
    must_agree("ReLU in place", lambda: Net(lambda n, h: h.relu_())),
    must_agree("a layer used twice", lambda: Net(lambda n, h: n.again(n.again(h).relu()).relu(), again=nn.Linear(5, 5))),
    must_agree("a forward hook that squares", with_hook),
    must_agree("weight_norm", half_normed),
    must_agree("old weight_norm", lambda: half_normed(old=True)),
    must_agree("weight_norm over all axes", lambda: half_normed(dim=None)),
    must_agree("spectral_norm", lambda: parametrized(parametrizations.spectral_norm)),
    must_agree("orthogonal parametrization", lambda: parametrized(parametrizations.orthogonal)),
    must_agree("an inner part detached", lambda: Net(lambda n, h: h * h.detach()), fixed=True),
    must_agree("an inner part under no_grad", lambda: Net(without_gradient), fixed=True),
    agrees_or_refused("own autograd.Function", lambda: Net(lambda n, h: Square.apply(h))),
    agrees_or_refused("activation checkpointing", lambda: Net(lambda n, h: checkpoint(torch.tanh, h, use_reentrant=False))),
    agrees_or_refused("reentrant checkpointing", lambda: Net(lambda n, h: checkpoint(torch.tanh, h, use_reentrant=True)), tanh),
    must_agree("PReLU", lambda: Net(lambda n, h: n.act(h), act=nn.PReLU())),
    must_agree("PReLU with a weight per unit", lambda: Net(lambda n, h: n.act(h), act=nn.PReLU(5))),
    must_agree("LayerNorm", lambda: Net(lambda n, h: n.norm(h).tanh(), norm=nn.LayerNorm(5))),
    must_agree("RMSNorm", lambda: Net(lambda n, h: n.norm(h).tanh(), norm=nn.RMSNorm(5))),
    must_agree("BatchNorm in evaluation mode", lambda: Net(lambda n, h: n.norm(h).tanh(), norm=nn.BatchNorm1d(5)).eval()),
    must_agree("dropout in training mode", lambda: Net(lambda n, h: n.drop(h), drop=nn.Dropout(0.5))),
    must_agree("a weight used in a layer and elsewhere", lambda: Net(lambda n, h: h.relu() + n.inner.weight.sum())),
    must_agree("tied and transposed", lambda: Net(lambda n, h: functional.linear(h @ n.inner.weight, n.inner.weight).relu())),
    must_agree("a complex intermediate", lambda: Net(lambda n, h: torch.fft.fft(h).abs())),
    must_agree("all units dead", lambda: Net(lambda n, h: (h - 100).relu())),
    must_agree("a branch that few samples take", lambda: Net(lambda n, h: torch.where(h[:, :1] > 1, h**2, h.relu()))),
    must_agree("the largest entry alone", lambda: Net(lambda n, h: h * (h == h.amax(1, keepdim=True)))),
    must_agree("distances by cdist", lambda: Net(lambda n, h: torch.cdist(h, n.p.weight), p=nn.Linear(5, 5))),
    must_agree("sorted units", lambda: Net(lambda n, h: h.sort(1)[0])),
    must_agree("determinants", lambda: Net(lambda n, h: h * torch.linalg.det(n.inner.weight[:4]))),
    must_agree("matrix_exp", lambda: Net(lambda n, h: h[:, :4] @ torch.linalg.matrix_exp(n.inner.weight[:4] / 9) @ n.inner.weight[:4, :1].expand(4, 5))),
    must_agree("Embedding", table, TOKENS),
    must_agree("Embedding with padding_idx", lambda: table(padding_idx=0), TOKENS),
    must_agree("sparse Embedding", lambda: table(sparse=True), TOKENS, like=table),
    must_agree("gradients scaled by frequency", lambda: table(scale_grad_by_freq=True), TOKENS, like=table),
    must_agree("EmbeddingBag", lambda: Embedded(nn.EmbeddingBag(6, 3, mode="mean"), bag=True), TOKENS),
    must_agree("EmbeddingBag with padding", lambda: Embedded(nn.EmbeddingBag(6, 3, padding_idx=0), bag=True), TOKENS),
    must_agree("EmbeddingBag, the largest", lambda: Embedded(nn.EmbeddingBag(6, 3, mode="max"), bag=True), TOKENS),
    must_agree("RNN", lambda: Recurrent(nn.RNN, batch_first=True), WAVES),
    must_agree("LSTM", lambda: Recurrent(nn.LSTM, batch_first=True), WAVES),
    must_agree("GRU", lambda: Recurrent(nn.GRU, batch_first=True), WAVES),
    must_agree("MultiheadAttention", lambda: Attending(nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.3)), WORDS),
    must_agree("TransformerEncoderLayer", lambda: Attending(nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)), WORDS),
    must_agree("circular grouped convolution", lambda: convolution(nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular", groups=2)), IMAGES),
    must_agree("dilated convolution with an even kernel", lambda: convolution(nn.Conv2d(2, 4, 2, padding="same", dilation=2)), IMAGES),
    must_agree("transposed convolution", lambda: convolution(nn.ConvTranspose2d(2, 4, 2, stride=2)), IMAGES),
    must_agree("DataParallel", lambda: nn.DataParallel(tanh())),
    agrees_or_refused("torch.compile", lambda: torch.compile(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), backend="eager")),
    must_agree("a graph module", lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))),
    agrees_or_refused("a layer without units", lambda: nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 3))),
]  # fmt: skip


def untouched(_: Path) -> bool:
    """A model that writes into its inputs must not reach the data of who measures it."""
    x = X.clone()
    with contextlib.suppress(bs.InputError):
        land(Ends(added_to), data=(x, R))
    return torch.equal(x, X)


CASES = [works("the data of a model that writes into them", untouched), *_REFUSED, *_CURVATURE]
