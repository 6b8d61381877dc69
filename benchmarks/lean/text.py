"""Real text for training: sources and documentation of the packages that are installed, as tokens."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

_SHORTEST = 200  # bytes of a file that is read
_ENDINGS = (".py", ".pyi", ".rst", ".md", ".txt", ".h", ".c", ".cpp")


def passages(most: int, folder: Path | None = None) -> Iterator[str]:
    """Texts of files below a folder, the installed packages unless given, in the order of their names."""
    read = 0
    for path in _files(folder or Path(sysconfig.get_paths()["purelib"])):
        if read >= most:
            return
        if path.suffix in _ENDINGS and path.stat().st_size > _SHORTEST:
            text = path.read_text(encoding="utf-8", errors="ignore")[: most - read]
            read += len(text)
            yield text


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, in the order of their names."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(files))


def as_bytes(most: int, folder: Path | None = None) -> Tensor:
    """The text as a stream of bytes, each a token."""
    text = "\n".join(passages(most, folder)).encode()[:most]
    return torch.tensor(list(text), dtype=torch.long)


def as_words(most: int, vocabulary: int) -> tuple[Tensor, int]:
    """The text as a stream of tokens of a byte-pair encoding that is trained on it, and the size of its vocabulary."""
    from tokenizers import ByteLevelBPETokenizer

    encoder = ByteLevelBPETokenizer()
    texts = list(passages(most))
    encoder.train_from_iterator(texts, vocab_size=vocabulary, show_progress=False)
    ids = [number for found in encoder.encode_batch(texts) for number in found.ids]
    return torch.tensor(ids, dtype=torch.long), encoder.get_vocab_size()
