"""A network that FSDP2 spreads over two processes is refused with a sentence, and works once it is gathered."""

import os

import pytest
import torch
import torch.multiprocessing as mp

import basinscope as bs

distributed = pytest.importorskip("torch.distributed")


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
