"""Smaller views of images."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import InputError

LUMA = (0.299, 0.587, 0.114)
_MAX_IMAGES = 4096  # pooled at once


def seven_by_seven(images: Tensor) -> Tensor:
    """Images (n, 1 or 3, h, w) in [0, 1] as 7 × 7 grey ones (n, 1, 7, 7).

    Grey is 0.299 R + 0.587 G + 0.114 B; each of the 7 × 7 pixels is the mean of its part of the image (adaptive
    average pooling). They are the images of Shoham, Mor-Yosef and Avron, "Flatness After All?" (2025,
    https://arxiv.org/abs/2506.17809).

    Examples:
        >>> seven_by_seven(torch.full((2, 3, 32, 32), 0.5)).shape
        torch.Size([2, 1, 7, 7])
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < 7:
        raise InputError(f"images must have shape (n, 1 or 3, ≥ 7, ≥ 7), got {tuple(images.shape)}")
    pieces = []
    for piece in images.split(_MAX_IMAGES):
        if piece.shape[1] == 3:
            piece = (piece * torch.tensor(LUMA).to(piece).view(3, 1, 1)).sum(1, keepdim=True)
        pieces.append(functional.adaptive_avg_pool2d(piece, 7))
    return torch.cat(pieces)
