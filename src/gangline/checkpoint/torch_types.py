"""dtypes by their safetensors names, and tensors as bytes."""

import torch
from torch import Tensor

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "U16": torch.uint16, "I16": torch.int16, "F16": torch.float16,
    "BF16": torch.bfloat16, "U32": torch.uint32, "I32": torch.int32, "F32": torch.float32, "U64": torch.uint64,
    "I64": torch.int64, "F64": torch.float64, "C64": torch.complex64,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def as_bytes(tensor: Tensor) -> memoryview:
    """Row-major bytes of a CPU tensor; a view where it is contiguous."""
    return flat_bytes(tensor).numpy().data


def flat_bytes(tensor: Tensor) -> Tensor:
    """The same as a tensor of uint8."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def writable(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, to be written to."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
