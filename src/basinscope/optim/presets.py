"""Settings of natural gradient that others have used, by name."""

from __future__ import annotations

from typing import Any

from ..deprecated import warn_renamed
from ..errors import InputError

_KINDS = ("exact", "kfac", "online")

# Saghir et al. (2024): α = 0.1 (figures 2, 7 and 8) or 0.01 (figure 1), ε = 1e-10, learning rate 1e-2, batches of 128,
# and, as only their published code says, Nesterov's momentum 0.9 for natural gradient and for SGD alike.
# η = 0.9 is the largest weight that Kaldi gives the newest batch. Their eqs. 5–7 have one batch's Fisher matrix.
_MOMENTUM = {"momentum": 0.9, "nesterov": True}
_SAGHIR: dict[str, dict[str, Any]] = {
    "exact": {"lr": 1e-2, "alpha": 0.1, "epsilon": 1e-10, "eta": 1.0, "rescale": False, **_MOMENTUM},
    "kfac": {"lr": 1e-2, "alpha": 0.1, "epsilon": 1e-10, "eta": 0.9, "rescale": False, **_MOMENTUM},
    "online": {
        "lr": 1e-2, "alpha": 0.1, "epsilon": 1e-10, "eta": 0.9, "delta": 5e-4, "rank": None, "rescale": True,
        "single": True, "update_period": 4, **_MOMENTUM,
    },
}  # fmt: skip

# Kaldi's nnet3: 20 directions on the input side, 80 on the output side, a memory of 2000 rows.
_KALDI: dict[str, Any] = {
    "alpha": 4.0, "epsilon": 1e-10, "eta": None, "history": 2000.0, "delta": 1e-5, "rank": (80, 20), "rescale": True,
    "update_period": 4,
}  # fmt: skip

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "saghir-2024": _SAGHIR,
    "saghir-2024-figure-1": {kind: {**options, "alpha": 0.01} for kind, options in _SAGHIR.items()},
    "kaldi": {"online": _KALDI},
}
_FORMER = {"paper": "saghir-2024", "paper-figure-1": "saghir-2024-figure-1"}


def preset(name: str, kind: str = "online") -> dict[str, Any]:
    """Published options of `ExactNGD`, `KFAC` or `OnlineNGD` (kind `exact`, `kfac`, `online`), by name.

    `saghir-2024` and `saghir-2024-figure-1` are those of Saghir, Raghavendra, Liu and Gunter, "NGD converges to less
    degenerate solutions than SGD" (2024, https://arxiv.org/abs/2409.04913): α = 0.1 and 0.01, Nesterov's momentum 0.9,
    for batches of 128. `kaldi` are those of the speech recognizer for which the online method was made.

    Examples:
        >>> preset("saghir-2024")["alpha"], preset("kaldi")["alpha"]
        (0.1, 4.0)
    """
    if kind not in _KINDS:
        raise InputError(f"kind must be one of {list(_KINDS)}, got {kind!r}")
    if name in _FORMER:
        warn_renamed(f"preset {name!r}", repr(_FORMER[name]))
        name = _FORMER[name]
    options = PRESETS.get(name, {}).get(kind)
    if options is None:
        names = [name for name, kinds in PRESETS.items() if kind in kinds]
        raise InputError(f"no preset {name!r} for {kind!r}: expected one of {names}")
    return dict(options)
