"""Products in true float32, whichever of torch's two sets of switches a program has used."""

import subprocess
import sys

import pytest
import torch

import lacking
from basinscope.curvature.precision import full_precision, rounded_products, rounds

MEASURE = """
import torch
{setting}
import basinscope as bs
from basinscope.curvature.precision import full_precision, rounded_products, rounds

def switches():
    backends = torch.backends
    parts = backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.conv, backends.cudnn.rnn
    return [part.fp32_precision for part in parts]

before = switches()
with full_precision():
    assert switches() == ["ieee"] * 4, switches()
    assert not rounds("cuda")
with rounded_products():
    assert switches()[:2] == ["tf32"] * 2
assert switches() == before
x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
net = torch.nn.Linear(3, 1, bias=False)
torch.nn.init.ones_(net.weight)
land = bs.Landscape(net, "mse", (x, net(x).detach()))
hessian = x.T.double() @ x.double() / 200
assert abs(bs.hessian_trace(land, progress=False).value - hessian.trace()) < 1e-5 * hessian.trace()
found = bs.llc(land, seed=0, progress=False)
stiffness = found.diagnostics["nbeta"] * torch.linalg.eigvalsh(hessian)
exact = 0.5 * float((stiffness / (stiffness + found.diagnostics["gamma"])).sum())
assert found.stderr < 0.02 * exact
assert abs(found.value - exact) < 4 * found.stderr
assert switches() == before
"""


@lacking.PRECISION_SWITCHES.mark
@pytest.mark.parametrize("place", ["", "cuda.matmul.", "cudnn."])
def test_programs_that_use_the_newer_switches(place):
    """Torch refuses to read the older ones then."""
    script = MEASURE.format(setting=f"torch.backends.{place}fp32_precision = 'tf32'")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_older_switches_are_put_back():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert rounds("cpu")
        with full_precision():
            assert not rounds("cpu")
            assert not rounds("cuda")
        with rounded_products():
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
