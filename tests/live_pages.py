"""Stores to look at, and the live page over them, shared by the tests and the benchmark."""

import socket
import threading
import time
from contextlib import contextmanager

import torch
import uvicorn
from torch import nn

from basinscope.report.catalogue import Catalogue
from basinscope.report.listening import configuration
from basinscope.report.server import application
from basinscope.runs.driver import run
from basinscope.runs.study import Result
from basinscope.runs.sweep import Sweep
from basinscope.training import Every, train


def curve(name: str, seed: int = 0):
    """A job with a history and chains; one name fails."""
    if name == "fails":
        raise ArithmeticError("<b>no</b>")
    rows = [
        {
            "epoch": k,
            "train_loss": 1 / (k + 1),
            "llc": 3.0 + k + 0.01 * seed,
            "llc_stderr": 0.1,
            "llc_verdict": "doubtful" if seed % 3 == 0 else "ok",
        }
        for k in range(4)
    ]
    return Result(rows, {"trace": torch.ones(3, 16)})


def store(folder, names=("a", "b"), seeds=2):
    """A store with a study of so many jobs."""
    sweep = Sweep("curves", curve, {"grid": {"name": list(names), "seed": list(range(seeds))}}, title="Made-up curves")
    run(sweep, folder, progress=False)
    return folder


def training(folder, epochs=3):
    """A folder that `train` wrote."""
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    data = (x, x.sum(1, keepdim=True))
    train(
        nn.Linear(2, 1), data, lambda net: torch.optim.SGD(net.parameters(), lr=0.1), loss="mse", epochs=epochs,
        batch_size=10, folder=folder, validation=data, progress=False,
    )  # fmt: skip


@contextmanager
def served(folder, **options):
    """The live page on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = application(Catalogue(folder), ended=lambda: server.should_exit, **options)
        server = uvicorn.Server(configuration(app, grace=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.02)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def training_of(folder, checkpoints):
    """A network, its data, and a folder with so many checkpoints of its training."""
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    noise = 0.1 * torch.randn(200, 1, generator=torch.Generator().manual_seed(1))
    data, net = (x, x.sum(1, keepdim=True) + noise), nn.Linear(2, 1)
    train(
        net, data, lambda net: torch.optim.SGD(net.parameters(), lr=0.02), loss="mse", epochs=checkpoints,
        batch_size=100, folder=folder, keep=Every(epochs=1), validation=data, progress=False,
    )  # fmt: skip
    return net, data
