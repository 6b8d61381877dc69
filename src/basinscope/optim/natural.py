"""What every natural-gradient optimizer shares: the step, its norms and its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..checks import positive, whole
from ..errors import InputError
from ..samples import Samples

FIRST = 10  # steps in which the Fisher matrix is always renewed, whatever the period


class NaturalGradient(Optimizer):
    """w ← w − lr·v, where v = F_s⁻¹∇L is the gradient through the inverse of a damped Fisher matrix F_s = F + κI.

    Subclasses say what F is. A step reads the gradients in `.grad`; before it, `observe(batch)` shows the optimizer
    the samples that they came from. `norms` holds what the last step did, on the parameters' device: `direction` is
    ‖v‖ and `update` is ‖lr·v‖.

    Args:
        parameters: tensors, or groups of them.
        options: the settings of a group, of which `lr`, `momentum`, `nesterov` and `weight_decay` are used here.
    """

    norms: dict[str, Tensor]
    undamped = False  # whether α may be 0

    def __init__(self, parameters: Iterable[Any], options: dict[str, Any]) -> None:
        check_options(options, self.undamped)
        super().__init__(parameters, options)
        self.norms = {}
        self.steps = 0  # taken so far: says when the Fisher matrix is due again

    def observe(self, batch: Samples) -> None:
        """Show the samples behind the present gradients; a Fisher matrix of the network is made from them."""

    def _due(self, group: dict[str, Any]) -> bool:
        """Whether this step renews the Fisher matrix."""
        return self.steps < FIRST or self.steps % int(group["update_period"]) == 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; returns what `closure` returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            check_options(group, self.undamped)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        directions = self._directions(self._gradients())
        squares: list[tuple[float, Tensor]] = []
        start = 0
        for group in self.param_groups:
            chosen = slice(start, start + len(group["params"]))
            start = chosen.stop
            if chosen.start == chosen.stop:
                continue
            moves = self._with_momentum(parameters[chosen], directions[chosen], group)
            torch._foreach_add_(parameters[chosen], moves, alpha=-group["lr"])
            lengths = torch.stack(torch._foreach_norm(moves)).double()
            squares.append((group["lr"], lengths.square().sum()))
        self.norms = {
            "direction": torch.stack([square for _, square in squares]).sum().sqrt(),
            "update": torch.stack([lr**2 * square for lr, square in squares]).sum().sqrt(),
        }
        self.steps += 1
        return loss

    def _directions(self, gradients: list[Tensor]) -> list[Tensor]:
        """F_s⁻¹ g of every parameter's gradient, in the order of the groups."""
        raise NotImplementedError

    def _gradients(self) -> list[Tensor]:
        """∇L plus weight decay; zero for parameters that no gradient reached."""
        found = []
        for group in self.param_groups:
            decay = group["weight_decay"]
            for parameter in group["params"]:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                found.append(gradient.add(parameter, alpha=decay) if decay else gradient)
        return found

    def _with_momentum(self, parameters: list[Tensor], directions: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """v ← μ·v + direction, kept between steps; Nesterov's step is along direction + μ·v, as torch's SGD does."""
        momentum = group["momentum"]
        if momentum == 0:
            return directions
        moves = []
        for parameter, direction in zip(parameters, directions, strict=True):
            state = self.state[parameter]
            old = state.get("momentum_buffer")
            state["momentum_buffer"] = direction.clone() if old is None else old.mul_(momentum).add_(direction)
            moves.append(state["momentum_buffer"])
        return list(torch._foreach_add(directions, moves, alpha=momentum)) if group["nesterov"] else moves

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs; `fisher` holds the curvature in the precision it is kept in."""
        return {**super().state_dict(), "steps": self.steps, "fisher": self._fisher_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of an optimizer of the same kind."""
        if "fisher" not in state_dict:
            raise InputError(
                f"this is not the state of {type(self).__name__}: it has no 'fisher' — load it into the optimizer that "
                f"saved it"
            )
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})
        self.steps = state_dict["steps"]
        self._load_fisher_state(state_dict["fisher"])

    def _fisher_state(self) -> Any:
        raise NotImplementedError

    def _load_fisher_state(self, state: Any) -> None:
        raise NotImplementedError


def check_options(options: dict[str, Any], undamped: bool) -> None:
    """Refuse settings of a natural-gradient step that cannot work."""
    positive("lr", options["lr"])
    if not (undamped and options["alpha"] == 0):
        positive("alpha", options["alpha"])
    if not (isinstance(options["epsilon"], (int, float)) and 0 <= options["epsilon"] < math.inf):
        raise InputError(f"epsilon must be a finite number of at least 0, got {options['epsilon']!r}")
    eta = options["eta"]
    if eta is not None and not (isinstance(eta, (int, float)) and 0 < eta <= 1):
        raise InputError(f"eta, the weight of the newest Fisher matrix, must lie in (0, 1], got {eta!r}")
    if not (isinstance(options["momentum"], (int, float)) and 0 <= options["momentum"] < 1):
        raise InputError(f"momentum must lie in [0, 1), got {options['momentum']!r}")
    if options["nesterov"] and not options["momentum"]:
        raise InputError("nesterov needs a momentum above 0, got 0 — give momentum=0.9, say")
    if not (isinstance(options["weight_decay"], (int, float)) and 0 <= options["weight_decay"] < math.inf):
        raise InputError(f"weight_decay must be a finite number of at least 0, got {options['weight_decay']!r}")
    whole("update_period", options["update_period"], least=1)
