"""The golden sample of a published model: a batch and its outputs, kept with the weights as `golden.safetensors`.

A server is ready only after it gave the same answer. Importing this module imports no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.checkpoint.format.safetensors import header_bytes, header_length, parse_header
from gangline.errors import IntegrityError

if TYPE_CHECKING:
    from numpy import ndarray

GOLDEN = "golden.safetensors"
MAX_GOLDEN_BYTES = 8 << 20
"""Larger samples are not kept."""
TOLERANCE = 1e-4
"""Largest difference of an output, relative to the largest number of the kept one."""
NUMPY_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "U32": "uint32",
    "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64",
}  # fmt: skip
"""Dtypes of inputs and outputs: the name of safetensors, and that of numpy."""
_OF_NUMPY = {name: key for key, name in NUMPY_NAMES.items()}
_INPUT, _OUTPUT = "input.", "output."


@dataclass(frozen=True, slots=True)
class Golden:
    """A batch and the outputs that the model had for it when it was published."""

    inputs: "Mapping[str, ndarray]"
    outputs: "Mapping[str, ndarray]"


def golden_bytes(golden: Golden) -> bytes | None:
    """Content of the file; None where it would be too large, or has a dtype that requests cannot have."""
    named = {_INPUT + name: array for name, array in golden.inputs.items()}
    named |= {_OUTPUT + name: output for name, output in golden.outputs.items()}
    if any(str(array.dtype) not in _OF_NUMPY for array in named.values()):
        return None
    if sum(array.nbytes for array in named.values()) > MAX_GOLDEN_BYTES:
        return None
    head = header_bytes({name: (_OF_NUMPY[str(array.dtype)], array.shape) for name, array in named.items()})
    return head + b"".join(array.tobytes() for array in named.values())


def read_golden(folder: Path) -> Golden | None:
    """The golden sample of a model folder; None: the version is older, or its sample was too large.

    Raises:
        IntegrityError: The file is no file of ours.
    """
    path = folder / GOLDEN
    return parse_golden(path.read_bytes()) if path.is_file() else None


def parse_golden(data: bytes) -> Golden:
    """Raises IntegrityError unless `data` is what `golden_bytes` writes."""
    import numpy as np

    entries = parse_header(data[: header_length(data[:8], len(data))], len(data))
    found: dict[str, Any] = {}
    for name, entry in entries.items():
        if entry.dtype not in NUMPY_NAMES or not name.startswith((_INPUT, _OUTPUT)):
            raise IntegrityError(f"{GOLDEN}: {name[:80]!r} of {entry.dtype} is no input or output of a model")
        flat = np.frombuffer(data, NUMPY_NAMES[entry.dtype], offset=entry.start, count=prod(entry.shape))
        found[name] = flat.reshape(entry.shape)
    return Golden(*({name[len(kind) :]: each for name, each in found.items() if name.startswith(kind)}
                    for kind in (_INPUT, _OUTPUT)))  # fmt: skip


def difference(wanted: "Mapping[str, ndarray]", found: "Mapping[str, ndarray]") -> float:
    """Largest difference of `found`, relative to the largest number of the wanted tensor; infinite: another shape."""
    import numpy as np

    if wanted.keys() != found.keys():
        return float("inf")
    worst = 0.0
    for name, array in wanted.items():
        other = found[name]
        if array.shape != other.shape or array.dtype != other.dtype:
            return float("inf")
        if array.size:
            a, b = array.astype(np.float64), other.astype(np.float64)
            gap = float(np.max(np.abs(a - b))) / max(float(np.max(np.abs(a))), 1e-12)
            worst = max(worst, float("inf") if isnan(gap) else gap)
    return worst
