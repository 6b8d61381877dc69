"""How many gradients on all data something of ours takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from basinscope.curvature.operators import CurvatureOperator
from basinscope.sampling.chains import ChainLosses

PRODUCT = 2.0  # gradients that a product with a curvature matrix counts as


@dataclass
class Count:
    """Gradients of one chain's loss on all data; on a batch of m samples, m/n of one."""

    gradients: float = 0.0


@contextmanager
def counted() -> Iterator[Count]:
    """Count within the block; a pass that takes no gradient counts as one that does."""
    count = Count()

    def watched(owner: type, name: str, price: Any) -> Any:
        plain = getattr(owner, name)

        def method(self: Any, *arguments: Any, **options: Any) -> Any:
            count.gradients += price(self, *arguments)
            return plain(self, *arguments, **options)

        return patch.object(owner, name, method)

    with ExitStack() as stack:
        for name in ("full", "gradient", "excess", "per_sample", "along"):
            stack.enter_context(watched(ChainLosses, name, lambda self, delta, *rest: len(delta)))
        stack.enter_context(watched(ChainLosses, "minibatch", _of_batches))
        stack.enter_context(watched(CurvatureOperator, "__matmul__", _of_product))
        yield count


def _of_batches(losses: ChainLosses, delta: Any, indices: Any, *rest: Any) -> float:
    return float(indices.numel()) / losses.land.n


def _of_product(operator: CurvatureOperator, vectors: Any) -> float:
    return PRODUCT * (vectors.shape[1] if vectors.ndim == 2 else 1)
