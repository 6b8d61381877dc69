"""Language models where people keep them, and what is refused."""

import types

import pytest
import torch
from torch import nn

import basinscope as bs
import lacking
from basinscope.adapters.hugging_face import saved_models
from basinscope.measures.checkpoint_series import series_of
from language.families import FAMILIES, LENGTH, VOCABULARY, gpt2, made, tokens

transformers = lacking.package("transformers")


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_the_models_own(family):
    net = made(family)
    land = bs.Landscape.from_pretrained(net, tokens())
    with torch.no_grad():
        theirs = float(net(input_ids=tokens(), labels=tokens()).loss) * (LENGTH - 1)
    assert float(land.per_sample().mean()) == pytest.approx(theirs, rel=1e-5)
    assert bs.trace(land.restrict("layer 0 head 0"), matrix="fisher").value > 0


def test_as_many_tokens_as_positions():
    """The axis of the classes is known, whatever the shapes are."""
    net = gpt2(n_positions=VOCABULARY).eval()
    ids = tokens(length=VOCABULARY)
    land = bs.Landscape.from_pretrained(net, ids)
    with torch.no_grad():
        theirs = float(net(input_ids=ids, labels=ids).loss) * (VOCABULARY - 1)
    assert float(land.per_sample().mean()) == pytest.approx(theirs, rel=1e-5)
    part = land.restrict("layer 0 head 0")
    assert bs.trace(part, matrix="fisher").verdict == bs.trace(part, matrix="covariance").verdict == "ok"
    assert land.loss.name == "cross_entropy"


def test_revisions_and_subfolders(tmp_path, monkeypatch):
    for step in (9, 10):
        net = made("Qwen2")
        with torch.no_grad():
            net.model.norm.weight.fill_(step)
        net.save_pretrained(tmp_path / "run" / f"step{step}")
    assert [path.name for path in saved_models(tmp_path / "run")] == ["step9", "step10"]
    land = bs.Landscape.from_pretrained(tmp_path / "run", tokens(), subfolder="step9")
    assert float(land.parameters["model.norm.weight"][0]) == 9
    assert not any(name.startswith("lm_head") for name in land.parameters)  # tied: counted once

    asked = []
    config = transformers.AutoConfig.from_pretrained(tmp_path / "run" / "step10")
    monkeypatch.setattr(
        transformers.AutoConfig, "from_pretrained", lambda name, **place: asked.append((name, place)) or config
    )
    monkeypatch.setattr(
        transformers.Qwen2ForCausalLM, "from_pretrained", lambda name, **place: asked.append((name, place)) or net
    )
    bs.Landscape.from_pretrained("someone/model@step10", tokens())
    bs.Landscape.from_pretrained("someone/model", tokens(), revision="step10", subfolder="small")
    assert [(name, place["revision"], place["subfolder"]) for name, place in asked] == [
        ("someone/model", "step10", ""), ("someone/model", "step10", ""),
        ("someone/model", "step10", "small"), ("someone/model", "step10", "small"),
    ]  # fmt: skip


def test_the_checkpoints_of_a_run(tmp_path):
    for step in (1, 2):
        net = made("GPT-2")
        with torch.no_grad():
            net.transformer.wte.weight.mul_(step)
        net.save_pretrained(tmp_path / f"checkpoint-{step}")
    found = series_of(tmp_path, data=tokens())
    lands = dict(zip(found.names, found, strict=True))
    assert list(lands) == ["checkpoint-1", "checkpoint-2"]
    for name, land in lands.items():
        own = bs.Landscape.from_pretrained(tmp_path / name, tokens())
        assert torch.equal(land.per_sample(), own.per_sample())


def test_outputs_of_all_sequences_are_never_in_memory_at_once(monkeypatch):
    net, sizes = made("GPT-2"), []
    net.lm_head.register_forward_hook(lambda _, __, scores: sizes.append(len(scores)))
    whole = bs.Landscape.from_pretrained(net, tokens(50)).per_sample()
    assert max(sizes) == 50
    sizes.clear()
    monkeypatch.setattr("basinscope.landscape._OUTPUTS", 3 * LENGTH * VOCABULARY)
    few = bs.Landscape.from_pretrained(net, tokens(50))
    torch.testing.assert_close(few.per_sample(), whole)
    assert max(sizes[1:]) == 8  # the first look takes eight
    assert few.per_sample(batch_size=50).shape == whole.shape


def test_what_is_refused(tmp_path):
    net = made("GPT-2")
    with pytest.raises(bs.InputError, match=r"sequences have 9 tokens: GPT2LMHeadModel takes at most 8 — cut them"):
        bs.Landscape.from_pretrained(net, tokens(length=LENGTH + 1))
    with pytest.raises(bs.InputError, match=r"tokens must lie in 0..15, the vocabulary of GPT2LMHeadModel, got values"):
        bs.Landscape.from_pretrained(net, tokens() + 1)
    with pytest.raises(bs.InputError, match="no model of transformers at"):
        bs.Landscape.from_pretrained(tmp_path / "nothing", tokens())
    with pytest.raises(bs.InputError, match="revision and subfolder are of models by name"):
        bs.Landscape.from_pretrained(net, tokens(), revision="main")
    net.is_quantized = True
    with pytest.raises(bs.InputError, match="the model is quantized"):
        bs.Landscape.from_pretrained(net, tokens())


@pytest.mark.filterwarnings("ignore")
def test_quantized_layers_are_refused():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    net[0] = torch.ao.nn.quantized.dynamic.Linear(4, 4)
    with pytest.raises(bs.InputError, match=r"quantized \(layer '0' of it\)"):
        bs.Landscape(net, "mse", (torch.zeros(3, 4), torch.zeros(3, 2)))


@pytest.mark.filterwarnings("ignore")
def test_the_trainers_callback_takes_a_stated_sample(tmp_path):
    from basinscope.integrations.transformers import Measurements
    from basinscope.training import Every, Measure

    class Source:
        """Training data that count what is read of them."""

        read = 0

        def __init__(self, ids):
            self.ids = ids

        def __len__(self):
            return len(self.ids)

        def __getitem__(self, place):
            Source.read += 1
            return {"input_ids": self.ids[place], "labels": self.ids[place]}

    net, ids = made("GPT-2"), tokens(100)
    trainer = transformers.Trainer(
        model=net, train_dataset=Source(ids),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True,
            save_strategy="no", disable_tqdm=True,
        ),
    )  # fmt: skip
    counted = []
    measure = Measure(lambda land: counted.append(land.samples.inputs["input_ids"]) or 1.0, Every(steps=1), name="one")
    trainer.add_callback(Measurements(trainer, [measure], samples=10))
    trainer.train()
    assert Source.read < 20  # a batch more may be fetched ahead
    assert torch.equal(counted[0], ids[::10])

    kinds = type(trainer.accelerator.distributed_type)
    sharding = types.SimpleNamespace(accelerator=types.SimpleNamespace(distributed_type=kinds.FSDP))
    with pytest.raises(bs.InputError, match=r"shards weights over processes \(FSDP\)"):
        Measurements(sharding, [measure]).on_train_begin(None, trainer.state, None)
