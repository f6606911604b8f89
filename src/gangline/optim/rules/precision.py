"""Products of float32 matrices in float32, whatever the process allows elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def ieee_products() -> Iterator[None]:
    """No TF32 or bfloat16 inside float32 products of this block: orthogonal bases and roots do not survive them.

    The setting belongs to the process: it holds for other threads as long as the block lasts.
    """
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]  # torch sets it at run time
    before = [each.fp32_precision for each in backends]
    try:
        for each in backends:
            each.fp32_precision = "ieee"
        yield
    finally:
        for each, precision in zip(backends, before, strict=True):
            each.fp32_precision = precision
