"""Headers of safetensors files: written, and parsed so that an invalid one is refused before anything is allocated.

Why the safetensors package does not do this: decision 52.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gangline.errors import ConfigError, IntegrityError

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Bytes of one element, by the dtype name of safetensors."""

MAX_HEADER_BYTES = 64 * 2**20
_METADATA = "__metadata__"
_BYTES_PER_BRACKET = 12
"""A tensor's entry has 3 brackets in at least 50 bytes; denser text is hostile and would need much memory to parse."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file; `start` and `end` count from the first byte of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor in the file."""
        return self.end - self.start


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor."""
    return prod(shape) * ITEM_BYTES[dtype]


def header_bytes(tensors: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Length and header of a file that holds `tensors` (name -> dtype, shape) in this order; data starts 8-aligned."""
    if _METADATA in tensors:
        raise ConfigError(f"no tensor may be called {_METADATA}: safetensors keeps that name; rename the parameter")
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + tensor_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def header_length(first: bytes, file_bytes: int) -> int:
    """Bytes of length and header together, from the first 8 bytes of a file of `file_bytes`."""
    length = int.from_bytes(first[:8], "little")
    if len(first) < 8 or length > min(MAX_HEADER_BYTES, file_bytes - 8):
        raise IntegrityError(
            f"a header has at most {MAX_HEADER_BYTES} bytes and fits into the file of {file_bytes}, found {length}"
        )
    return 8 + length


def parse_header(head: bytes, file_bytes: int) -> dict[str, TensorEntry]:
    """Tensors of a file whose first bytes, up to the end of the header, are `head`.

    Raises:
        IntegrityError: Anything but a header of ours: bad JSON, duplicate or unknown keys, unknown dtypes, sizes that
            differ from dtype x shape, gaps, overlaps, data that does not end where the file ends.
    """
    wanted = header_length(head, file_bytes)
    if len(head) != wanted:
        raise IntegrityError(f"wanted {wanted} bytes of header, found {len(head)}")
    plain = _parse_json(head[8:])
    plain.pop(_METADATA, None)
    entries = {name: _read_entry(name, each, wanted) for name, each in plain.items()}
    _check_layout(entries, wanted, file_bytes)
    return entries


def _parse_json(text: bytes) -> dict[str, Any]:
    if (text.count(b"{") + text.count(b"[")) * _BYTES_PER_BRACKET > len(text) + 1024:
        raise IntegrityError("the header nests more values than its tensors need")
    try:
        plain = json.loads(text.decode(), object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"wanted a JSON header, found {text[:40]!r}: {error}") from error
    if not isinstance(plain, dict):
        raise IntegrityError(f"wanted a JSON object, found {type(plain).__name__}")
    return plain


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise IntegrityError("a key occurs twice in the header")
    return found


def _read_entry(name: str, plain: Any, data_start: int) -> TensorEntry:
    if not isinstance(plain, dict) or plain.keys() != {"dtype", "shape", "data_offsets"}:
        raise IntegrityError(f"{name[:80]!r}: wanted dtype, shape and data_offsets, found {str(plain)[:80]}")
    dtype, shape, offsets = plain["dtype"], plain["shape"], plain["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise IntegrityError(f"{name[:80]!r}: unknown dtype {str(dtype)[:40]!r}; known are {', '.join(ITEM_BYTES)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or len(shape) > 64:
        raise IntegrityError(f"{name[:80]!r}: shape and data_offsets are lists of whole numbers from 0")
    start, end = offsets
    if end - start != tensor_bytes(dtype, shape):
        raise IntegrityError(
            f"{name[:80]!r}: {dtype} {shape} has {tensor_bytes(dtype, shape)} bytes, not {end - start}"
        )
    return TensorEntry(dtype, tuple(shape), data_start + start, data_start + end)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 2**63 for each in value)


def _check_layout(entries: Mapping[str, TensorEntry], data_start: int, file_bytes: int) -> None:
    expected = data_start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != expected:
            problem = "overlaps the one before" if entry.start < expected else "leaves a gap"
            raise IntegrityError(f"{name[:80]!r} {problem}: starts at {entry.start}, wanted {expected}")
        expected = entry.end
    if expected != file_bytes:
        raise IntegrityError(f"tensors end at byte {expected}, the file at {file_bytes}")
