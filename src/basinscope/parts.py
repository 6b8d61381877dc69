"""The parts that transformers are known by: layers, attention heads and groups, MLPs, norms, embeddings.

A head is a slice of larger matrices, which have no name of their own for it: a part is a list of pieces of parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

_LAYOUT_OF_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_SHORT = re.compile(r"l(\d+)(?:h(\d+))?")
KINDS = ("embedding", "positions", "layer", "attention", "head", "group", "mlp", "norm", "unembedding")


@dataclass(frozen=True)
class Piece:
    """Part of a parameter: the entries `index` along `axis`, or all of it where `index` is None."""

    parameter: str
    axis: int = 0
    index: Tensor | None = None


@dataclass(frozen=True)
class Part:
    """A part of a network by the name that people have for it, such as `layer 3 head 5`.

    Attributes:
        name: of the part, as `Landscape.restrict` takes it.
        kind: `layer`, `attention`, `head`, `group`, `mlp`, `norm`, `embedding`, `positions` or `unembedding`.
        pieces: the parameters, or slices of parameters, that it is made of.
        parameters: their number of entries.
        layer, number: which layer, and which head or group of it; None where that means nothing.
    """

    name: str
    kind: str
    pieces: tuple[Piece, ...] = field(repr=False)
    parameters: int
    layer: int | None = None
    number: int | None = None


def parts_of(module: nn.Module, parameters: Mapping[str, Tensor], slices: Iterable[Piece] = ()) -> tuple[Part, ...]:
    """The parts of a transformer, in the order of its computation; none where no attention is recognized.

    Known are the attention of GPT-2 (`c_attn`), of GPT-NeoX (`query_key_value`), of Llama, Qwen, Mistral, Gemma and
    GPT-Neo (`q_proj`), of TransformerLens (`W_Q`), `nn.MultiheadAttention` and `zoo.models.transformer`.

    Args:
        module: the network.
        parameters: its free parameters by name; a part none of whose parameters is free is left out.
        slices: of those parameters that are free in part, what is.
    """
    attentions = [(name, heads) for name, each in module.named_modules() if (heads := _heads(each)) is not None]
    if not attentions:
        return ()
    blocks = _blocks([name for name, _ in attentions])
    build = _Builder(parameters, {piece.parameter: piece for piece in slices})
    outside = [name for name in parameters if not any(name.startswith(f"{block}.") for block in blocks)]
    _embeddings(build, module, outside)
    for number, (block, (path, heads)) in enumerate(zip(blocks, attentions, strict=True)):
        _layer(build, number, block, path, heads)
    _last(build, module, outside)
    return tuple(build.parts)


class _Builder:
    """Collects parts of the free parameters."""

    def __init__(self, parameters: Mapping[str, Tensor], slices: Mapping[str, Piece]) -> None:
        self.parameters, self._slices = parameters, slices
        self.parts: list[Part] = []

    def add(
        self, name: str, kind: str, pieces: Iterator[Piece] | list[Piece], layer: int | None = None,
        number: int | None = None,
    ) -> None:  # fmt: skip
        """A part of those of the pieces that are free, if there are any."""
        free = tuple(piece for given in pieces if (piece := self._free(given)) is not None)
        if free:
            self.parts.append(Part(name, kind, free, sum(map(self._size, free)), layer, number))

    def _free(self, piece: Piece) -> Piece | None:
        """What is free of a piece, if anything is."""
        free = self._slices.get(piece.parameter)
        if piece.parameter not in self.parameters or free is None or free.index is None:
            return piece if piece.parameter in self.parameters else None
        index = free.index if piece.index is None else free.index[torch.isin(free.index.cpu(), piece.index.cpu())]
        return Piece(piece.parameter, free.axis, index) if len(index) else None

    def _size(self, piece: Piece) -> int:
        whole = self.parameters[piece.parameter]
        return whole.numel() if piece.index is None else whole.numel() // whole.shape[piece.axis] * len(piece.index)

    def below(self, path: str) -> list[str]:
        """Parameters of the module at `path`."""
        return [name for name in self.parameters if name.startswith(f"{path}.")]


def _embeddings(build: _Builder, module: nn.Module, outside: list[str]) -> None:
    """Tables outside the layers: of tokens first, then of positions."""
    tables = [name for name, each in module.named_modules() if _is_table(each)]
    owned = [name for name in outside if name.rpartition(".")[0] in tables]
    positions = [name for name in outside if re.search(r"(^|\.)(wpe|pos\w*|W_pos)(\.|$)", name)]
    tokens = [name for name in owned if name not in positions]
    build.add("embedding", "embedding", [Piece(name) for name in tokens])
    build.add("positions", "positions", [Piece(name) for name in positions])


def _is_table(module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding) or isinstance(getattr(module, "W_E", None), nn.Parameter)


def _last(build: _Builder, module: nn.Module, outside: list[str]) -> None:
    """What comes after the layers."""
    taken = {piece.parameter for part in build.parts for piece in part.pieces}
    rest = [name for name in outside if name not in taken]
    norms = [name for name in rest if build.parameters[name].ndim < 2 and "norm" in _kind_of(module, name)]
    build.add("final norm", "norm", [Piece(name) for name in norms])
    build.add("unembedding", "unembedding", [Piece(name) for name in rest if name not in norms])


def _kind_of(module: nn.Module, name: str) -> str:
    owner = module.get_submodule(name.rpartition(".")[0])
    return type(owner).__name__.lower().replace("layernormpre", "norm")


def _layer(build: _Builder, number: int, block: str, path: str, heads: _Heads) -> None:
    """A layer and its parts."""
    name = f"layer {number}"
    inside, attention = build.below(block), build.below(path)
    build.add(name, "layer", [Piece(each) for each in inside], number)
    build.add(f"{name} attention", "attention", [Piece(each) for each in attention], number)
    for head in range(heads.count):
        build.add(f"{name} head {head}", "head", list(heads.head(head, path)), number, head)
    if heads.groups < heads.count:
        for group in range(heads.groups):
            build.add(f"{name} group {group}", "group", list(heads.group(group, path)), number, group)
    others: dict[str, list[str]] = {}  # children of the block beside the one with the attention
    for each in inside:
        if each not in attention:
            others.setdefault(each[len(block) + 1 :].split(".")[0], []).append(each)
    mlp: list[Piece] = []
    norms: list[Piece] = []
    for names in others.values():
        wide = any(build.parameters[each].ndim > 1 for each in names)
        (mlp if wide else norms).extend(map(Piece, names))
    build.add(f"{name} mlp", "mlp", mlp, number)
    build.add(f"{name} norm", "norm", norms, number)


def _blocks(paths: list[str]) -> list[str]:
    """The module that holds each attention, as far up as no other attention is in it."""
    blocks = []
    for path in paths:
        names = path.split(".")
        alone = path
        for depth in range(len(names) - 1, 0, -1):
            above = ".".join(names[:depth])
            if any(other != path and other.startswith(f"{above}.") for other in paths) or not re.search(r"\d", above):
                break
            alone = above
        blocks.append(alone)
    return blocks


# ---------------------------------------------------------------------- how heads lie in the weights of attention


@dataclass(frozen=True)
class _Heads:
    """`count` heads that share keys and values in `groups`; `rows(kind, number)` are pieces of a head's own.

    Attributes:
        query: the pieces of a head's queries and outputs, by its number, relative to the attention.
        key: the pieces of keys and values, by the number of the group.
    """

    count: int
    groups: int
    query: Callable[[int], list[Piece]]
    key: Callable[[int], list[Piece]]

    def head(self, number: int, path: str) -> Iterator[Piece]:
        """A head: its queries and outputs, and keys and values where no other head has these."""
        pieces = self.query(number) + (self.key(number) if self.groups == self.count else [])
        return _merged(pieces, path)

    def group(self, number: int, path: str) -> Iterator[Piece]:
        """The heads that share keys and values, with these."""
        each = self.count // self.groups
        queries = [piece for head in range(number * each, (number + 1) * each) for piece in self.query(head)]
        return _merged(queries + self.key(number), path)


def _merged(pieces: list[Piece], path: str) -> Iterator[Piece]:
    """Pieces with the path of the attention before their names, those of one parameter as one."""
    by_name: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_name.setdefault(piece.parameter, []).append(piece)
    for name, group in by_name.items():
        index = torch.cat([piece.index for piece in group if piece.index is not None])
        yield Piece(f"{path}.{name}", group[0].axis, index.unique())


def _span(start: int, size: int) -> Tensor:
    return torch.arange(start * size, (start + 1) * size)


def _heads(module: nn.Module) -> _Heads | None:
    """How the heads of an attention lie in its weights; None for another module."""
    for reader in (_gpt2, _neox, _separate, _lens, _multihead, _own):
        heads = reader(module)
        if heads is not None:
            return heads
    return None


def _width(module: nn.Module, name: str) -> int | None:
    """The number of outputs of a linear layer of the attention, if it has one of that name."""
    layer = getattr(module, name, None)
    base = getattr(layer, "base_layer", layer)  # what an adapter has been put around
    return getattr(base, "out_features", None) or getattr(base, "nf", None)


def _gpt2(module: nn.Module) -> _Heads | None:
    """Columns of `c_attn` are queries, keys, values, each by heads; rows of `c_proj` are outputs."""
    count, size = getattr(module, "num_heads", None), getattr(module, "head_dim", None)
    if _width(module, "c_attn") is None or not isinstance(count, int) or not isinstance(size, int):
        return None

    def pieces_of(head: int) -> list[Piece]:
        joint = torch.cat([_span(block * count + head, size) for block in range(3)])
        outputs = Piece("c_proj.weight", 0, _span(head, size))
        return [Piece("c_attn.weight", 1, joint), Piece("c_attn.bias", 0, joint), outputs]

    return _Heads(count, count, pieces_of, lambda _: [])


def _neox(module: nn.Module) -> _Heads | None:
    """Rows of `query_key_value` are heads, each with its queries, keys and values; columns of `dense` are outputs."""
    width, size = _width(module, "query_key_value"), getattr(module, "head_size", None)
    if width is None or not isinstance(size, int) or width % (3 * size):
        return None
    count = width // (3 * size)

    def pieces_of(head: int) -> list[Piece]:
        joint, outputs = _span(head, 3 * size), Piece("dense.weight", 1, _span(head, size))
        return [Piece("query_key_value.weight", 0, joint), Piece("query_key_value.bias", 0, joint), outputs]

    return _Heads(count, count, pieces_of, lambda _: [])


def _separate(module: nn.Module) -> _Heads | None:
    """Rows of `q_proj`, `k_proj` and `v_proj` are heads or groups of them; columns of `o_proj` are outputs."""
    queries, keys, _ = widths = tuple(_width(module, name) for name in _LAYOUT_OF_PROJECTIONS)
    size = getattr(module, "head_dim", None)
    if None in widths or not isinstance(size, int) or queries % size or keys % size:  # type: ignore[operator]
        return None
    output = "o_proj" if hasattr(module, "o_proj") else "out_proj"

    def query(head: int) -> list[Piece]:
        rows = _span(head, size)
        return [Piece("q_proj.weight", 0, rows), Piece("q_proj.bias", 0, rows), Piece(f"{output}.weight", 1, rows)]

    def key(group: int) -> list[Piece]:
        rows = _span(group, size)
        return [Piece(f"{name}.{kind}", 0, rows) for name in ("k_proj", "v_proj") for kind in ("weight", "bias")]

    return _Heads(queries // size, keys // size, query, key)  # type: ignore[operator]


def _lens(module: nn.Module) -> _Heads | None:
    """TransformerLens: heads are the first axis of every weight."""
    weights = [getattr(module, name, None) for name in ("W_Q", "_W_K", "W_K", "W_O")]
    query, _, key, _ = weights
    if not isinstance(query, Tensor) or not isinstance(key, Tensor) or query.ndim != 3:
        return None
    count = len(query)
    grouped = isinstance(weights[1], nn.Parameter)
    names = [f"{'_' if grouped else ''}{name}" for name in ("W_K", "W_V", "b_K", "b_V")]
    groups = len(weights[1]) if grouped else count  # type: ignore[arg-type]

    def rows(kinds: list[str]) -> Callable[[int], list[Piece]]:
        return lambda number: [Piece(name, 0, torch.tensor([number])) for name in kinds]

    return _Heads(count, groups, rows(["W_Q", "b_Q", "W_O"]), rows(names))


def _multihead(module: nn.Module) -> _Heads | None:
    """`nn.MultiheadAttention` with one joint projection."""
    if not isinstance(module, nn.MultiheadAttention) or module.in_proj_weight is None:
        return None
    count, size = module.num_heads, module.head_dim
    return _Heads(count, count, _joint_rows("in_proj_weight", "in_proj_bias", "out_proj.weight", count, size), _none)


def _own(module: nn.Module) -> _Heads | None:
    """`zoo.models.transformer`: rows of `project` are queries, keys, values, each by heads."""
    count, width = getattr(module, "heads", None), _width(module, "project")
    if not isinstance(count, int) or width is None or _width(module, "output") is None or width % (3 * count):
        return None
    size = width // (3 * count)
    return _Heads(count, count, _joint_rows("project.weight", "project.bias", "output.weight", count, size), _none)


def _joint_rows(weight: str, bias: str, output: str, count: int, size: int) -> Callable[[int], list[Piece]]:
    def pieces_of(head: int) -> list[Piece]:
        joint = torch.cat([_span(block * count + head, size) for block in range(3)])
        return [Piece(weight, 0, joint), Piece(bias, 0, joint), Piece(output, 1, _span(head, size))]

    return pieces_of


def _none(_: int) -> list[Piece]:
    return []


def plain_name(text: str) -> str:
    """A part's name as people abbreviate it, spelt out.

    Examples:
        >>> plain_name("l3h5"), plain_name("Layer 3  Head 5")
        ('layer 3 head 5', 'layer 3 head 5')
    """
    words = " ".join(text.lower().split())
    short = _SHORT.fullmatch(words)
    if short is None:
        return words
    layer, head = short.groups()
    return f"layer {layer}" if head is None else f"layer {layer} head {head}"
