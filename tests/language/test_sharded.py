"""A network that FSDP2 spreads over two processes: no landscape copies it, and the lean walk goes on it where it is."""

import os

import pytest
import torch
import torch.multiprocessing as mp

import basinscope as bs
from basinscope.measures.lean import usual_gamma

distributed = pytest.importorskip("torch.distributed")


def _walked(net, **options):
    """λ̂ by the lean walk, what is seen on the way, and whether this process's weights are as they were."""
    tokens = torch.randint(8, (64, 6), generator=torch.Generator().manual_seed(1))
    land = bs.LanguageModel(net, tokens, **options)
    before = [getattr(each, "_local_tensor", each).detach().clone() for each in net.parameters()]
    est = bs.llc(
        land, nbeta=100.0, gamma=20.0, batch_size=32, chains=6, draws=120, seed=0, budget=bs.Nominal(5), progress=False
    )
    after = [getattr(each, "_local_tensor", each).detach() for each in net.parameters()]
    diagnostics = {key: est.diagnostics[key] for key in ("virial", "gamma", "dimension", "loss", "curvature", "chains")}
    return est.value, est.stderr, diagnostics, usual_gamma(land), all(map(torch.equal, before, after))


def _process(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    def built():
        torch.manual_seed(0)
        return bs.zoo.models.transformer(8, 6, layers=1, width=8, heads=2)

    tokens = torch.randint(8, (10, 7), generator=torch.Generator().manual_seed(0))
    data = (tokens[:, :-1], tokens[:, 1:])
    net = built()
    plain = bs.Landscape(net, "cross_entropy", data).per_sample()
    mesh = distributed.device_mesh.init_device_mesh("cpu", (2,))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    try:
        bs.Landscape(net, "cross_entropy", data)
    except bs.InputError as error:
        words = str(error)
    weights = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        whole = built()
        whole.load_state_dict(weights)
        gathered = bs.Landscape(whole, "cross_entropy", data).per_sample()
        torch.save((words, plain, gathered), f"{folder}/result.pt")
    torch.save(_walked(net), f"{folder}/walked{rank}.pt")
    torch.save(_walked(built(), replicas=True), f"{folder}/replica{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.mark.slow  # two processes that import torch
@pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="torch without gloo")
def test_two_processes(tmp_path):
    mp.spawn(_process, args=(str(tmp_path),), nprocs=2)
    words, plain, gathered = torch.load(tmp_path / "result.pt")
    assert "sharded over processes" in words
    assert "get_model_state_dict" in words
    assert torch.equal(plain, gathered)
    (ours, stderr, seen, gamma, back), (theirs, *_, back_there) = (
        torch.load(tmp_path / f"walked{rank}.pt", weights_only=False) for rank in range(2)
    )
    assert back
    assert back_there
    assert ours == theirs
    # copies in both processes share the chains, and give what one process gives with the same number of them
    (mine, _, told, _, whole), (other, *_) = (
        torch.load(tmp_path / f"replica{rank}.pt", weights_only=False) for rank in range(2)
    )
    assert whole
    assert mine == other
    torch.manual_seed(0)
    alone, error, expected, usual, _ = _walked(bs.zoo.models.transformer(8, 6, layers=1, width=8, heads=2))
    assert mine == pytest.approx(alone, rel=1e-3)
    assert told["chains"] == expected["chains"] == 6
    assert gamma == pytest.approx(usual, rel=1e-5)
    assert seen["dimension"] == expected["dimension"]
    assert seen["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert seen["curvature"] == pytest.approx(expected["curvature"], rel=0.6)  # power iterations from another start
    assert seen["virial"] == pytest.approx(expected["virial"], abs=0.1)
    assert abs(ours - alone) < 6 * (stderr**2 + error**2) ** 0.5
