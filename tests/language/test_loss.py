"""The loss of sequences: in pieces, and by one compiled kernel."""

import functools

import pytest
import torch

from basinscope.language import loss


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # asked for by the compiler, which ignores it, too
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_compiled_loss_is_the_loss(dtype, monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))  # needs no compiler
    monkeypatch.setattr(loss, "_compiled", loss._compiled.__wrapped__)
    monkeypatch.setattr(loss, "PIECE", 64)  # pieces of one position
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 5, 37, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(37, (3, 5), generator=generator)
    target[0, 1] = -100
    plain, fused = loss.token_losses(scores, target), loss.token_losses(scores, target, compiled=True)
    assert torch.allclose(fused, plain, rtol=1e-5)
    assert float(fused[0, 1].detach()) == 0
    ours, theirs = (torch.autograd.grad(each.sum(), scores)[0] for each in (fused, plain))
    assert torch.allclose(ours, theirs, rtol=1e-2 if dtype is torch.bfloat16 else 1e-4, atol=1e-6)
