"""Natural gradient with Kronecker factors (KFAC): a layer's Fisher matrix as a product of two small ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..curvature.gradients import Rows
from ..curvature.kronecker import Factors, Sharing, check_layer, moments, plus
from ..errors import InputError
from ..losses import PerSample
from ..samples import Samples
from .damping import damped_factor, divided, with_norm_of
from .live import LiveGradients, flat, shaped, trainable
from .natural import NaturalGradient


class KFAC(NaturalGradient):
    """W ← W − lr·(B + κ_B I)⁻¹ ∇W (A + κ_A I)⁻¹ layer by layer, with κ = (α/D)·max(tr, ε) for each factor of size D.

    A = E[a aᵀ] over the layer's inputs (bias included) and B = E[Σ_k δ_k δ_kᵀ] at its outputs are factors of the
    model Fisher matrix, labels integrated out; both are averaged over batches with weight `eta` for the newest.
    Damping each factor in its own dimension is what Povey et al. do. Normalization layers keep their small block
    whole.

    As α → ∞ the direction becomes ∇W/(κ_A κ_B): gradient descent; with `rescale`, exactly so, at rate lr.

    Args:
        model: the network, trained in place; made of Linear, Conv, Embedding, attention and normalization layers.
        loss: as for a `Landscape`: `cross_entropy`, `gaussian` (with `sigma`), `bernoulli` or `mse`.
        lr: learning rate.
        alpha, epsilon: damping.
        eta: weight of the newest batch in the factors.
        rescale: give each layer's direction the norm of its gradient.
        update_period: steps between two looks at the factors; the first ten steps always look. Factors of one batch
            know little of the next: a period above 1 wants a small `eta`, such as 0.05.
        momentum: μ of v ← μ·v + direction, along which a step goes.
        nesterov: go along direction + μ·v instead.
        weight_decay: adds weight_decay·w to the gradient.
        sharing: `expand` or `reduce`, how positions of one weight enter (see `curvature.kronecker`).
        sigma: standard deviation of the Gaussian loss.

    Examples:
        >>> import torch, basinscope as bs
        >>> from basinscope.samples import read
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 10.0]])
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> step = bs.optim.KFAC(net, "mse", lr=1.0, alpha=1e-9)
        >>> batch = read((x, torch.tensor([[3.0], [50.0]])))
        >>> ((net(x) - batch.target).square().sum() / 4).backward()
        >>> step.observe(batch)
        >>> _ = step.step()  # the factors of linear regression are exact
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
        eta: float = 0.9,
        rescale: bool = False,
        update_period: int = 1,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        sharing: Sharing = "expand",
        sigma: float | None = None,
    ) -> None:
        if sharing not in ("expand", "reduce"):
            raise InputError(f"sharing must be 'expand' or 'reduce', got {sharing!r}")
        options = {
            "lr": lr, "alpha": alpha, "epsilon": epsilon, "eta": eta, "rescale": rescale,
            "update_period": update_period, "momentum": momentum, "nesterov": nesterov,
            "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(trainable(model), options)
        self._rows = LiveGradients(model, loss, sigma)
        self._sharing: Sharing = sharing
        self._factors: list[Factors] = []
        self._places: list[Tensor] = []  # which entries of the flat gradient a layer's matrix holds
        self._damped: tuple[tuple[float, float], list[Factors]] | None = None

    def observe(self, batch: Samples) -> None:
        """Take the batch into the factors, where that is due."""
        group = self.param_groups[0]
        if self._factors and not self._due(group):
            return
        with torch.no_grad():
            new = self._moments(batch)
            if self._factors:
                for old, more in zip(self._factors, new, strict=True):
                    for kept, part in zip(old, more, strict=True):
                        if kept is not None and part is not None:
                            kept.lerp_(part, group["eta"])
            else:
                self._factors = new
        self._damped = None

    def _moments(self, batch: Samples) -> list[Factors]:
        """The factors of one batch."""
        sums: list[Factors] = []
        for pieces in self._rows.tiles(batch):
            assert self._rows.land is not None
            if not self._places:
                for piece in pieces:
                    if isinstance(piece, Rows):
                        check_layer(self._rows.land, piece.names, "train it with ExactNGD or OnlineNGD")
                self._places = [piece.index for piece in pieces]
            new = [moments(piece, self._sharing) for piece in pieces]
            sums = [plus(old, more) for old, more in zip(sums, new, strict=True)] if sums else new
        return [(outputs / batch.n, None if inputs is None else inputs / batch.n) for outputs, inputs in sums]

    def _directions(self, gradients: list[Tensor]) -> list[Tensor]:
        group = self.param_groups[0]
        if not self._factors:
            raise InputError("no Fisher matrix to divide by: call observe(batch) before step()")
        damping = group["alpha"], group["epsilon"]
        if self._damped is None or self._damped[0] != damping:
            self._damped = damping, [_damped(factors, *damping) for factors in self._factors]
        gradient = flat(gradients).double()
        direction = torch.zeros_like(gradient)
        for place, (outputs, inputs) in zip(self._places, self._damped[1], strict=True):
            part = gradient[place]
            if inputs is None:
                found = divided(part[:, None], outputs)[:, 0]
            else:
                found = divided(divided(part, outputs).mT, inputs).mT
            direction[place] = with_norm_of(part, found) if group["rescale"] else found
        return shaped(direction, gradients)

    def _fisher_state(self) -> Any:
        return {"factors": [list(factors) for factors in self._factors], "places": self._places}

    def _load_fisher_state(self, state: Any) -> None:
        device = self.param_groups[0]["params"][0].device
        self._places = [place.to(device) for place in state["places"]]
        self._factors = [
            (outputs.to(device=device, copy=True), None if inputs is None else inputs.to(device=device, copy=True))
            for outputs, inputs in state["factors"]
        ]
        self._damped = None


def _damped(factors: Factors, alpha: float, epsilon: float) -> Factors:
    outputs, inputs = factors
    return damped_factor(outputs, alpha, epsilon), None if inputs is None else damped_factor(inputs, alpha, epsilon)
