"""The page of what was measured, from the rows that `--out` has collected."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_COLUMNS = {  # of each part: heading, and key of a row
    "draws": (("shape", "shape"), ("sequences × tokens", "size"), ("ms a draw", "lean_ms"), ("bare loop", "bare_ms"),
              ("ratio", "ratio"), ("bytes a parameter", "lean_bytes_per_parameter"), ("peak GB", "lean_peak_gb"),
              ("bare loop, GB", "bare_peak_gb")),
    "hmc": (("network", "case"), ("sampler", "sampler"), ("seed", "seed"), ("λ̂", "llc"), ("±", "stderr"),
            ("γ", "gamma"), ("verdict", "verdict"), ("CPU s", "cpu")),
    "linear": (("network", "case"), ("seed", "seed"), ("exact λ", "exact"), ("λ̂", "llc"), ("±", "stderr"),
               ("γ", "gamma"), ("error", "error"), ("verdict", "verdict"), ("CPU s", "cpu")),
    "rounding": (("chain", "case"), ("weights", "sampler"), ("λ̂ over λ", "ratio")),
    "heads": (("way", "way"), ("width", "width"), ("together, ms", "together_ms"), ("one by one, ms", "one_by_one_ms"),
              ("seconds", "seconds"), ("ratio", "ratio")),
    "budget": (("network", "case"), ("seed", "seed"), ("λ̂", "llc"), ("±", "stderr"), ("verdict", "verdict"),
               ("wall s", "wall"), ("CPU s", "cpu")),
    "trained": (("network", "case"), ("seed", "seed"), ("λ̂", "llc"), ("±", "stderr"), ("verdict", "verdict"),
                ("wall s", "wall"), ("tokens a second", "tokens_per_second"), ("peak GB", "peak_gb")),
}  # fmt: skip
_TITLES = {
    "draws": "Draws beside the bare loop", "hmc": "A transformer, beside Hamiltonian Monte Carlo",
    "linear": "Deep linear networks, whose λ is known", "rounding": "Weights that are rounded",
    "heads": "All heads of a 4-layer, 8-head model", "budget": "Whether a budget of 30 seconds is kept",
    "trained": "A language model trained on text",
}  # fmt: skip


def page(file: Path) -> str:
    """All rows of a file as tables in Markdown, one for each part that has any."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    parts = [part for part in _COLUMNS if any(row["part"] == part for row in rows)]
    tables = "\n\n".join(_table(part, [row for row in rows if row["part"] == part]) for part in parts)
    return (
        f"# The lean walk\n\n{_answer(rows)}\n\nChains on a network's own weights, beside exact answers and other "
        f"samplers. What has no table here has not been measured; where γ is coarser than asked, the chains were too "
        f"short to reach it, and λ̂ is that of the γ they reached. `benchmarks/lean_walk.py` measures each "
        f"part again.\n\n{tables}\n"
    )


def _answer(rows: Iterable[dict[str, Any]]) -> str:
    """What the tables come to, in a sentence for each part that has an answer."""
    ratios = {part: [row["ratio"] for row in rows if row["part"] == part and "ratio" in row] for part in _COLUMNS}
    sentences = []
    if draws := ratios["draws"]:
        sentences.append(
            f"A draw takes {min(draws):.2f} to {max(draws):.2f} times as long as a step of the bare compiled loop."
        )
    kept, plain = (
        [row["ratio"] for row in rows if row["part"] == "rounding" and row["sampler"].startswith(way)]
        for way in ("δ in bf", "plain")
    )
    if kept and plain:
        sentences.append(
            f"With δ in bfloat16, rounded at random, λ̂ of a quadratic is {min(kept):.3f} to {max(kept):.3f} of λ; with "
            f"plain bfloat16 weights it is {min(plain):.2f} to {max(plain):.2f}."
        )
    return " ".join(sentences)


def _table(part: str, rows: Iterable[dict[str, Any]]) -> str:
    columns = (*_COLUMNS[part], ("on", "on"))
    heads = [heading for heading, _ in columns]
    lines = [f"## {_TITLES[part]}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        row = {**row, "size": f"{row.get('batch')} × {row.get('length')}"}
        lines.append(f"| {' | '.join(_cell(key, row.get(key)) for _, key in columns)} |")
    return "\n".join(lines)


def _cell(key: str, value: Any) -> str:
    if value is None or value != value:
        return "–"
    if key == "error":
        return f"{value:+.1%}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
