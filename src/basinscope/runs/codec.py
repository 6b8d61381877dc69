"""Results as bytes and back: rows as Parquet, arrays as safetensors."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError


def encode_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a Parquet file; a column that a row lacks is null there.

    Examples:
        >>> decode_rows(encode_rows([{"a": 1}, {"a": 2, "b": "x"}])).to_pylist()
        [{'a': 1, 'b': None}, {'a': 2, 'b': 'x'}]
    """
    import pyarrow as pa

    if not rows:
        raise InputError("a result must have at least one row, got none — return a mapping from column to value")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table: dict[str, Any] = {}
    for name in columns:
        if not isinstance(name, str):
            raise InputError(f"column names must be text, got {name!r}")
        values = [_plain(name, row.get(name)) for row in rows]
        try:
            table[name] = pa.array(values)
        except (pa.ArrowException, OverflowError) as error:
            raise InputError(f"column {name!r} holds values that no one type of column can: {error}") from error
    return encode_table(pa.table(table))


def encode_table(table: Any) -> bytes:
    """An Arrow table as a Parquet file; equal tables give equal bytes."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def decode_rows(data: bytes) -> Any:
    """The Arrow table that `encode_rows` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(data), use_threads=False)


def encode_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Arrays or tensors as safetensors; bfloat16, which numpy lacks, becomes float32 without loss.

    Examples:
        >>> decode_arrays(encode_arrays({"x": np.arange(3.0)}))["x"].tolist()
        [0.0, 1.0, 2.0]
    """
    from safetensors.numpy import save

    return save({name: _array(name, value) for name, value in sorted(arrays.items())})


def decode_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """What `encode_arrays` wrote, as numpy arrays."""
    from safetensors.numpy import load

    return load(data)


def _array(name: str, value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    array = np.asarray(value, order="C")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(f"array {name!r} must hold real numbers or truth values, got dtype {array.dtype}")
    return array


def _plain(name: str, value: Any) -> Any:
    """Plain Python for numpy's and torch's numbers, which Arrow types less predictably."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InputError(
        f"column {name!r} must hold numbers, text, truth values or lists of them, got {type(value).__name__} — put "
        f"anything larger into the result's arrays"
    )
