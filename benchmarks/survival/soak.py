"""Many measurements in one process, and many requests to one live page: what memory they leave behind."""

from __future__ import annotations

import gc
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

import basinscope as bs

_LOOKS = 50  # times that memory is looked at
_PAGE = [sys.executable, "-c", "from basinscope.cli import main; main()", "serve"]


def resident(process: str = "self") -> float:
    """Megabytes that a process holds in memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def soaked(act: Callable[[int], None], number: int, process: str = "self") -> list[float]:
    """Do something so many times; the memory of a process at equal distances on the way."""
    seen = []
    for k in range(number):
        act(k)
        if (k + 1) % max(1, number // _LOOKS) == 0:
            gc.collect()
            seen.append(resident(process))
    return seen


def measured(number: int) -> list[float]:
    """Measurements of small networks, each of another landscape: λ̂, WAIC, soft rank and trace in turn, and every tenth
    time all there is, with the report as a page."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    kinds = {
        "mse": torch.randn(60, 2, generator=generator),
        "cross_entropy": torch.randint(2, (60,), generator=generator),
        "bernoulli": torch.rand(60, 2, generator=generator),
    }
    losses = list(kinds)

    quiet = {"progress": False}
    sampled = {"budget": bs.Nominal(0.02), **quiet}
    measures: list[Callable[[bs.Landscape, int], object]] = [
        lambda land, k: bs.llc(land, seed=k, **sampled),
        lambda land, k: bs.waic(land, seed=k, **sampled),
        lambda land, k: bs.soft_rank(land, weight_decay=0.1, **quiet),
        lambda land, k: bs.trace(land, **quiet),
    ]

    def measure(k: int) -> None:
        torch.manual_seed(k)
        net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        loss = losses[k % len(losses)]
        land = bs.Landscape(net, loss, (x, kinds[loss]))
        if k % 10:
            measures[k % len(measures)](land, k)
        else:
            bs.measure(land, seed=k, **sampled).to_html()

    return soaked(measure, number)


def visited(number: int) -> list[float]:
    """Requests to a live page of a folder with a report, of all its pages and of some that it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        x = torch.linspace(-1, 1, 40)[:, None]
        land = bs.Landscape(nn.Linear(1, 1), "mse", (x, 2 * x))
        bs.measure(land, budget=0.2, title="A line", progress=False).save(Path(folder) / "line")
        with page(Path(folder)) as (port, process):
            time.sleep(3)  # until the folder has been looked at
            run = next(iter(_runs(port)))
            addresses = ["/", "/style.css", "/live.js", f"/report/{run}", f"/compare?run={run}", "/nothing", "/../etc"]

            def visit(k: int) -> None:
                if k % 50 == 0:
                    _runs(port)
                    return
                address = addresses[k % len(addresses)]
                status = answered(port, address, host="evil.example" if k % 11 == 0 else "localhost")
                assert status in (200, 400, 404, 421), f"{address}: {status}"

            return soaked(visit, number, str(process))


@contextmanager
def page(folder: Path) -> Iterator[tuple[int, int]]:
    """The live page of a folder in a process of its own: its port and the process."""
    with subprocess.Popen([*_PAGE, str(folder), "--port", "0"], stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        try:
            yield int(line.split("127.0.0.1:")[1].split("/")[0]), serving.pid
        finally:
            serving.terminate()


def answered(port: int, address: str, host: str = "localhost") -> int:
    """The status of an answer, read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", address, headers={"Host": host})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _runs(port: int) -> list[str]:
    """The runs that the page tells of in its stream, which is left after the first word of them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/events")
        stream = connection.getresponse()
        found: list[str] = []
        for _ in range(30):
            line = stream.readline().decode()
            if line.startswith("data: ["):
                found += [row["id"] for row in json.loads(line.removeprefix("data: ")) if "id" in row]
            if found:
                return found
        return found
    finally:
        connection.close()
