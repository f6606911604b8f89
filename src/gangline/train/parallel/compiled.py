"""One block through torch.compile, by itself: blocks alike share one compilation, and wrappers see the same module."""

import os
from pathlib import Path

from torch import nn

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Where torch looks for what it compiled before; it takes a folder from the environment alone."""


def compile_block(block: nn.Module, folder: Path) -> None:
    """Have the next call of `block` compile it, in place; what comes of it stays in `folder` for later generations."""
    os.environ.setdefault(CACHE, str(folder))
    block.compile()
