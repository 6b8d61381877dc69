"""A character-level text: short stories of any length from a small grammar, always the same for a seed."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from ...checks import whole
from .sets import DataSet, Pair

ALPHABET = " .,abcdefghijklmnopqrstuvwxyz"

_ADJECTIVES = (
    "old",
    "small",
    "quiet",
    "bright",
    "green",
    "tired",
    "clever",
    "distant",
    "heavy",
    "warm",
    "empty",
    "curious",
    "gentle",
    "cold",
)
_THINGS = (
    "river",
    "lamp",
    "garden",
    "stone",
    "letter",
    "window",
    "boat",
    "mountain",
    "bell",
    "road",
    "bridge",
    "forest",
    "kettle",
    "map",
)
_PEOPLE = ("sailor", "teacher", "child", "baker", "miller", "singer", "doctor", "traveller", "weaver", "farmer")
_VERBS = ("found", "carried", "watched", "followed", "painted", "forgot", "mended", "kept", "crossed", "remembered")
_PLACES = ("near the {t}", "under the {a} {t}", "beyond the {t}", "behind a {a} {t}", "by the {t}")
_TIMES = ("in the morning", "that night", "after the rain", "before the storm", "for a long time", "once more")
_PATTERNS = (
    "the {p} {v} a {a} {t}",
    "the {a} {p} {v} the {t} {l}",
    "{w}, the {p} {v} the {a} {t}",
    "the {p} {v} the {t}, and the {q} {u} a {b} {s}",
    "nobody {v} the {t} {w}",
)


def story(characters: int, seed: int = 0) -> str:
    """That many characters of text over 29 symbols: the letters, the space, the comma and the full stop.

    Examples:
        >>> story(40)
        'the miller kept a gentle letter. the gen'
    """
    length = whole("characters", characters, least=1)
    draw = random.Random(seed)
    pieces, total = [], 0
    while total < length:
        sentence = _sentence(draw) + ". "
        pieces.append(sentence)
        total += len(sentence)
    return "".join(pieces)[:length]


def _sentence(draw: random.Random) -> str:
    place = draw.choice(_PLACES).format(a=draw.choice(_ADJECTIVES), t=draw.choice(_THINGS))
    return draw.choice(_PATTERNS).format(
        p=draw.choice(_PEOPLE),
        q=draw.choice(_PEOPLE),
        v=draw.choice(_VERBS),
        u=draw.choice(_VERBS),
        a=draw.choice(_ADJECTIVES),
        b=draw.choice(_ADJECTIVES),
        t=draw.choice(_THINGS),
        s=draw.choice(_THINGS),
        w=draw.choice(_TIMES),
        l=place,
    )


def characters(n: int, length: int = 32, *, test: int = 200, seed: int = 0) -> DataSet:
    """Windows of `length` characters of a story as token numbers, with the same shifted by one as target.

    The windows do not overlap; those for testing come from another story of the same grammar.

    Examples:
        >>> data = characters(50, length=16)
        >>> data, decode(data.train[0][0])
        (DataSet(text: 50 + 200 samples of shape (16,), 29 classes), 'the miller kept ')
    """
    length = whole("length", length, least=1)
    train = _windows(story(whole("n", n, least=1) * length + 1, 2 * seed), length)
    held_out = _windows(story(whole("test", test, least=1) * length + 1, 2 * seed + 1), length)
    return DataSet("text", train, held_out, len(ALPHABET))


def _windows(text: str, length: int) -> Pair:
    tokens = torch.tensor([ALPHABET.index(letter) for letter in text])
    return tokens[:-1].view(-1, length), tokens[1:].view(-1, length)


def decode(tokens: Tensor) -> str:
    """Token numbers as text.

    Examples:
        >>> decode(torch.tensor([3, 4, 1]))
        'ab.'
    """
    return "".join(ALPHABET[token] for token in tokens.tolist())
