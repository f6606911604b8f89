"""Rows that stand in for those of a data set, from its columns alone: nothing is fetched to trace a model."""

import json
import re
from typing import Any

import numpy as np

from gangline.spec.dataset import COLUMNS

ROWS = 1024
_LIST = re.compile(r"fixed_size_list<\w+: (?P<of>.+)>\[(?P<size>\d+)\]")
_NUMBERS = {"float": "float32", "double": "float64", "halffloat": "float16"}
"""Names of numpy for those of Arrow, where they differ."""


class SampleRows:
    """What a task gets as `options["dataset"]` when its model is traced."""

    def __init__(self, columns: str) -> None:
        """`columns`: As `spec.dataset.columns_text` writes them."""
        self._row = {name: _value(kind) for name, kind in json.loads(columns.removeprefix(COLUMNS))}

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < ROWS:
            raise IndexError(index)
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in self._row.items()}


def _value(kind: str) -> Any:
    """A value of the type that Arrow calls `kind`: zeros, empty text and bytes; lists of any length have one entry."""
    if kind in ("string", "large_string"):
        return ""
    if kind in ("binary", "large_binary"):
        return b""
    shape = []
    while found := _LIST.fullmatch(kind):
        shape.append(int(found["size"]))
        kind = found["of"]
    if "list<" in kind:
        shape, kind = [1], kind.rpartition(": ")[2].rstrip(">")
    dtype = np.dtype(_NUMBERS.get(kind, kind))
    is_wide = dtype.kind == "u" and dtype.itemsize > 1  # as `train.runtime.datasets` gives them
    return np.zeros(shape, dtype="int64" if is_wide else dtype)
