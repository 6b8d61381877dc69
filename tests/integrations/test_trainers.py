import json
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import basinscope as bs
import lacking
from basinscope.integrations.following import Following, numbers
from basinscope.training import Every, Measure, train

transformers = lacking.package("transformers")
pl = lacking.package("pytorch_lightning")

X = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def batch_loss(land):
    return float(land.per_sample().mean())


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 3))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, _):
        return self.criterion(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        return DataLoader(TensorDataset(X, Y), batch_size=10, shuffle=True, drop_last=True)


# ---------------------------------------------------------------------- Lightning


def fitted(tmp_path, callbacks, logger=False):
    torch.manual_seed(0)
    net = Net()
    trainer = pl.Trainer(
        max_epochs=2, callbacks=callbacks, logger=logger, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, default_root_dir=tmp_path, log_every_n_steps=1000,
    )  # fmt: skip
    trainer.fit(net)
    return net, trainer


@pytest.mark.filterwarnings("ignore")  # of Lightning, on numbers of workers
def test_lightning_measures_on_schedule_and_logs(tmp_path):
    from pytorch_lightning.loggers import CSVLogger

    from basinscope.integrations.lightning import Measurements

    callback = Measurements([
        Measure(batch_loss, Every(steps=2, start=True)),
        Measure(bs.trace, Every(epochs=1), options={"rtol": 0.5}),
    ])  # fmt: skip
    net, trainer = fitted(tmp_path, [callback], CSVLogger(tmp_path))
    assert [row["step"] for row in callback.rows] == [0, 2, 4]  # two batches an epoch: the third is dropped
    assert ["trace" in row for row in callback.rows] == [False, True, True]
    net.eval()
    with torch.no_grad():
        exact = float(nn.functional.cross_entropy(net(X), Y))  # all samples, frozen statistics, no dropout
    assert callback.rows[-1]["batch_loss"] == pytest.approx(exact, rel=1e-6)
    assert float(trainer.callback_metrics["batch_loss"]) == pytest.approx(exact, rel=1e-6)
    assert net.training is False  # what we set, not the callback
    assert callback.history["step"].tolist() == [0, 2, 4]
    assert "measuring took" in callback.cost
    assert [axes.get_ylabel() for axes in callback.plot().axes] == ["loss", "trace"]
    trainer.logger.save()
    lines = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text()
    assert "batch_loss" in lines
    assert "trace_stderr" in lines


@pytest.mark.filterwarnings("ignore")
def test_lightning_trains_the_same_with_and_without_measurements(tmp_path):
    from basinscope.integrations.lightning import Measurements

    alone, _ = fitted(tmp_path, [])
    watched, _ = fitted(tmp_path, [Measurements([Measure(batch_loss, Every(steps=1, start=True))])])
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(watched.state_dict()[name], tensor, rtol=0, atol=0)


def test_landscape_from_lightning():
    net = Net().eval()
    land = bs.Landscape.from_lightning(net)  # its own loader, in order and whole
    assert torch.equal(land.samples.inputs, X)
    with torch.no_grad():
        assert batch_loss(land) == pytest.approx(float(nn.functional.cross_entropy(net(X), Y)), rel=1e-6)

    class Data(pl.LightningDataModule):
        def setup(self, stage):
            self.set = TensorDataset(X[:7], Y[:7])

        def train_dataloader(self):
            return DataLoader(self.set, batch_size=2, shuffle=True)

    assert bs.Landscape.from_lightning(net, Data()).n == 7
    net.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    with pytest.raises(bs.InputError, match="Net holds no plain loss"):
        bs.Landscape.from_lightning(net)
    assert bs.Landscape.from_lightning(net, loss="cross_entropy").n == 24
    with pytest.raises(bs.InputError, match="gives no training data"):
        bs.Landscape.from_lightning(pl.LightningModule(), loss="mse")


# ---------------------------------------------------------------------- Hugging Face

IDS = torch.randint(16, (20, 8), generator=torch.Generator().manual_seed(1))
MASK = torch.ones_like(IDS)
MASK[:5, 6:] = 0


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=8,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("build", [gpt2, llama])
def test_causal_language_models(build):
    net = build()
    before = net.config._attn_implementation, net.config.use_cache
    land = bs.Landscape.from_pretrained(net, {"input_ids": IDS, "attention_mask": MASK})
    assert (net.config._attn_implementation, net.config.use_cache) == before
    with torch.no_grad():
        theirs = float(net(input_ids=IDS, attention_mask=MASK, labels=IDS.masked_fill(MASK == 0, -100)).loss)
    positions = int((land.samples.target != -100).sum())
    assert positions == 15 * 7 + 5 * 5
    assert float(land.per_sample().sum()) / positions == pytest.approx(theirs, rel=1e-5)


def test_sequences_as_long_as_the_vocabulary_is_large():
    net = gpt2()
    ids = torch.randint(8, (10, 8), generator=torch.Generator().manual_seed(0))
    wide = bs.Landscape.from_pretrained(net, ids)
    net.lm_head.weight.data = net.lm_head.weight.data[:8]  # tied to the embedding
    net.transformer.wte.weight = net.lm_head.weight
    net.config.vocab_size = 8
    land = bs.Landscape.from_pretrained(net, ids)
    with torch.no_grad():
        theirs = float(net(input_ids=ids, labels=ids).loss)
    assert float(land.per_sample().mean()) / 7 == pytest.approx(theirs, rel=1e-5)
    assert land.dimension < wide.dimension
    fisher = bs.trace(land, matrix="fisher", progress=False).value
    assert math.isfinite(fisher)
    assert fisher > 0


@pytest.mark.parametrize("build", [gpt2, llama])
def test_measurements_of_causal_language_models(build):
    net = build().double()
    part = "*mlp*" if build is llama else "*wpe*"  # positions that all samples share
    land = bs.Landscape.from_pretrained(net, IDS).restrict(part)
    rows = []
    for i in range(land.n):
        point = {name: tensor.clone().requires_grad_() for name, tensor in land.parameters.items()}
        loss = land.losses(point, land.take(torch.tensor([i])))[0]
        rows.append(land.flatten(dict(zip(point, torch.autograd.grad(loss, list(point.values())), strict=True))))
    gradients = torch.stack(rows)
    covariance = gradients.T @ gradients / land.n
    exact = torch.linalg.solve(covariance + 0.1 * torch.eye(len(covariance)), covariance).trace()
    assert bs.soft_rank(land, weight_decay=0.1, matrix="covariance").value == pytest.approx(float(exact), rel=1e-6)
    plain = {"sampler": "sgld", "chains": 2, "draws": 20, "step_size": 1e-5, "gamma": 100.0}
    assert math.isfinite(bs.llc(land, progress=False, **plain).value)  # chains side by side


def test_image_classifiers_and_saved_models(tmp_path):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4,
        num_labels=3,
    )  # fmt: skip
    net = transformers.ViTForImageClassification(config).eval()
    data = {"pixel_values": torch.randn(10, 3, 8, 8), "labels": torch.randint(3, (10,))}
    with torch.no_grad():
        exact = float(net(**data).loss)
    assert batch_loss(bs.Landscape.from_pretrained(net, data)) == pytest.approx(exact, rel=1e-5)
    net.save_pretrained(tmp_path)
    assert batch_loss(bs.Landscape.from_pretrained(tmp_path, data)) == pytest.approx(exact, rel=1e-5)
    items = [{name: values[i] for name, values in data.items()} for i in range(10)]
    assert batch_loss(bs.Landscape.from_pretrained(net, DataLoader(items, batch_size=4))) == pytest.approx(
        exact, rel=1e-5
    )


def test_what_is_refused():
    with pytest.raises(bs.InputError, match="without a config"):
        bs.Landscape.from_pretrained(nn.Linear(1, 1), IDS)
    with pytest.raises(bs.InputError, match=r"whole numbers of shape \(n, T\)"):
        bs.Landscape.from_pretrained(gpt2(), IDS.float())
    with pytest.raises(bs.InputError, match="needs dicts with 'input_ids'"):
        bs.Landscape.from_pretrained(gpt2(), [(IDS, IDS)])
    with pytest.raises(bs.InputError, match="at least one"):
        Following([], batch_loss)
    with pytest.raises(bs.InputError, match="on the validation data"):
        Following([Measure(batch_loss, on="validation")], batch_loss)


@pytest.mark.filterwarnings("ignore")
def test_transformers_trainer_logs_measurements(tmp_path):
    from basinscope.integrations.transformers import Measurements

    net = gpt2()
    items = [{"input_ids": row, "labels": row} for row in IDS]
    trainer = transformers.Trainer(
        model=net,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=10, report_to=["tensorboard"],
            use_cpu=True, save_strategy="no", disable_tqdm=True, logging_steps=1, learning_rate=0.01,
        ),
        train_dataset=items,
    )  # fmt: skip
    callback = Measurements(trainer, [Measure(batch_loss, Every(epochs=1, start=True))])
    trainer.add_callback(callback)
    trainer.train()
    assert [row["step"] for row in callback.rows] == [0, 2, 4]
    logged = [entry["batch_loss"] for entry in trainer.state.log_history if "batch_loss" in entry]
    assert logged == [row["batch_loss"] for row in callback.rows]
    net.eval()
    assert logged[-1] == pytest.approx(batch_loss(bs.Landscape.from_pretrained(net, IDS)), rel=1e-5)
    assert logged[-1] < logged[0]
    assert callback.history["batch_loss"].tolist() == logged


# ---------------------------------------------------------------------- loggers


def followed(log):
    return train(
        nn.Linear(3, 3), (X, Y), lambda net: torch.optim.SGD(net.parameters(), lr=0.1), epochs=2, batch_size=24,
        measures=[Measure(bs.trace, Every(epochs=2))], log=[log], progress=False,
    )  # fmt: skip


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from basinscope.integrations.tensorboard import Log

    log = Log(tmp_path)
    run = followed(log)
    log.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    curve = events.Scalars("basinscope/train_loss")
    assert [event.step for event in curve] == [0, 1, 2]
    assert [event.value for event in curve] == pytest.approx(list(run.history["train_loss"]), rel=1e-6)
    assert events.Scalars("basinscope/trace_verdict")[0].value == 0
    with pytest.raises(bs.InputError, match="pass step"):
        Log(tmp_path)(bs.Estimate("llc", 1.0, 0.1))
    with pytest.raises(bs.InputError, match="a path or a SummaryWriter, got int"):
        Log(3)


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    wandb = lacking.package("wandb")
    from basinscope.integrations.wandb import Log

    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with wandb.init(mode="offline", dir=str(tmp_path), project="test", settings=wandb.Settings(silent=True)) as run:
        log = Log(run)
        history = followed(log).history
        log(bs.Estimate.failed("llc", "no minimum"), step=9)
        summary = dict(run.summary)
    assert summary["basinscope/train_loss"] == pytest.approx(float(history["train_loss"].iloc[-1]))
    assert summary["basinscope/llc_warnings"] == "no minimum"
    assert summary["basinscope/llc_verdict"] == 2
    assert "basinscope/llc" not in summary
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    with pytest.raises(bs.InputError, match=r"what wandb.init returned, got str"):
        Log("run")


def test_numbers_are_plain():
    assert json.dumps(numbers({"step": 1, "a": 2.0, "a_verdict": "doubtful", "b": math.inf, "c": "text"})) == (
        '{"step": 1.0, "a": 2.0, "a_verdict": 1.0}'
    )
