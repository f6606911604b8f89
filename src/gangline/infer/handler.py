"""What a request must look like, and batches made of several requests. Knows arrays, neither HTTP nor kserve."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gangline.train.model.published import TensorSpec

if TYPE_CHECKING:
    from numpy import ndarray

    Arrays = Mapping[str, ndarray]

DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "int8": "INT8", "uint16": "UINT16", "int16": "INT16", "float16": "FP16",
    "uint32": "UINT32", "int32": "INT32", "float32": "FP32", "uint64": "UINT64", "int64": "INT64", "float64": "FP64",
}  # fmt: skip
"""Datatypes of the Open Inference Protocol by the name of numpy."""


class RequestError(ValueError):
    """The request is none that this model answers."""


class QueueFullError(Exception):
    """The queue is full: as many requests wait as are allowed to."""


class ModelCallError(Exception):
    """The model raised; the log has the reason under this id."""


def check_inputs(specs: Mapping[str, TensorSpec], batch: "Arrays") -> int:
    """Number of samples of a request.

    Raises:
        RequestError: A name, dtype or shape is another one; the message says what was wanted.
    """
    missing, unknown = sorted(specs.keys() - batch.keys()), sorted(batch.keys() - specs.keys())
    if specs and (missing or unknown):
        raise RequestError(f"wanted the inputs {', '.join(sorted(specs))}; missing {missing}, unknown {unknown[:5]}")
    for name, spec in specs.items():
        array = batch[name]
        if str(array.dtype) != spec.dtype:
            raise RequestError(f"input {name}: wanted {_named(spec.dtype)}, found {_named(str(array.dtype))}")
        if not spec.fits(array):
            raise RequestError(f"input {name}: wanted shape {list(spec.shape)}, found {list(array.shape)}")
    rows = {each.shape[0] if each.ndim else 0 for each in batch.values()}
    if len(rows) != 1 or 0 in rows:
        raise RequestError(f"wanted as many samples, at least one, in every input; found {sorted(rows)}")
    return rows.pop()


def shapes_of(batch: "Arrays") -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """What two requests must have in common to be one batch."""
    return tuple((name, str(array.dtype), array.shape[1:]) for name, array in sorted(batch.items()))


def join(batches: "Sequence[Arrays]") -> "dict[str, ndarray]":
    """Several requests of equal shapes as one batch."""
    import numpy as np

    if len(batches) == 1:
        return dict(batches[0])
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def split(outputs: "Arrays", rows: Sequence[int]) -> "list[dict[str, ndarray]]":
    """Outputs of a batch, cut into those of each request.

    Raises:
        ValueError: An output has not one row for each sample.
    """
    total = sum(rows)
    for name, output in outputs.items():
        if output.ndim == 0 or output.shape[0] != total:
            raise ValueError(f"output {name} has shape {list(output.shape)} for {total} samples")
    starts = [sum(rows[:number]) for number in range(len(rows))]
    return [
        {name: array[start : start + count] for name, array in outputs.items()}
        for start, count in zip(starts, rows, strict=True)
    ]


def _named(dtype: str) -> str:
    return DATATYPES.get(dtype, dtype)
