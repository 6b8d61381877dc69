"""H, F and C of a landscape as linear operators: products with one vector or many, never the matrix itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, jvp, vjp, vmap

from ..errors import InputError
from ..landscape import Landscape, Parameters, check_landscape, math_attention
from ..language.model import LanguageModel
from ..losses import logits
from ..memory import memory_explained
from ..samples import Samples
from .language import LanguageOperator
from .likelihood import missing_likelihood, output_curvature, with_drawn_labels
from .precision import full_precision
from .symmetry import refuse_asymmetric
from .tiles import MAX_PROBES, Tiles, check_vectors, convolutional, plan

Matrix = Literal["hessian", "fisher", "covariance"]
LinearMap = Callable[[Parameters], Parameters]


class Operator(Protocol):
    """A symmetric d × d matrix that can be multiplied: `operator @ v` for v of shape (d,) or (d, k)."""

    dimension: int
    device: torch.device
    dtype: torch.dtype
    psd: bool

    def __matmul__(self, v: Tensor) -> Tensor: ...


class CurvatureOperator:
    """(1/n) Σ_i M_i of a landscape, where a batch's Σ M_i is a linear map on parameter dictionaries.

    Attributes:
        name: `hessian`, `fisher` or `covariance`.
        psd: whether the matrix is positive semi-definite by construction.
        tiles: samples and probes that go through the network at once, from the memory bound.
    """

    def __init__(
        self, land: Landscape, name: str, psd: bool, linear_map: Callable[[Samples], LinearMap], tiles: Tiles
    ) -> None:
        self.land = land
        self.dimension, self.device, self.dtype, self.psd = land.dimension, land.device, land.dtype, psd
        self.name = name
        self.tiles = tiles
        self._linear_map = linear_map
        self._cached_maps: list[LinearMap] | None = None

    def __repr__(self) -> str:
        return f"CurvatureOperator({self.name}, {self.dimension:,} × {self.dimension:,}, {self.tiles})"

    def __matmul__(self, v: Tensor) -> Tensor:
        check_vectors(v, self.dimension, self.name)
        rows = v.to(self.device, self.dtype).reshape(self.dimension, -1).T
        total = torch.zeros_like(rows)
        try:
            with full_precision():
                for linear_map in self._maps():
                    for start in range(0, len(rows), self.tiles.probes):
                        tile = slice(start, start + self.tiles.probes)
                        total[tile] += self._product(linear_map, rows[tile])
        except NotImplementedError as error:
            raise InputError(
                f"products with the {self.name} need a derivative that torch does not have: {error} — write that "
                f"function of the network in others, or sample with sampler='sgld', which takes gradients alone"
            ) from error
        return (total.T / self.land.n).reshape(v.shape)

    def to_scipy(self) -> Any:
        """A `scipy.sparse.linalg.LinearOperator`, for SciPy's solvers and eigenvalues: each product copies its vectors.

        Examples:
            >>> import torch, basinscope as bs
            >>> from scipy.sparse.linalg import eigsh
            >>> x = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
            >>> land = bs.Landscape(torch.nn.Linear(4, 1, bias=False).double(), "mse", (x, x[:, :1]))
            >>> eigsh(bs.operator(land, "hessian").to_scipy(), k=2)[0].round(6).tolist()
            [2.25, 4.0]
        """
        from scipy.sparse.linalg import LinearOperator  # slow to import

        def product(vectors: Any) -> Any:
            return (self @ torch.tensor(vectors, dtype=self.dtype)).cpu().numpy()

        def vector(column: Any) -> Any:
            return product(column.reshape(-1))

        shape, kind = (self.dimension, self.dimension), str(self.dtype).removeprefix("torch.")
        return LinearOperator(shape, matvec=vector, matmat=product, rmatvec=vector, rmatmat=product, dtype=kind)

    def _product(self, linear_map: LinearMap, rows: Tensor) -> Tensor:
        def flat(row: Tensor) -> Tensor:
            return self.land.flatten(linear_map(self.land.unflatten(row)))

        return flat(rows[0])[None] if len(rows) == 1 else vmap(flat)(rows.contiguous())

    def _maps(self) -> Iterator[LinearMap]:
        """The batches' linear maps: built once where they fit in memory, else anew for each product."""
        if self._cached_maps is not None:
            yield from self._cached_maps
            return
        built = []
        for batch in self.land.batches(self.tiles.samples):
            linear_map = self._linear_map(batch)
            if self.tiles.keep:
                built.append(linear_map)
            yield linear_map
        if self.tiles.keep:
            self._cached_maps = built


class Dense:
    """A symmetric matrix held as a tensor, as an operator.

    Examples:
        >>> import torch
        >>> (Dense(2 * torch.eye(2)) @ torch.ones(2)).tolist()
        [2.0, 2.0]
    """

    def __init__(self, matrix: Tensor, *, psd: bool = False) -> None:
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"matrix must be square, got shape {tuple(matrix.shape)}")
        self.matrix = matrix
        self.dimension, self.device, self.dtype, self.psd = len(matrix), matrix.device, matrix.dtype, psd

    def __matmul__(self, v: Tensor) -> Tensor:
        return self.matrix @ v.to(self.matrix)


def hessian(
    land: Landscape, *, memory: int | None = None, probes: int = MAX_PROBES, checked: bool = True
) -> CurvatureOperator:
    """H = ∇²L_n(w*), the Hessian of the mean loss.

    At most `probes` vectors are multiplied at once. With `probes=1`, batches are larger within the same memory. A
    network whose second derivatives are not symmetric is refused, unless `checked` is False.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (x, x))
        >>> (hessian(land) @ torch.ones(1)).item()
        5.0
    """
    if checked:
        refuse_asymmetric(land, lambda few: hessian(few, probes=1, checked=False))
    forward = _forward_mode(land)

    def linear_map(batch: Samples) -> LinearMap:
        return _second_derivative(land, lambda parameters: land.losses(parameters, batch).sum(), forward)

    return CurvatureOperator(land, "hessian", False, linear_map, plan(land, memory, copies=4, most=probes))


def residual(land: Landscape, *, memory: int | None = None) -> CurvatureOperator:
    """H − F = (1/n) Σ_i Σ_k r_ik ∇²z_ik, r_i = ∇_z l_i: what the network's own curvature adds to the Fisher matrix.

    It is the Hessian of Σ_i r_iᵀ z_i(w) with the r_i held fixed, so that a product costs no more than one with H.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(1, 1), "mse", (torch.ones(2, 1), torch.ones(2, 1)))
        >>> (residual(land) @ torch.ones(2)).tolist()
        [0.0, 0.0]
    """
    if land.loss.family == "custom":
        raise InputError(missing_likelihood(land.loss.name))
    refuse_asymmetric(land, lambda few: hessian(few, probes=1, checked=False))
    forward = _forward_mode(land)

    def linear_map(batch: Samples) -> LinearMap:
        with torch.no_grad():
            scores = logits(land.outputs(land.parameters, batch.inputs))
        slope = grad(lambda z: land.loss.per_sample(z, batch.target).sum())(scores)
        return _second_derivative(land, lambda p: (slope * logits(land.outputs(p, batch.inputs))).sum(), forward)

    return CurvatureOperator(land, "residual", False, linear_map, plan(land, memory, copies=4))


def fisher(land: Landscape, *, draws: int = 1, seed: int = 0, memory: int | None = None) -> CurvatureOperator:
    """F = (1/n) Σ_i E_{y|x_i,w*}[∇l ∇lᵀ] = (1/n) Σ_i J_iᵀ B_i J_i, the model Fisher, equal to the Gauss–Newton matrix.

    J_i is the Jacobian of the outputs and B_i the loss's curvature in them, both exact for cross-entropy, Bernoulli
    and Gaussian losses. A loss of your own needs a method `sample(output, generator) -> target`; then the mean over
    y is over `draws` labels per sample, drawn once from `seed`, and F is the covariance C of gradients with them.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "gaussian", (torch.ones(4, 1), torch.ones(4, 1)),
        ...                     sigma=0.5)
        >>> (fisher(land) @ torch.ones(1)).item()
        4.0
    """
    if land.loss.family == "custom":
        sampled = covariance(with_drawn_labels(land, draws, seed), memory=memory)
        sampled.name = "fisher"
        return sampled
    forward = _forward_mode(land)

    def linear_map(batch: Samples) -> LinearMap:
        def outputs(parameters: Parameters) -> Tensor:
            return logits(land.outputs(parameters, batch.inputs))

        return _gauss_newton(land, outputs, lambda scores: output_curvature(land, scores, batch.target), forward)

    return CurvatureOperator(land, "fisher", True, linear_map, plan(land, memory, copies=3))


def covariance(land: Landscape, *, memory: int | None = None) -> CurvatureOperator:
    """C = (1/n) Σ_i ∇l_i ∇l_iᵀ, the uncentred second moment of the per-sample gradients at w*.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.ones(2, 1)))
        >>> land = land.at({"weight": torch.tensor([[3.0]])})
        >>> (covariance(land) @ torch.ones(1)).item()
        4.0
    """

    forward = _forward_mode(land)

    def linear_map(batch: Samples) -> LinearMap:
        return _gauss_newton(land, lambda parameters: land.losses(parameters, batch), lambda _: lambda u: u, forward)

    return CurvatureOperator(land, "covariance", True, linear_map, plan(land, memory, copies=3))


def check_differentiable(land: Any) -> None:
    """Refuse what has no operators: neither a landscape nor a language model in place."""
    if not isinstance(land, LanguageModel):
        check_landscape(land)


@memory_explained()
def operator(
    land: Landscape | LanguageModel, matrix: str, *, memory: int | None = None
) -> CurvatureOperator | LanguageOperator:
    """The operator by its name: H, F or C of the landscape at w*, never written out.

    `operator @ v` multiplies a tensor (d,) or (d, k), `to_scipy` makes a SciPy `LinearOperator` of it.

    Args:
        land: the landscape.
        matrix: `hessian`, `fisher` or `covariance`.
        memory: bytes that a product may take.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(1, 1), "mse", (torch.ones(2, 1), torch.ones(2, 1)))
        >>> operator(land, "fisher").psd
        True
    """
    check_differentiable(land)
    if isinstance(land, LanguageModel):
        return LanguageOperator(land, matrix, memory)
    builders = {"hessian": hessian, "fisher": fisher, "covariance": covariance}
    if not isinstance(matrix, str) or matrix not in builders:
        raise InputError(f"matrix must be one of {', '.join(builders)}, got {matrix!r}")
    build: Any = builders[matrix]
    return build(land, memory=memory)


def _forward_mode(land: Landscape) -> bool:
    """Whether to differentiate forwards where it can be done: with convolutions on a GPU.

    There the backward pass of a convolution's backward pass is slow. A product with the Hessian of a residual network
    (78,042 parameters, 1,000 images, an H200) takes 19 times as long as a gradient that way, and 4 times forwards; on a
    processor 2.1 and 3.4 times.
    """
    return land.device.type == "cuda" and convolutional(land) and _differentiable_forwards(land)


def _differentiable_forwards(land: Landscape) -> bool:
    """Whether the gradient has the same derivative forwards.

    Not every layer has one, and an embedding holds the row of a padding token fixed only backwards.
    """
    if any(isinstance(module, nn.Embedding) and module.padding_idx is not None for module in land.module.modules()):
        return False
    few = land.take(torch.arange(min(2, land.n)))

    def loss(weights: Parameters) -> Tensor:
        return land.losses(weights, few).sum()

    try:
        with warnings.catch_warnings(), math_attention():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, where it loads what forward mode takes
            jvp(grad(loss), (land.parameters,), (land.parameters,))
    except RuntimeError:
        return False
    return True


def _second_derivative(land: Landscape, function: Callable[[Parameters], Tensor], forward: bool) -> LinearMap:
    """v ↦ ∇²f v: the gradient's derivative along v.

    Backwards the gradient's graph is kept, so that a product costs one more backward pass: ∇²f is symmetric.
    """
    slope = grad(function)
    if forward:
        return lambda v: jvp(slope, (land.parameters,), (v,))[1]
    pull = vjp(slope, land.parameters)[1]
    return lambda v: pull(v)[0]


def _gauss_newton(
    land: Landscape,
    function: Callable[[Parameters], Tensor],
    middle: Callable[[Tensor], Callable[[Tensor], Tensor]],
    forward: bool,
) -> LinearMap:
    """v ↦ Jᵀ B J v with Jᵀ kept and, unless `forward`, J, too.

    J v is then the transpose of the linear map u ↦ Jᵀ u: one backward pass through the backward pass. Unlike
    forward-mode differentiation it exists for every layer, and its graph can be kept.
    """
    value, back = vjp(function, land.parameters)[:2]
    weigh = middle(value.detach())
    if forward:
        return lambda v: back(weigh(jvp(function, (land.parameters,), (v,))[1]))[0]
    push = vjp(lambda u: back(u)[0], torch.zeros_like(value))[1]
    return lambda v: back(weigh(push(v)[0]))[0]
