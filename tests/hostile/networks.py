"""Networks that ask for trouble, as small as they can be, and a dense reference for their curvature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

import basinscope as bs

_GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(24, 4, generator=_GENERATOR)
R = torch.randn(24, 3, generator=_GENERATOR)
Y = torch.randint(3, (24,), generator=_GENERATOR)
TOKENS = torch.randint(6, (24, 3), generator=_GENERATOR)
WAVES = torch.randn(24, 3, 2, generator=_GENERATOR)
RIDGE = 50.0  # above minus the least eigenvalue of every Hessian here
IMAGES = torch.randn(24, 2, 5, 5, generator=_GENERATOR)
WORDS = torch.randn(24, 3, 4, generator=_GENERATOR)


def land(model: nn.Module, loss: Any = "mse", data: Any = None, **options: Any) -> bs.Landscape:
    return bs.Landscape(model, loss, (X, R) if data is None else data, **options)


class Net(nn.Module):
    """Two linear layers with whatever `middle` makes of what is between them: `middle(net, h)`."""

    def __init__(self, middle: Callable[[Any, Tensor], Any], width: int = 5, **more: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer, self.middle = nn.Linear(4, width), nn.Linear(width, 3), middle
        for name, module in more.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.middle(self, self.inner(x)))


class Ends(nn.Module):
    """A linear layer and whatever `end` makes of its output and its input."""

    def __init__(self, end: Callable[[Any, Tensor, Tensor], Any], **more: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.end, self.count = nn.Linear(4, 3), end, 0
        for name, value in more.items():
            self.register_buffer(name, value) if isinstance(value, Tensor) else setattr(self, name, value)

    def forward(self, x: Tensor) -> Any:
        self.count += 1
        return self.end(self, self.layer(x), x)


class Square(torch.autograd.Function):
    """As tutorials have it: a function with its own backward, and without what functorch wants."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * g * x


class Embedded(nn.Module):
    def __init__(self, embedding: nn.Module, bag: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.outer, self.bag = embedding, nn.Linear(3, 3), bag

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.embedding(x))
        return self.outer(h if self.bag else h.sum(1))


def table(**options: Any) -> nn.Module:
    torch.manual_seed(1)
    return Embedded(nn.Embedding(6, 3, **options))


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.Module], **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.outer = cell(2, 3, **options), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.cell(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.outer = layer, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        attended = self.layer(x, x, x)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.outer(attended.mean(1))


def written(value: float) -> nn.Module:
    """A linear layer with one weight of this value."""
    layer = nn.Linear(4, 3)
    layer.weight.data[0, 0] = value
    return layer


def with_parameter(name: str, tensor: Tensor, free: bool = True) -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.register_parameter(name, nn.Parameter(tensor, requires_grad=free))
    return layer


def half_normed(old: bool = False, **options: Any) -> nn.Module:
    net = Net(lambda net, h: h.relu())
    (nn.utils.weight_norm if old else nn.utils.parametrizations.weight_norm)(net.inner, **options)
    return net


def parametrized(how: Callable[[nn.Module], nn.Module]) -> nn.Module:
    net = Net(lambda net, h: h.relu())
    how(net.inner)
    return net.eval()


def convolution(layer: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(layer, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def with_hook() -> nn.Module:
    net = Net(lambda net, h: h.relu())
    net.inner.register_forward_hook(lambda module, inputs, output: output * output)
    return net


def unseen_norm(net: Any, h: Tensor) -> Tensor:
    return functional.batch_norm(h, None, None, training=True)


def standardized(net: Any, h: Tensor) -> Tensor:
    return (h - h.mean(0)) / (h.std(0) + 1e-5)


def without_gradient(net: Any, h: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(h)


def grows(net: Any, y: Tensor, x: Tensor) -> Tensor:
    return y * (1 + 0.01 * max(0, net.count - 4))


def counted(net: Any, y: Tensor, x: Tensor) -> Tensor:
    net.calls += 1
    return y


def added_to(net: Any, y: Tensor, x: Tensor) -> Tensor:
    x.add_(1)
    return y


def reference(model: nn.Module, inputs: Tensor, target: Tensor, fixed: bool) -> tuple[Tensor, Tensor]:
    """H and C, dense and in float64, through the user's own model alone.

    C is of gradients sample by sample, and H of their central differences, which no second derivative of torch enters;
    where detached parts count as `fixed`, H is torch's.
    """
    model = getattr(model, "module", model)
    free = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in free.values()]

    def losses(vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        pieces = vector.split(sizes)
        point = {name: piece.view_as(p) for (name, p), piece in zip(free.items(), pieces, strict=True)}
        return (functional_call(model, point, (x,)) - y).square().flatten(1).sum(1) / 2

    def gradient(vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        point = vector.detach().requires_grad_()
        (slope,) = torch.autograd.grad(losses(point, x, y).mean(), point)
        return slope

    at = torch.cat([p.reshape(-1) for p in free.values()])
    slopes = torch.stack([gradient(at, inputs[i : i + 1], target[i : i + 1]) for i in range(len(inputs))])
    if fixed:
        hessian = torch.autograd.functional.hessian(lambda v: losses(v, inputs, target).mean(), at)
    else:
        steps = 1e-6 * torch.eye(len(at))
        hessian = (
            torch.stack([gradient(at + e, inputs, target) - gradient(at - e, inputs, target) for e in steps]) / 2e-6
        )
    return hessian, slopes.T @ slopes / len(inputs)


def agrees(
    make: Callable[[], nn.Module],
    inputs: Tensor = X,
    fixed: bool = False,
    same_as: Callable[[], nn.Module] | None = None,
) -> Callable[[Any], Any]:
    """Traces and soft ranks of H and C against the dense reference: true, or what is off while it is called `ok`.

    The reference is of `same_as`, where torch cannot differentiate the model, or changes its gradient.
    """

    def attempt(_: Any) -> Any:
        model = make().double().eval()
        x = inputs.double() if inputs.is_floating_point() else inputs
        measured = bs.Landscape(model, "mse", (x, R.double()))
        estimates = {
            (matrix, name): measure(measured, matrix=matrix, progress=False, **options)
            for matrix in ("hessian", "covariance")
            for name, measure, options in (("trace", bs.trace, {}), ("rank", bs.soft_rank, {"weight_decay": RIDGE}))
        }
        wrong = []
        known = model if same_as is None else same_as().double().eval()
        for matrix, dense in zip(("hessian", "covariance"), reference(known, x, R.double(), fixed), strict=True):
            eigenvalues = torch.linalg.eigvalsh(dense + dense.T) / 2
            truths = {"trace": eigenvalues.sum(), "rank": (eigenvalues / (eigenvalues + RIDGE)).sum()}
            for name, truth in truths.items():
                estimate = estimates[matrix, name]
                slack = max(1e-5 * abs(float(truth)), 5 * estimate.stderr)
                if abs(estimate.value - float(truth)) > slack and estimate.verdict == "ok":
                    wrong.append(f"{name} of {matrix} {estimate.value:.6g}, not {float(truth):.6g}")
        return wrong or True

    return attempt
