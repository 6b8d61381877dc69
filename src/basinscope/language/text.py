"""A text as tokens of a saved model's own tokenizer, or tokens that lie in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError

_TOKENS = ".npy"


def tokens_in(path: Path, model: str, revision: str | None = None) -> Any:
    """The tokens of a file: those of an `.npy` array, memory-mapped, or of a text as the model's tokenizer reads it.

    Args:
        path: the file.
        model: folder or name of the saved model, whose tokenizer lies beside it.
        revision: of a model on the Hub.
    """
    if not path.is_file():
        raise InputError(f"no file at {path}: expected a text, or an .npy array of token numbers")
    if path.suffix == _TOKENS:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise InputError("texts need transformers — install basinscope[transformers]") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, revision=revision or "main")
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"no tokenizer at {model}: {reason} — save it beside the model by tokenizer.save_pretrained, or pass an "
            f".npy array of token numbers"
        ) from error
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {error} — or an .npy array of token numbers") from error
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if not ids:
        raise InputError(
            f"the tokenizer at {model} makes no tokens of {path}: it has no vocabulary, or the text is empty — save "
            f"the tokenizer beside the model by tokenizer.save_pretrained, or pass an .npy array of token numbers"
        )
    return torch.tensor(ids, dtype=torch.long)
