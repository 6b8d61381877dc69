"""Models of Hugging Face transformers: causal language models and classifiers of images or texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..losses import Loss, token_loss
from ..samples import Samples, read
from .checkpoints import numbers_in

_LOSSES = {
    "multi_label_classification": "bernoulli",
    "regression": "mse",
    "single_label_classification": "cross_entropy",
}
IGNORED_LABEL = -100  # torch's mark of positions that do not count


def pretrained(source: str | Path | nn.Module, revision: str | None = None, subfolder: str = "") -> Any:
    """The model itself, or the one saved in a folder or on the Hub, by the class that its configuration names.

    Args:
        source: a model, a folder, or a name on the Hub, which may end in `@revision`.
        revision: branch, tag or commit on the Hub.
        subfolder: where in the folder or repository the model is.
    """
    if isinstance(source, nn.Module):
        if revision is not None or subfolder:
            raise InputError("revision and subfolder are of models by name: pass the name, or the model alone")
        if not hasattr(source, "config"):
            raise InputError(
                f"model must be a Hugging Face model or a folder of one, got {type(source).__name__} without a "
                f"config — use bs.Landscape(model, loss, data)"
            )
        return source
    try:
        import transformers
    except ImportError as error:
        raise InputError("models by name need transformers — install basinscope[transformers]") from error
    if revision is None and not Path(source).exists() and "@" in str(source):
        source, _, revision = str(source).rpartition("@")
    place: dict[str, Any] = {"revision": revision or "main", "subfolder": subfolder}
    try:
        classes = transformers.AutoConfig.from_pretrained(source, **place).architectures
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"no model of transformers at {source}: {reason} — expected a folder that save_pretrained wrote, or the "
            f"name of one on the Hub, such as 'EleutherAI/pythia-14m@step1000'"
        ) from error
    if not classes or not hasattr(transformers, classes[0]):
        raise InputError(f"the configuration of {source} names no class to load it with: architectures is {classes}")
    return getattr(transformers, classes[0]).from_pretrained(source, dtype=torch.float32, **place).eval()


def saved_models(folder: Path) -> list[Path]:
    """The folders below one that hold a saved model each, in the order of the numbers in their names.

    Examples:
        >>> saved_models(Path("no/such/folder"))
        []
    """
    folders = [config.parent for config in folder.glob("*/config.json")] if folder.is_dir() else []
    return sorted(folders, key=lambda path: (numbers_in(path.name), path.name))


def task(model: Any) -> tuple[str | Loss, bool]:
    """The loss of a model, and whether it predicts the next token."""
    if model.can_generate():
        if getattr(model.config, "is_encoder_decoder", False):
            raise InputError(
                f"{type(model).__name__} is an encoder-decoder: expected a causal language model or a classifier — "
                f"pass its inputs and targets to bs.Landscape yourself"
            )
        return token_loss(), True
    kind = getattr(model.config, "problem_type", None) or "single_label_classification"
    return _LOSSES[kind], False


def model_data(data: Any, causal: bool) -> Samples:
    """Data as keyword inputs and targets.

    A causal model's targets are its own tokens, one position later; the last position, positions whose next token is
    masked out, and positions whose label is −100, have none. Data are token numbers of shape (n, T) or a dict with
    `input_ids` and, where there are any, `attention_mask` and `labels`; for classifiers dicts with `labels`, such as
    `{"pixel_values": x, "labels": y}`, or pairs (x, y). Datasets and iterables of batches of these will do, too.

    Examples:
        >>> import torch
        >>> model_data(torch.tensor([[5, 6, 7]]), causal=True).target.tolist()
        [[6, 7, -100]]
        >>> mask = torch.tensor([[1, 1, 0]])
        >>> model_data({"input_ids": torch.tensor([[5, 6, 0]]), "attention_mask": mask}, causal=True).target.tolist()
        [[6, -100, -100]]
    """
    if not causal:
        return read(data)
    if isinstance(data, Tensor):
        data = {"input_ids": data}
    if isinstance(data, Mapping):
        samples = read(_labelled(data))
    elif isinstance(data, Samples):
        samples = data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (list, tuple)):
        items = [_labelled(data[i]) for i in range(len(data))]
        samples = read({key: torch.stack([torch.as_tensor(item[key]) for item in items]) for key in items[0]})
    else:
        samples = read([_labelled(batch) for batch in data])
    if not isinstance(samples.inputs, Mapping) or "input_ids" not in samples.inputs:
        raise InputError("a causal language model needs token numbers under 'input_ids'")
    ids = samples.inputs["input_ids"]
    if ids.is_floating_point() or ids.ndim != 2 or ids.shape[1] < 2:
        raise InputError(
            f"input_ids must be whole numbers of shape (n, T) with T of at least 2, got {ids.dtype} of shape "
            f"{tuple(ids.shape)}"
        )
    labels = samples.target.clone()
    if "attention_mask" in samples.inputs:
        labels[samples.inputs["attention_mask"] == 0] = IGNORED_LABEL
    target = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED_LABEL)], 1)
    return Samples(samples.inputs, target, samples.n)


def _labelled(batch: Any) -> dict[str, Any]:
    """A batch as a dict whose labels are its own tokens, unless it has others."""
    if isinstance(batch, Tensor):
        batch = {"input_ids": batch}
    if not isinstance(batch, Mapping) or "input_ids" not in batch:
        raise InputError(
            f"a causal language model needs dicts with 'input_ids', or token numbers of shape (n, T), got "
            f"{type(batch).__name__}"
        )
    return {"labels": batch["input_ids"], **batch}


def check_tokens(model: Any, tokens: Tensor) -> None:
    """Refuse sequences that are longer than the model takes, and tokens outside its vocabulary."""
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and tokens.shape[1] > most:
        raise InputError(
            f"sequences have {tokens.shape[1]:,} tokens: {type(model).__name__} takes at most {most:,} — cut them, "
            f"such as by tokens[:, :{most}]"
        )
    table = model.get_input_embeddings()
    size = getattr(table, "num_embeddings", None) or len(table.weight)
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= size:
        raise InputError(
            f"tokens must lie in 0..{size - 1}, the vocabulary of {type(model).__name__}, got values {low}..{high} — "
            f"use the tokenizer that the model was trained with"
        )


@contextmanager
def plain_forward(model: Any) -> Iterator[Any]:
    """The model with attention that can be differentiated twice, and without a cache; then again as it was."""
    config = model.config
    cache, attention = getattr(config, "use_cache", None), getattr(config, "_attn_implementation", None)
    if cache:
        config.use_cache = False
    if attention not in (None, "eager"):
        config._attn_implementation = "eager"
    try:
        yield model
    finally:
        if cache:
            config.use_cache = cache
        if attention not in (None, "eager"):
            config._attn_implementation = attention
