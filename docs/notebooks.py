"""Runs notebooks and stores what their cells show: `python docs/notebooks.py examples/notebooks/*.ipynb`.

Text, tables and figures are stored as Jupyter would; the time that a notebook took, by the clock and of the processor,
stands in its metadata. Nothing here
is imported by the package.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any


def run(path: Path) -> float:
    """Run a notebook in order in one namespace, store its outputs in it, and say how many seconds it took."""
    import matplotlib

    matplotlib.use("agg")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    started, before, count = time.monotonic(), time.process_time(), 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = list(outputs("".join(cell["source"]), namespace, count))
    seconds = time.monotonic() - started
    processor = time.process_time() - before  # which other programs on a shared machine do not lengthen
    notebook["metadata"]["basinscope"] = {"seconds": round(seconds), "processor_seconds": round(processor)}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return seconds


def outputs(source: str, namespace: dict[str, Any], count: int) -> Any:
    """What a cell shows: what it prints, the value of its last line, and the figures that it leaves open."""
    import matplotlib.pyplot as plt

    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    if printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())}
    for number in plt.get_fignums():
        yield {"output_type": "display_data", "data": drawing(plt.figure(number)), "metadata": {}}
    drawn = bool(plt.get_fignums())
    plt.close("all")
    if hasattr(value, "savefig"):
        yield {"output_type": "execute_result", "execution_count": count, "data": drawing(value), "metadata": {}}
    elif value is not None and not drawn:
        shown = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            shown = {"text/html": lines(value._repr_html_()), **shown}
        yield {"output_type": "execute_result", "execution_count": count, "data": shown, "metadata": {}}


def drawing(figure: Any) -> dict[str, Any]:
    """A figure as notebooks store it."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=70, bbox_inches="tight", metadata={"Software": None})
    return {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}


def lines(text: str) -> list[str]:
    """A text as notebooks store it.

    Examples:
        >>> lines("a\\nb\\n")
        ['a\\n', 'b\\n']
    """
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {run(Path(name)):.0f} s")
