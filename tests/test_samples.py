import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import basinscope as bs
from basinscope.samples import Samples, read

x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
z = torch.randn(10, 2, generator=torch.Generator().manual_seed(1))
y = torch.arange(10) % 3
UNEVEN = ((0, 4), (4, 5), (5, 10))


class Items(Dataset):
    def __init__(self, item):
        self.item = item

    def __len__(self):
        return 10

    def __getitem__(self, i):
        return self.item(i)


class Stream(IterableDataset):
    def __iter__(self):
        return ((x[i], y[i]) for i in range(10))


ONE_INPUT = {
    "tensors": lambda: (x, y),
    "list of tensors": lambda: [x, y],
    "arrays": lambda: (x.numpy(), y.numpy()),
    "double arrays": lambda: (x.double().numpy(), y.numpy().astype(np.int32)),
    "samples": lambda: Samples(x, y, 10),
    "TensorDataset": lambda: TensorDataset(x, y),
    "Dataset of numbers": lambda: Items(lambda i: (x[i].numpy(), int(y[i]))),
    "IterableDataset": lambda: Stream(),
    "DataLoader": lambda: DataLoader(TensorDataset(x, y), batch_size=4),
    "uneven batches": lambda: [(x[a:b], y[a:b]) for a, b in UNEVEN],
    "two batches": lambda: [(x[a:b], y[a:b]) for a, b in ((0, 7), (7, 10))],
    "batches as lists": lambda: [[x[a:b], y[a:b]] for a, b in UNEVEN],
    "generator": lambda: ((x[a:b], y[a:b]) for a, b in UNEVEN),
    "arrays in batches": lambda: [(x[a:b].numpy(), y[a:b].numpy()) for a, b in UNEVEN],
}


@pytest.mark.parametrize("form", ONE_INPUT)
def test_every_form_of_the_data_is_the_same_data(form):
    samples = read(ONE_INPUT[form]())
    assert samples.n == 10
    torch.testing.assert_close(samples.inputs.float(), x, rtol=0, atol=0)
    torch.testing.assert_close(samples.target.long(), y, rtol=0, atol=0)


TWO_INPUTS = {
    "pair and target": lambda: ((x, z), y),
    "triple": lambda: (x, z, y),
    "triple of arrays": lambda: (x.numpy(), z.numpy(), y.numpy()),
    "TensorDataset": lambda: TensorDataset(x, z, y),
    "Dataset of pairs": lambda: Items(lambda i: ((x[i], z[i]), y[i])),
    "DataLoader": lambda: DataLoader(TensorDataset(x, z, y), batch_size=3),
    "uneven batches": lambda: [(x[a:b], z[a:b], y[a:b]) for a, b in UNEVEN],
    "uneven batches of pairs": lambda: [((x[a:b], z[a:b]), y[a:b]) for a, b in UNEVEN],
}


@pytest.mark.parametrize("form", TWO_INPUTS)
def test_several_inputs(form):
    samples = read(TWO_INPUTS[form]())
    assert isinstance(samples.inputs, tuple)
    for part, expected in zip(samples.inputs, (x, z), strict=True):
        torch.testing.assert_close(part, expected, rtol=0, atol=0)
    torch.testing.assert_close(samples.target, y, rtol=0, atol=0)


KEYWORDS = {
    "dict": lambda: {"a": x, "b": z, "labels": y},
    "dict of arrays": lambda: {"a": x.numpy(), "b": z.numpy(), "target": y.numpy()},
    "dict and target": lambda: ({"a": x, "b": z}, y),
    "Dataset of dicts": lambda: Items(lambda i: {"a": x[i], "b": z[i], "label": int(y[i])}),
    "DataLoader of dicts": lambda: DataLoader(Items(lambda i: {"a": x[i], "b": z[i], "y": y[i]}), batch_size=4),
    "uneven batches": lambda: [{"a": x[a:b], "b": z[a:b], "targets": y[a:b]} for a, b in UNEVEN],
}


@pytest.mark.parametrize("form", KEYWORDS)
def test_keyword_inputs(form):
    samples = read(KEYWORDS[form]())
    assert sorted(samples.inputs) == ["a", "b"]
    torch.testing.assert_close(samples.inputs["a"], x, rtol=0, atol=0)
    torch.testing.assert_close(samples.inputs["b"], z, rtol=0, atol=0)
    torch.testing.assert_close(samples.target, y, rtol=0, atol=0)


def test_take_keeps_inputs_and_target_together():
    samples = read(((x, {"b": z}), y))
    few = samples.take(torch.tensor([7, 2, 2]))
    assert few.n == 3
    assert torch.equal(few.inputs[0], x[[7, 2, 2]])
    assert torch.equal(few.inputs[1]["b"], z[[7, 2, 2]])
    assert torch.equal(few.target, y[[7, 2, 2]])
    assert samples.take(slice(8, 20)).n == 2
    assert samples.bytes == 4 * 10 * (3 + 2) + 8 * 10


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((x[:0], y[:0]), "data is empty: expected at least one sample"),
        ([], "data is empty: expected at least one batch"),
        ((x, y[:7]), r"disagree on the number of samples: got \[7, 10\]"),
        (((x, z[:3]), y), r"disagree on the number of samples: got \[3, 10\]"),
        (3, r"must be tensors \(x, y\), a Dataset or an iterable of batches, got int"),
        ("data.pt", r"must come as \(inputs, target\), got str — pass data=\(x, y\)"),
        (x, r"must come as \(inputs, target\), got Tensor — pass data=\(x, y\)"),
        ({"a": x, "b": z}, r"a dict batch needs a target under one of .*'labels'.*got keys \['a', 'b'\]"),
        ([(object(), 1)], "must be made of tensors or arrays, got object"),
        ((x, torch.tensor(1)), "leading sample axis"),
    ],
)
def test_data_that_cannot_be_read(data, message):
    with pytest.raises(bs.InputError, match=message):
        read(data)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_data_are_counted(bad):
    broken = x.clone()
    broken[2, 0] = broken[2, 1] = broken[9, 2] = bad
    with pytest.raises(bs.InputError, match="NaN or infinite values in 2 of 10 samples — clean or drop them"):
        read((broken, y))
    target = torch.zeros(10)
    target[3] = bad
    with pytest.raises(bs.InputError, match="NaN or infinite values in 1 of 10 samples"):
        read((x, target))


def test_single_samples_instead_of_batches():
    # A list of (x_i, y_i) items is easily mistaken for a list of batches.
    with pytest.raises(bs.InputError, match="batch"):
        read([(x[i], int(y[i])) for i in range(10)])
    with pytest.raises(bs.InputError, match="batch"):
        read([(x[i], y[i]) for i in range(10)])


def test_batches_of_different_widths():
    # Token batches padded each to its own longest sequence.
    with pytest.raises(bs.InputError, match=r"pad"):
        read([(torch.zeros(2, 3), torch.zeros(2)), (torch.zeros(2, 4), torch.zeros(2))])


def test_items_that_cannot_be_collated():
    with pytest.raises(bs.InputError, match="object"):
        read(Items(lambda i: (object(), 1)))


def test_read_only_arrays():
    # What memory-mapped files and data frames hand out.
    array = x.numpy().copy()
    array.flags.writeable = False
    assert torch.equal(read((array, y)).inputs, x)
