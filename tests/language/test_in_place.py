"""Language models in place: the same posterior as a copy's, nothing left behind, data of every kind."""

import contextlib
import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import basinscope as bs
from basinscope.language.loss import token_losses
from basinscope.language.sequences import read_sequences
from language.families import FAMILIES, LENGTH, VOCABULARY, Lens, made, tokens

SHORT = {"budget": bs.Nominal(1), "draws": 16, "chains": 4, "batch_size": 8, "progress": False}


def snapshot(net):
    """Everything of a module that a measurement may have changed."""
    return (
        {name: (each.detach().clone(), each.requires_grad, each.grad) for name, each in net.named_parameters()},
        [module.training for module in net.modules()],
        [each._post_accumulate_grad_hooks for each in net.parameters()],
    )


def unchanged(net, before):
    weights, modes, hooks = before
    for name, each in net.named_parameters():
        value, wanted, gradient = weights[name]
        assert torch.equal(each, value), name
        assert each.requires_grad == wanted
        assert each.grad is gradient
    assert [module.training for module in net.modules()] == modes
    assert all(not hook for hook in hooks)
    assert all(not each._post_accumulate_grad_hooks for each in net.parameters())
    return True


@pytest.mark.slow
@pytest.mark.parametrize("family", ["GPT-2", "Llama", "GPT-NeoX"])
@pytest.mark.parametrize("part", [None, "layer 1 head 2"])
def test_the_same_chains_as_on_a_copy(family, part):
    net, ids = made(family).double(), tokens(40)
    land, copied = bs.LanguageModel(net, ids), bs.Landscape.from_pretrained(net, ids)
    if part:
        land, copied = land.restrict(part), copied.restrict(part)
        assert list(land.parameters) == list(copied.parameters)
    assert land.dimension == copied.dimension
    with torch.no_grad():
        own = land.token_losses(land.take(torch.arange(40))).sum(1)
    torch.testing.assert_close(own, copied.per_sample())
    ours, theirs = (bs.llc(each, sampler="lean", gamma=50.0, seed=3, **SHORT) for each in (land, copied))
    # norms of Llama and Qwen are in float32, whatever the weights are
    assert ours.value == pytest.approx(theirs.value, rel=2e-3)
    assert ours.diagnostics["virial"] == pytest.approx(theirs.diagnostics["virial"], rel=1e-4)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError, torch.OutOfMemoryError])
@pytest.mark.parametrize("part", [None, "layer 0 head 1"])
def test_nothing_is_left_whatever_happens(kind, part):
    net = made("GPT-2").train()
    net.transformer.wpe.weight.requires_grad_(False)
    for each in net.parameters():
        each.grad = torch.ones_like(each)
    before = snapshot(net)
    land = bs.LanguageModel(net, tokens(40))
    land = land.restrict(part) if part else land
    for last in (1, 5, 30, 90, None):
        calls = itertools.count(1)

        def counted(*_, calls=calls, last=last):
            if next(calls) == last:
                raise kind

        handle = net.transformer.h[1].mlp.register_forward_hook(counted)
        if last is None:
            assert np.isfinite(bs.llc(land, **SHORT).value)
        else:
            with contextlib.suppress(kind, bs.InputError):
                bs.llc(land, **SHORT)
        assert next(calls) > (last or 90)
        assert unchanged(net, before)
        handle.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    net, ids = made(family), tokens(6)
    land = bs.LanguageModel(net, ids)
    with torch.no_grad():
        own = float(land.token_losses(land.take_first(6)).sum())
        theirs = float(net(input_ids=ids, labels=ids).loss) * 6 * (LENGTH - 1)
    assert own == pytest.approx(theirs, rel=1e-5)
    assert len(land.parts("head")) == 8


def test_modules_with_scores_alone_compiled_wrapped_and_frozen():
    lens = Lens()
    assert bs.LanguageModel(lens, tokens()).restrict("layer 0 head 1").dimension == 140
    assert bs.LanguageModel(torch.nn.DataParallel(lens), tokens()).module is lens
    compiled = torch.compile(lens, backend="eager")
    land = bs.LanguageModel(compiled, tokens())
    assert land.module is lens
    assert np.isfinite(bs.llc(land, **SHORT).value)
    for name, each in lens.named_parameters():
        each.requires_grad_("W_Q" in name)
    assert all("W_Q" in name for name in bs.LanguageModel(lens, tokens()).parameters)


def test_layers_that_recompute_their_activations():
    net = made("GPT-2")
    plain = bs.llc(bs.LanguageModel(net, tokens(20)), gamma=50.0, **SHORT)
    net.gradient_checkpointing_enable()
    again = bs.llc(bs.LanguageModel(net, tokens(20)), gamma=50.0, **SHORT)
    assert again.value == pytest.approx(plain.value, rel=1e-4)


@pytest.mark.slow
def test_ways_to_keep_the_displacement_and_to_precondition():
    net, ids = made("GPT-2"), tokens(40)
    plain = bs.llc(bs.LanguageModel(net, ids), gamma=50.0, **SHORT)
    apart = bs.llc(bs.LanguageModel(net, ids, delta="float32"), gamma=50.0, **SHORT)
    assert apart.value == pytest.approx(plain.value, rel=1e-3)
    low = made("GPT-2").bfloat16()
    before = snapshot(low)
    for delta, held in ((None, 2 + 2 + 4), ("bfloat16", 2 + 2 + 2)):
        est = bs.llc(bs.LanguageModel(low, ids, delta=delta), gamma=50.0, **SHORT)
        assert np.isfinite(est.value)
        assert est.diagnostics["bytes_per_parameter"] == pytest.approx(held + 4)  # momenta, or gradients
        assert unchanged(low, before)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    with pytest.raises(bs.InputError, match="keeps no second moment"):
        bs.llc(bs.LanguageModel(net, ids, optimizer=optimizer), **SHORT)
    net(input_ids=ids, labels=ids).loss.backward()
    slopes = {name: each.grad.square().mean().item() for name, each in net.named_parameters()}
    optimizer.step()
    land = bs.LanguageModel(net, ids, optimizer=optimizer)
    for name, root in land.moments().items():
        assert root**2 == pytest.approx(1e-3 * slopes[name], rel=1e-4)  # 1 − β₂ of Adam
    assert land.restrict("layer 1 head 2").moments().keys() == land.restrict("layer 1 head 2").parameters.keys()
    est = bs.llc(land, gamma=50.0, **SHORT)
    assert min(est.diagnostics["scales"].values()) < 1
    with pytest.raises(bs.InputError, match="delta must be one of"):
        bs.LanguageModel(net, ids, delta="int8")


def test_losses_of_pieces_of_the_positions(monkeypatch):
    scores = torch.randn(3, 7, VOCABULARY, requires_grad=True)
    target = torch.randint(VOCABULARY, (3, 7))
    target[1, 2:] = -100
    whole = token_losses(scores, target)
    (slope,) = torch.autograd.grad(whole.square().sum(), scores)
    monkeypatch.setattr("basinscope.language.loss.PIECE", 4 * VOCABULARY)
    pieces = token_losses(scores, target)
    torch.testing.assert_close(pieces, whole)
    torch.testing.assert_close(torch.autograd.grad(pieces.square().sum(), scores)[0], slope)
    with torch.no_grad():
        torch.testing.assert_close(token_losses(scores, target), whole.detach())


# ---------------------------------------------------------------------- data


class Rows:
    """A data set with numbers, as `datasets` has them, that counts what is read."""

    def __init__(self, ids):
        self.ids, self.read = ids, 0

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, place):
        self.read += 1
        return {"input_ids": self.ids[place].tolist()}

    def __getitems__(self, places):
        return [self[place] for place in places]


class Stream(IterableDataset):
    def __init__(self, ids):
        self.ids, self.read = ids, 0

    def __iter__(self):
        for row in self.ids:
            self.read += 1
            yield {"input_ids": row}


def test_data_of_every_kind_hold_the_same_sequences(tmp_path):
    ids = tokens(12)
    wanted = read_sequences(ids).first(12)
    on_disk = np.memmap(tmp_path / "ids.bin", dtype=np.uint16, mode="w+", shape=(12, LENGTH))
    on_disk[:] = ids.numpy()
    sources = {
        "stream of tokens": read_sequences(ids.flatten(), length=LENGTH),
        "memory-mapped": read_sequences(on_disk),
        "memory-mapped stream": read_sequences(on_disk.reshape(-1), length=LENGTH),
        "dict": read_sequences({"input_ids": ids}),
        "numbered": read_sequences(Rows(ids)),
        "list": read_sequences(list(ids)),
        "tensors": read_sequences(TensorDataset(ids)),
        "loader": read_sequences(DataLoader(TensorDataset(ids), batch_size=5)),
        "streamed": read_sequences(Stream(ids), sequences=12),
        "loader of a stream": read_sequences(DataLoader(Stream(ids), batch_size=5), sequences=12),
    }
    for name, source in sources.items():
        assert source.n == 12, name
        got = list(source.ordered(5))
        assert [piece.n for piece in got] == [5, 5, 2], name
        assert torch.equal(torch.cat([piece.target for piece in got]), wanted.target), name
    onwards = sources["streamed"]
    assert torch.equal(torch.cat([onwards.onwards(9).inputs["input_ids"] for _ in range(4)]), ids.repeat(3, 1))


def test_data_are_read_as_they_are_wanted():
    rows = Rows(tokens(10_000))
    est = bs.llc(bs.LanguageModel(made("GPT-2"), rows), nbeta=20.0, gamma=50.0, **SHORT)
    assert not est.diagnostics["losses_kept"]
    assert rows.read < 9_000
    stream = Stream(tokens(5_000))
    est = bs.llc(bs.LanguageModel(made("GPT-2"), stream, sequences=4_000), nbeta=20.0, gamma=50.0, **SHORT)
    assert np.isfinite(est.value)
    assert stream.read < 9_000
    assert est.diagnostics["sequences"] == 4_000


def test_shorter_sequences_are_filled_up():
    rows = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6, 7, 8])]
    both = read_sequences(rows).first(2)
    assert both.inputs["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert both.target.tolist() == [[2, 3, -100, -100, -100], [5, 6, 7, 8, -100]]
    net = made("GPT-2")
    land = bs.LanguageModel(net, rows)
    assert land.tokens == 6
    with torch.no_grad():
        alone = bs.LanguageModel(net, rows[:1]).token_losses(read_sequences(rows[:1]).first(1))
        torch.testing.assert_close(land.token_losses(both)[:1, :3], alone)


def test_units_are_of_settings_and_not_of_the_posterior():
    net, ids = made("GPT-2"), tokens(40)
    by_token, by_sequence = (bs.LanguageModel(net, ids, units=unit) for unit in ("token", "sequence"))
    each = LENGTH - 1
    ours = bs.llc(by_token, nbeta=70.0, gamma=50.0, **SHORT)
    same = bs.llc(by_sequence, nbeta=70.0 / each, gamma=50.0, **SHORT)
    assert ours.value == pytest.approx(same.value, rel=1e-9)
    assert ours.diagnostics["nbeta_per_token"] == pytest.approx(70.0)
    assert ours.diagnostics["loss"] == pytest.approx(same.diagnostics["loss"] / each)
    assert (ours.diagnostics["n"], same.diagnostics["n"]) == (40 * each, 40)
    # as devinterp does: nβ = m / log m of the batch, times the mean loss over the tokens
    usual = bs.llc(by_token, nbeta=by_token.devinterp_nbeta(8), gamma=50.0, **SHORT)
    assert by_sequence.devinterp_nbeta(8) == usual.diagnostics["nbeta_per_sequence"]
    assert usual.diagnostics["nbeta_per_sequence"] == pytest.approx(8 / np.log(8) / each)


def test_what_is_refused():
    net = made("GPT-2")
    with pytest.raises(bs.InputError, match="pass sequences="):
        bs.LanguageModel(net, Stream(tokens()))
    with pytest.raises(bs.InputError, match="ended after 6 sequences"):
        bs.llc(bs.LanguageModel(net, Stream(tokens(6)), sequences=9), **SHORT)
    with pytest.raises(bs.InputError, match="read once alone"):
        bs.LanguageModel(net, iter(tokens()), sequences=3)
    with pytest.raises(bs.InputError, match="needs length="):
        bs.LanguageModel(net, tokens().flatten())
    with pytest.raises(bs.InputError, match="more than the data hold"):
        bs.LanguageModel(net, tokens(), sequences=7)
    with pytest.raises(bs.InputError, match="map the model's tokenizer"):
        bs.LanguageModel(net, [{"text": "once"}])
    with pytest.raises(bs.InputError, match="whole numbers"):
        bs.LanguageModel(net, tokens().float())
    with pytest.raises(bs.InputError, match="takes at most 8"):
        bs.LanguageModel(net, tokens(length=9))
    with pytest.raises(bs.InputError, match=r"must lie in 0\.\.15"):
        bs.LanguageModel(net, tokens() + 1)
    with pytest.raises(bs.InputError, match="units must be"):
        bs.LanguageModel(net, tokens(), units="word")
    with pytest.raises(bs.InputError, match="is not initialized"):
        bs.llc(bs.LanguageModel(net, tokens(20), replicas=True), **SHORT)
    land = bs.LanguageModel(net, tokens(20))
    with pytest.raises(bs.InputError, match="walked by 'lean' alone"):
        bs.llc(land, sampler="hmc")
    with pytest.raises(bs.InputError, match="whose module is in place"):
        bs.posterior(land)
    hook = net.lm_head.weight.register_post_accumulate_grad_hook(lambda each: None)
    with pytest.raises(bs.InputError, match="a hook that takes its gradient"):
        bs.LanguageModel(net, tokens())
    hook.remove()
    with pytest.raises(bs.InputError, match="meta device"):
        bs.LanguageModel(made("GPT-2").to("meta"), tokens())
    net.is_quantized = True
    with pytest.raises(bs.InputError, match="the model is quantized"):
        bs.LanguageModel(net, tokens())


def test_a_model_that_changes_between_calls():
    class Restless(Lens):
        def forward(self, numbers):
            return super().forward(numbers) * (1 + torch.rand(1))

    with pytest.raises(bs.InputError, match="changes between calls"):
        bs.llc(bs.LanguageModel(Restless(), tokens(20)), **SHORT)
