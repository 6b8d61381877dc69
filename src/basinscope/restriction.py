"""Which of a network's parameters are free: whole ones, and slices of others."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from .errors import InputError
from .network import Parameters
from .parts import Part, Piece, plain_name

Slices = Mapping[str, Piece]  # where the free slices belong, by the names that they have as parameters


def chosen(patterns: Sequence[str], parameters: Parameters, parts: Sequence[Part]) -> list[Piece]:
    """The pieces that patterns ask for, each by names of parameters or else by names of parts.

    Examples:
        >>> chosen(["0.*"], {"0.weight": torch.ones(1), "2.weight": torch.ones(1)}, ())
        [Piece(parameter='0.weight', axis=0, index=None)]
    """
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise InputError(f"patterns of parameter names must be text, got {patterns}")
    pieces: list[Piece] = []
    for pattern in patterns:
        tensors = [Piece(name) for name in parameters if fnmatch.fnmatchcase(name, pattern)]
        by_part = [part for part in parts if fnmatch.fnmatchcase(part.name, plain_name(pattern))]
        pieces += tensors or [piece for part in by_part for piece in part.pieces]
        if not tensors and not by_part and any(character.isdigit() for character in pattern) and " " in pattern.strip():
            raise InputError(_unknown((pattern,), parameters, parts))
    if not pieces:
        raise InputError(_unknown(patterns, parameters, parts))
    return pieces


def _unknown(patterns: Sequence[str], parameters: Parameters, parts: Sequence[Part]) -> str:
    pattern = patterns[0] if patterns else ""
    near = difflib.get_close_matches(pattern, parameters, n=3, cutoff=0)
    alike = difflib.get_close_matches(plain_name(pattern), [part.name for part in parts], n=3, cutoff=0)
    also = f", and parts like {alike}: land.parts() lists them" if alike else ""
    return f"no parameter matches {tuple(patterns)}: names are like {near}{also} — '*' stands for any part"


def freed(
    pieces: Iterable[Piece], parameters: Parameters, fixed: Parameters, slices: Slices
) -> tuple[Parameters, Parameters, dict[str, Piece]]:
    """Free and fixed tensors, and where free slices belong, once these pieces alone are free.

    Args:
        pieces: of the network's parameters, or of slices that are free already, by their names.
        parameters: what was free before.
        fixed: all else, with the whole of every parameter that a slice is free of.
        slices: where those slices belong.
    """
    asked: dict[str, list[Piece]] = {}
    for piece in pieces:
        asked.setdefault(piece.parameter, []).append(piece)
    free: Parameters = {}
    rest = dict(fixed)
    where: dict[str, Piece] = {}
    for name, tensor in parameters.items():
        old = slices.get(name)
        mine = asked.get(name, []) if old is None or name in asked else asked.get(old.parameter, [])
        if old is None and (not mine or any(piece.index is None for piece in mine)):
            (free if mine else rest)[name] = tensor
        elif old is not None and any(piece.index is None for piece in mine):
            free[name], where[name] = tensor, old
        elif mine:
            _free_slice(mine, name, tensor, old, free, rest, where)
    return free, rest, where


def _free_slice(
    pieces: Sequence[Piece], name: str, tensor: Tensor, old: Piece | None, free: Parameters, rest: Parameters,
    where: dict[str, Piece],
) -> None:  # fmt: skip
    """Free part of a parameter, or part of a slice of it."""
    parameter = name if old is None else old.parameter
    index = torch.cat([piece.index.to(tensor.device) for piece in pieces if piece.index is not None]).unique()
    places = index
    if old is None:
        if len(index) == tensor.shape[pieces[0].axis]:
            free[name] = tensor
            return
        rest[name] = tensor
    else:
        assert old.index is not None
        places = torch.isin(old.index, index).nonzero()[:, 0]
        index = old.index[places]
        if not len(index):
            return
    piece = Piece(parameter, pieces[0].axis, index)
    label = slice_name(piece)
    free[label] = tensor.index_select(piece.axis, places)
    where[label] = piece


def slice_name(piece: Piece) -> str:
    """A name for a slice, with its places as ranges.

    Examples:
        >>> slice_name(Piece("c_attn.weight", 1, torch.tensor([0, 1, 4, 5, 9])))
        'c_attn.weight[:, 0:2 4:6 9:10]'
    """
    assert piece.index is not None
    ranges: list[list[int]] = []
    for place in piece.index.tolist():
        if ranges and ranges[-1][1] == place:
            ranges[-1][1] += 1
        else:
            ranges.append([place, place + 1])
    return f"{piece.parameter}[{':, ' * piece.axis}{' '.join(f'{start}:{stop}' for start, stop in ranges)}]"


def whole(state: Parameters, slices: Slices) -> Parameters:
    """The network's tensors, with the free slices put into the parameters that they belong to."""
    tensors = dict(state)
    for name, piece in slices.items():
        assert piece.index is not None
        part = tensors.pop(name)
        tensors[piece.parameter] = tensors[piece.parameter].index_copy(piece.axis, piece.index, part)
    return tensors
