"""Curvature of language models in place: that of a copy, within memory that no vocabulary fills."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import basinscope as bs
from basinscope.curvature.language import LanguageOperator
from basinscope.curvature.operators import fisher, hessian
from language.families import FAMILIES, LENGTH, VOCABULARY, Lens, gpt2, made, tokens

BUILDERS = {"hessian": lambda land: hessian(land, checked=False), "fisher": fisher}


@pytest.mark.parametrize("matrix", BUILDERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_products_are_those_of_a_copy(family, matrix):
    net, ids = made(family).double(), tokens()
    ids_and_mask = {"input_ids": ids, "attention_mask": (torch.arange(LENGTH) < 6).long().expand(ids.shape)}
    data = ids_and_mask if family == "GPT-2" else ids
    land, copied = bs.LanguageModel(net, data), bs.Landscape.from_pretrained(net, data)
    for part in (None, "layer 1 head 2"):
        ours, theirs = (each.restrict(part) if part else each for each in (land, copied))
        vectors = torch.randn(ours.dimension, 2, dtype=torch.float64)
        product = LanguageOperator(ours, matrix, memory=8 * 8 * VOCABULARY * 5) @ vectors  # five positions at a time
        torch.testing.assert_close(product, BUILDERS[matrix](theirs) @ vectors, rtol=1e-5, atol=1e-5)
    assert all(each.grad is None for each in net.parameters())


def test_modules_that_are_no_two_halves():
    net, ids = Lens().double(), tokens()
    vectors = torch.randn(sum(each.numel() for each in net.parameters()), 1, dtype=torch.float64)
    product = LanguageOperator(bs.LanguageModel(net, ids), "hessian") @ vectors
    copied = bs.Landscape(net, "cross_entropy", (ids[:, :-1], ids[:, 1:]))
    torch.testing.assert_close(product, hessian(copied) @ vectors)


@pytest.mark.parametrize("matrix", BUILDERS)
def test_no_array_of_positions_by_vocabulary(matrix):
    vocabulary, ids = 5000, tokens(8)
    net = gpt2(vocab_size=vocabulary)
    land = bs.LanguageModel(net, ids)

    class Largest(TorchDispatchMode):
        entries = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for each in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(each, torch.Tensor):
                    Largest.entries = max(Largest.entries, each.numel())
            return result

    product = LanguageOperator(land, matrix, memory=8 * 4 * vocabulary * 4)  # four positions at a time
    vector = torch.randn(land.dimension)
    with Largest():
        product @ vector
    assert Largest.entries <= max(land.dimension, 4 * vocabulary)
    assert Largest.entries < 8 * LENGTH * vocabulary / 4


@pytest.mark.slow
def test_trace_spectrum_and_soft_rank():
    net, ids = made("GPT-2").double(), tokens(8)
    land, copied = bs.LanguageModel(net, ids).restrict("layer 1 head 2"), bs.Landscape.from_pretrained(net, ids)
    copied = copied.restrict("layer 1 head 2")
    quiet = {"progress": False}
    trace, exact = (bs.trace(each, rtol=0.1, **quiet) for each in (land, copied))
    assert abs(trace.value - exact.value) < 6 * (trace.stderr**2 + exact.stderr**2) ** 0.5 + 1e-9
    ours, theirs = (bs.spectrum(each, k=3, probes=2, steps=10, **quiet) for each in (land, copied))
    torch.testing.assert_close(ours.largest, theirs.largest, rtol=1e-3, atol=1e-6)
    rank = bs.soft_rank(land, weight_decay=1.0, rtol=0.1, **quiet)
    wanted = bs.soft_rank(copied, weight_decay=1.0, method="exact", **quiet).value
    assert abs(rank.value - wanted) < 6 * rank.stderr + 1e-6
    with pytest.raises(bs.InputError, match="take 'lanczos'"):
        bs.soft_rank(land, weight_decay=1.0, method="kfac")
    with pytest.raises(bs.InputError, match="'hessian' or 'fisher' for a language model in place"):
        bs.trace(land, matrix="covariance")


def test_units_of_curvature():
    net, ids = made("GPT-2"), tokens()
    vector = torch.randn(sum(each.numel() for each in net.parameters()))
    per = [
        LanguageOperator(bs.LanguageModel(net, ids, units=unit), "fisher") @ vector for unit in ("sequence", "token")
    ]
    torch.testing.assert_close(per[0], per[1] * (LENGTH - 1))
