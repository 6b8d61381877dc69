"""Products in true float32, whichever of torch's two sets of switches a program has used."""

import json
import subprocess
import sys

import pytest
import torch

import lacking
from basinscope.curvature.precision import full_precision, rounded_products, rounds
from chance import assert_within

MEASURE = """
import json, sys, torch
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
assert abs(bs.trace(land, progress=False).value - hessian.trace()) < 1e-5 * hessian.trace()
estimate = bs.llc(land, seed=int(sys.argv[1]), progress=False)
stiffness = estimate.diagnostics["nbeta"] * torch.linalg.eigvalsh(hessian)
exact = 0.5 * float((stiffness / (stiffness + estimate.diagnostics["gamma"])).sum())
assert switches() == before
print(json.dumps([estimate.value, exact, estimate.stderr, estimate.freedom]))
"""


@pytest.mark.slow
@lacking.PRECISION_SWITCHES.mark
@pytest.mark.parametrize(
    "place", ["", *(pytest.param(place, marks=pytest.mark.slow) for place in ("cuda.matmul.", "cudnn."))]
)
def test_programs_that_use_the_newer_switches(place, seed):
    """Torch refuses to read the older ones then."""
    script = MEASURE.format(setting=f"torch.backends.{place}fp32_precision = 'tf32'")
    done = subprocess.run([sys.executable, "-c", script, str(seed)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    value, exact, stderr, freedom = json.loads(done.stdout)
    assert stderr < 0.05 * exact
    assert_within(value, exact, stderr, freedom)


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
