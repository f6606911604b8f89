"""Changes of weights as bytes and back: whole, as bf16, as int8 in groups with a scale, or the largest entries.

What is read comes from a store that others write: form and size are checked before numbers are looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from gangline.checkpoint.format.safetensors import header_bytes, header_length, parse_header, tensor_bytes
from gangline.checkpoint.host_tensors import DTYPES, NAMES, as_bytes
from gangline.errors import IntegrityError
from gangline.spec.compression import Compression
from gangline.train.parallel.compress.compressors import GROUP, dequantise, largest, quantise

Form = Mapping[str, tuple[str, tuple[int, ...]]]
"""Names of the tensors of a file, with dtype and shape, in order."""


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Bytes of a safetensors file."""
    form = {name: (NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()}
    return b"".join([header_bytes(form), *(as_bytes(tensor) for tensor in tensors.values())])


def file_bytes(form: Form) -> int:
    """Size of the file that `pack` makes of tensors of this form."""
    return len(header_bytes(form)) + sum(tensor_bytes(dtype, shape) for dtype, shape in form.values())


def unpack(data: bytes, form: Form) -> dict[str, Tensor]:
    """Tensors of a file; they own their memory.

    Raises:
        IntegrityError: It has other tensors than `form`.
    """
    entries = parse_header(data[: header_length(data, len(data))], len(data))
    found = {name: (tensor_entry.dtype, tensor_entry.shape) for name, tensor_entry in entries.items()}
    if found != dict(form):
        raise IntegrityError(f"wanted tensors {dict(form)}, found {str(found)[:200]}")
    tensors = {}
    for name, entry in entries.items():
        part = bytearray(data[entry.start : entry.end])
        flat = torch.frombuffer(part, dtype=DTYPES[entry.dtype]) if part else torch.empty(0, dtype=DTYPES[entry.dtype])
        tensors[name] = flat.view(entry.shape)
    return tensors


@dataclass(frozen=True, slots=True)
class ChangeCodec:
    """How a change of `size` numbers travels under one kind of compression."""

    compression: Compression
    size: int

    @property
    def form(self) -> Form:
        """Tensors of the file."""
        match self.compression.kind:
            case "int8":
                groups = ceil(self.size / GROUP)
                return {"scales": ("F32", (groups, 1)), "codes": ("I8", (groups, GROUP))}
            case "topk":
                return {"values": ("F32", (self._kept,)), "places": ("I32", (self._kept,))}
            case kind:
                return {"values": ("BF16" if kind == "bf16" else "F32", (self.size,))}

    @property
    def _kept(self) -> int:
        return min(self.size, ceil(self.compression.ratio * self.size))

    def encode(self, change: Tensor) -> dict[str, Tensor]:
        """Tensors of the file for a change in float32."""
        match self.compression.kind:
            case "int8":
                padded = torch.zeros(ceil(self.size / GROUP) * GROUP)
                padded[: self.size] = change
                codes, scales = quantise(padded.view(-1, GROUP))
                return {"scales": scales, "codes": codes}
            case "topk":
                places = largest(change, self._kept)
                return {"values": change[places], "places": places.int()}
            case kind:
                return {"values": change.to(torch.bfloat16) if kind == "bf16" else change}

    def decode(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The change in float32, as all who read the file see it.

        Raises:
            IntegrityError: It has places that the shard does not have, or numbers that are not finite.
        """
        match self.compression.kind:
            case "int8":
                change = dequantise(tensors["codes"], tensors["scales"]).view(-1)[: self.size]
            case "topk":
                places, change = tensors["places"].long(), torch.zeros(self.size)
                if bool(((places < 0) | (places >= self.size)).any()):
                    raise IntegrityError(
                        f"wanted places below {self.size}, found {int(places.min())} to {places.max()}"
                    )
                change[places] = tensors["values"]
            case _:
                change = tensors["values"].float()
        if not bool(torch.isfinite(change).all()):
            raise IntegrityError("wanted finite numbers, found others")
        return change
