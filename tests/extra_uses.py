"""A first use of each extra, alone in an environment: `python -I extra_uses.py NAME`, in an empty folder.

The tests run them where packages are linked from this environment (test_wheel.py), and `make test-extras` where pip
installed the built wheel with that extra and nothing else.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

MISSING_IS_NOT_OURS = ("dev", "docs", "wandb")  # nothing of the package imports these


def line(n=24):
    """The landscape of a line through n points."""
    import torch

    import basinscope as bs

    x = torch.linspace(-1, 1, n)[:, None]
    return bs.Landscape(torch.nn.Linear(1, 1), "mse", (x, 2 * x))


def command(*words):
    """Run the command line in this process, which ends where that fails."""
    from basinscope.cli import app

    if code := app(list(words), standalone_mode=False):
        sys.exit(code)


def none():
    import basinscope as bs

    assert abs(bs.trace(line(), progress=False).value - 1.0 - _second_moment()) < 1e-5
    command("--help")


def _second_moment(n=24):
    return (n + 1) / (3 * (n - 1))  # of n points spread evenly over [−1, 1]


def arviz():
    import numpy as np

    import basinscope as bs

    tree = bs.loo(np.random.default_rng(0).normal(size=(4, 50, 3))).to_arviz()
    assert tree["posterior"].sizes == {"chain": 4, "draw": 50}


def data():
    import hashlib
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    from basinscope.zoo.data import catalogue, fetch

    content = bytes(range(256)) * 100
    Path("served.bin").write_bytes(content)
    SimpleHTTPRequestHandler.log_message = lambda *told: None
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/served.bin"
        file = catalogue.File("file.bin", hashlib.md5(content).hexdigest(), (url,), 0.1)
        catalogue.SOURCES["toy"] = catalogue.Source("toy", "a toy", (file,))
        try:
            (path,) = fetch("toy", "fetched", progress=False)
        finally:
            server.shutdown()
    assert path.read_bytes() == content


def demo():
    command("demo", "--samples", "100", "--hidden", "2", "--budget", "0.5")
    assert "<html" in Path("basinscope-demo/report.html").read_text()


def dev():
    """Tests and types of the package as it is installed."""
    run = [sys.executable, "-I", "-m"]
    subprocess.run([*run, "pytest", "-q", "--doctest-modules", "--pyargs", "basinscope.exact"], check=True)
    wrong = "from basinscope.estimates import Estimate; a: str = Estimate('a', 1.0, 0.0).value"
    told = subprocess.run([*run, "mypy", "-c", wrong], capture_output=True, text=True).stdout
    assert 'expression has type "float", variable has type "str"' in told, told
    for name in ("ruff", "hatchling"):
        subprocess.run([*run, name, "--help"], check=True)


def docs():
    """A page of the reference, in the theme of the site."""
    Path("docs").mkdir()
    Path("docs/index.md").write_text("# Estimates\n\n::: basinscope.estimates.Estimate\n")
    Path("mkdocs.yml").write_text("site_name: a\ntheme: {name: material, font: false}\nplugins: [mkdocstrings]\n")
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, "-I", "-m", "mkdocs", "build", "--strict", "--quiet"], check=True, env=quiet)
    assert "confidence interval" in Path("site/index.html").read_text()


def lightning():
    from basinscope.integrations.lightning import Measurements  # isort: skip  (it says what is missing)
    import pytorch_lightning as pl
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    import basinscope as bs
    from basinscope.training import Every, Measure

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.criterion = torch.nn.Linear(2, 3), torch.nn.CrossEntropyLoss()

        def forward(self, x):
            return self.layer(x)

        def training_step(self, batch, index):
            return self.criterion(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = Measurements([Measure(bs.trace, Every(epochs=1))])
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[callback], accelerator="cpu", enable_model_summary=False, default_root_dir=".", **quiet
    )
    trainer.fit(Net(), DataLoader(TensorDataset(torch.randn(12, 2), torch.randint(3, (12,))), batch_size=4))
    assert [row["step"] for row in callback.rows] == [3]


def nuts():
    import torch

    from basinscope.sampling.nuts import nuts

    run = nuts(lambda w: -0.5 * (w**2).sum(), torch.zeros(2), draws=500, warmup=200, chains=2)
    assert 0.5 < run.draws.var() < 2  # of a standard normal law; no test of accuracy


def plot():
    import torch

    import basinscope as bs

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator)
    land = bs.Landscape(torch.nn.Linear(3, 2), "mse", (x, x[:, :2]))
    bs.spectrum(land, seed=0).plot().savefig("figure.png")
    assert Path("figure.png").stat().st_size > 1000


def ray():
    command("study", "run", "quadratics", "--scale", "smoke", "-s", "seeds=1", "--on", "ray", "--workers", "1")
    _whole()


def serve():
    import socket
    import time
    from urllib.error import URLError
    from urllib.request import urlopen

    Path("runs").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = threading.Thread(target=command, args=["serve", "runs", "--port", str(port)], daemon=True)
    server.start()
    until = time.monotonic() + 200
    while True:
        if not server.is_alive():
            sys.exit(2)
        try:
            with urlopen(f"http://127.0.0.1:{port}/", timeout=100) as answer:
                assert "<html" in answer.read().decode()
            return
        except URLError:
            assert time.monotonic() < until, "the live page did not answer"
            time.sleep(0.1)


def slurm():
    from basinscope.runs.driver import run
    from basinscope.runs.executors.slurm import Slurm
    from basinscope.studies.quadratics import STUDY

    here = Slurm(1, cluster="local", poll=0.1)  # submitit's own stand-in for a cluster
    assert run(STUDY, "runs", settings={"seeds": 1}, on=here, progress=False).complete


def studies():
    command("study", "run", "quadratics", "--scale", "smoke", "-s", "seeds=1", "--on", "here")
    command("study", "report", "quadratics", "--scale", "smoke", "-s", "seeds=1")
    _whole()
    assert Path("results/quadratics/table.parquet").exists()


def tables():
    import basinscope as bs

    report = bs.measure(line(), budget=0.3, progress=False)
    report.to_parquet("report.parquet")
    import pandas as pd

    assert pd.read_parquet("report.parquet")["llc"][0] == report["llc"].value


def tensorboard():
    import basinscope as bs
    from basinscope.integrations.tensorboard import Log

    log = Log("curves")
    log(bs.trace(line(), progress=False), step=1)
    log.close()
    assert any(Path("curves").rglob("events*"))


def transformers():
    from basinscope.integrations.transformers import Measurements  # isort: skip  (it says what is missing)
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    import basinscope as bs
    from basinscope.training import Every, Measure

    config = GPT2Config(vocab_size=8, n_positions=6, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    net, tokens = GPT2LMHeadModel(config).eval(), torch.randint(8, (12, 6))
    assert bs.Landscape.from_pretrained(net, tokens).n == 12
    arguments = TrainingArguments(
        output_dir="hf", num_train_epochs=1, per_device_train_batch_size=6, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model=net, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in tokens])
    callback = Measurements(trainer, [Measure(bs.trace, Every(epochs=1), options={"matrix": "fisher"})])
    trainer.add_callback(callback)
    trainer.train()
    assert [row["epoch"] for row in callback.rows] == [1.0]


def wandb():
    import wandb

    import basinscope as bs
    from basinscope.integrations.wandb import Log

    run = wandb.init(mode="offline", dir=str(Path.cwd()), settings=wandb.Settings(silent=True))
    Log(run)(bs.trace(line(), progress=False), step=1)
    run.finish()
    assert any(Path("wandb").rglob("*.wandb"))


def zarr():
    import basinscope as bs

    land = line()
    post = bs.posterior(land, gamma=1.0, draws=20, budget=1.0, progress=False)
    kept = bs.Posterior.load(post.save("run.zarr", train=None), land)
    assert kept.count == 20
    assert bs.audit("run.zarr").source == "run.zarr: basinscope"


def _whole():
    """The study is complete and none of its jobs failed."""
    from basinscope.runs.store import Store

    store = Store("runs")
    assert len(list(store.results())) >= 4
    assert not store.failed()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
