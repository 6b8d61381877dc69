"""Exact damped natural gradient: the whole model Fisher matrix of the batch, for small networks."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..curvature.dense import merged
from ..curvature.gradients import Outer, Piece
from ..curvature.tiles import memory_bound
from ..errors import InputError
from ..losses import PerSample
from ..samples import Samples
from .damping import damped_factor, divided, kappa, with_norm_of
from .live import LiveGradients, flat, shaped, trainable
from .natural import NaturalGradient

Solve = Literal["auto", "primal", "dual"]


class ExactNGD(NaturalGradient):
    """w ← w − lr·(F + κI)⁻¹∇L with the model Fisher matrix F and κ = (α/d)·max(tr F, ε) (papers 000/001, eqs. 5–7).

    F = GᵀG/m has a row of G for each of the batch's m samples and each direction of its outputs, labels integrated
    out under the model. The system is solved in `primal` form, d × d, or in `dual` form,
    (F + κI)⁻¹g = (g − Gᵀ(GGᵀ/m + κI)⁻¹Gg/m) / κ, in the number of rows; `auto` takes the smaller. Both in float64.

    As α → ∞, κ·(F + κI)⁻¹ → I: gradient descent at rate lr/κ, or at rate lr with `rescale`.

    Args:
        model: the network, trained in place.
        loss: as for a `Landscape`: `cross_entropy`, `gaussian` (with `sigma`), `bernoulli` or `mse`.
        lr: learning rate.
        alpha, epsilon: damping.
        eta: F ← eta·F_batch + (1 − eta)·F; below 1 only the primal form can be used.
        rescale: give the direction the norm of the gradient.
        update_period: steps between two Fisher matrices, made anew in each of the first ten; above 1 only the primal
            form can be used.
        momentum: μ of v ← μ·v + direction, along which a step goes.
        nesterov: go along direction + μ·v instead.
        weight_decay: adds weight_decay·w to the gradient.
        solve: `auto`, `primal` or `dual`.
        sigma: standard deviation of the Gaussian loss.

    Examples:
        >>> import torch, basinscope as bs
        >>> from basinscope.samples import read
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 10.0]])
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> step = bs.optim.ExactNGD(net, "mse", lr=1.0, alpha=1e-9)
        >>> batch = read((x, torch.tensor([[3.0], [50.0]])))
        >>> ((net(x) - batch.target).square().sum() / 4).backward()
        >>> step.observe(batch)
        >>> _ = step.step()  # one Newton step solves linear regression
        >>> [round(w, 4) for w in net.weight[0].tolist()]
        [3.0, 5.0]
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | PerSample = "cross_entropy",
        *,
        lr: float = 1e-2,
        alpha: float = 0.1,
        epsilon: float = 1e-10,
        eta: float = 1.0,
        rescale: bool = False,
        update_period: int = 1,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        solve: Solve = "auto",
        sigma: float | None = None,
    ) -> None:
        if solve not in ("auto", "primal", "dual"):
            raise InputError(f"solve must be 'auto', 'primal' or 'dual', got {solve!r}")
        options = {
            "lr": lr, "alpha": alpha, "epsilon": epsilon, "eta": eta, "rescale": rescale,
            "update_period": update_period, "momentum": momentum, "nesterov": nesterov,
            "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(trainable(model), options)
        if solve == "dual" and (eta < 1 or update_period > 1):
            raise InputError(
                f"the dual form knows one batch only: it needs eta=1 and update_period=1, got eta={eta} and "
                f"update_period={update_period} — take solve='primal'"
            )
        self._rows = LiveGradients(model, loss, sigma)
        self._solve: Solve = solve
        self._primal = _Primal()
        self._dual: _Dual | None = None

    def observe(self, batch: Samples) -> None:
        """Make the Fisher matrix of the batch, where one is due."""
        group = self.param_groups[0]
        if self._primal.matrix is not None and not self._due(group):
            return
        with torch.no_grad():
            tiles = [merged(pieces) for pieces in self._rows.tiles(batch)]
            if self._form(batch) == "dual":
                self._dual = _Dual(tiles, batch.n)
            else:
                self._primal.add(tiles, batch.n, group["eta"], sum(p.numel() for p in group["params"]))

    def _form(self, batch: Samples) -> Solve:
        """The form asked for or, of those possible, the cheaper one; refuses a matrix that does not fit."""
        group = self.param_groups[0]
        assert self._rows.land is not None
        size, rows = self._rows.land.dimension, batch.n * self._rows.roots
        form = self._solve
        if form == "auto":
            lasting = group["eta"] < 1 or group["update_period"] > 1 or self._primal.matrix is not None
            form = "primal" if lasting or size <= rows else "dual"
        order, room = (rows if form == "dual" else size), 4 * memory_bound(self._rows.land, None)
        if 3 * 8 * order**2 > room:
            other = "eta=1, update_period=1 and solve='dual'" if form == "primal" else "a smaller batch"
            raise InputError(
                f"the {form} form takes {order:,} × {order:,} matrices: three of {8 * order**2 / 2**30:.1f} GiB are "
                f"above the bound of {room / 2**30:.1f} GiB — take {other}, or KFAC"
            )
        return form

    def _directions(self, gradients: list[Tensor]) -> list[Tensor]:
        group = self.param_groups[0]
        gradient = flat(gradients).double()
        alpha, epsilon = group["alpha"], group["epsilon"]
        if self._dual is not None:
            direction = self._dual.solve(gradient, alpha, epsilon)
            self._dual = None  # belongs to the weights it was made at
        elif self._primal.matrix is not None:
            direction = self._primal.solve(gradient, alpha, epsilon)
        else:
            raise InputError("no Fisher matrix to divide by: call observe(batch) before step()")
        if group["rescale"]:
            direction = with_norm_of(gradient, direction)
        return shaped(direction, gradients)

    def _fisher_state(self) -> Any:
        return {"matrix": self._primal.matrix}

    def _load_fisher_state(self, state: Any) -> None:
        self._primal = _Primal()
        device = self.param_groups[0]["params"][0].device
        self._primal.matrix = None if state["matrix"] is None else state["matrix"].to(device=device, copy=True)
        self._dual = None


class _Primal:
    """F as a d × d matrix in float64, averaged over batches."""

    def __init__(self) -> None:
        self.matrix: Tensor | None = None
        self._factor: tuple[tuple[float, float], Tensor] | None = None

    def add(self, tiles: list[list[Piece]], samples: int, eta: float, size: int) -> None:
        new: Tensor | None = None
        for pieces in tiles:
            rows = [piece.rows() for piece in pieces]
            values = torch.cat([row.values.flatten(0, 1) for row in rows], 1).double()
            order = torch.cat([row.index for row in rows]).argsort()
            ordered = values[:, order]
            new = torch.zeros(size, size, dtype=ordered.dtype, device=ordered.device) if new is None else new
            new.addmm_(ordered.T, ordered, alpha=1 / samples)
        assert new is not None
        self.matrix = new if self.matrix is None or eta == 1 else self.matrix.lerp_(new, eta)
        self._factor = None

    def solve(self, gradient: Tensor, alpha: float, epsilon: float) -> Tensor:
        assert self.matrix is not None
        if self._factor is None or self._factor[0] != (alpha, epsilon):
            self._factor = (alpha, epsilon), damped_factor(self.matrix, alpha, epsilon)
        return divided(gradient[:, None], self._factor[1])[:, 0]


class _Dual:
    """The rows of one batch, and their products with one another."""

    def __init__(self, tiles: list[list[Piece]], samples: int) -> None:
        self.tiles, self.samples = tiles, samples

    def solve(self, gradient: Tensor, alpha: float, epsilon: float) -> Tensor:
        gram = torch.cat([torch.cat([_products(one, two) for two in self.tiles], 1) for one in self.tiles])
        gram = gram / self.samples
        damping = kappa(gram.trace(), len(gradient), alpha, epsilon)
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        factor, _ = torch.linalg.cholesky_ex(gram + damping * identity)
        along = torch.cat([_along(pieces, gradient) for pieces in self.tiles])
        weights = divided(along[:, None], factor)[:, 0] / self.samples
        inside = torch.zeros_like(gradient)
        start = 0
        for pieces in self.tiles:
            stop = start + _count(pieces)
            _add_combination(inside, pieces, weights[start:stop])
            start = stop
        return (gradient - inside) / damping


def _count(pieces: list[Piece]) -> int:
    first = pieces[0].left if isinstance(pieces[0], Outer) else pieces[0].values
    return first.shape[0] * first.shape[1]


def _products(one: list[Piece], two: list[Piece]) -> Tensor:
    """g·h of the rows of two tiles; (δ·ε)(a·b) where they are outer products of one position."""
    total: Tensor | None = None
    for first, second in zip(one, two, strict=True):
        if isinstance(first, Outer) and isinstance(second, Outer):
            outputs = first.left.double().flatten(0, 2) @ second.left.double().flatten(0, 2).T
            inputs = first.right.double().flatten(0, 1) @ second.right.double().flatten(0, 1).T
            roots = first.left.shape[1]
            product = outputs * inputs.repeat_interleave(roots, 0).repeat_interleave(roots, 1)
        else:
            product = first.rows().values.double().flatten(0, 1) @ second.rows().values.double().flatten(0, 1).T
        total = product if total is None else total + product
    assert total is not None
    return total


def _along(pieces: list[Piece], vector: Tensor) -> Tensor:
    """G v."""
    total = vector.new_zeros(_count(pieces))
    for piece in pieces:
        part = vector[piece.index]
        if isinstance(piece, Outer):
            total += torch.einsum(
                "mro,oi,mi->mr", piece.left[:, :, 0].double(), part, piece.right[:, 0].double()
            ).flatten()
        else:
            total += piece.values.double().flatten(0, 1) @ part
    return total


def _add_combination(total: Tensor, pieces: list[Piece], weights: Tensor) -> None:
    """Add Gᵀ u."""
    for piece in pieces:
        if isinstance(piece, Outer):
            mixed = torch.einsum("mr,mro->mo", weights.view(piece.left.shape[:2]), piece.left[:, :, 0].double())
            total[piece.index] += mixed.T @ piece.right[:, 0].double()
        else:
            total[piece.index] += weights @ piece.values.double().flatten(0, 1)
