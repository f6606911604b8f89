"""Sizes of everything that a session runs: in full for a GPU of 80 GB and more, small for its rehearsal on CPUs.

Models are those of `train/large/llama.py`. The one of the 1B class has the shape of torchtitan's Llama 3 "1B" (16
blocks of width 2,048; head and embedding apart: 1.5 billion parameters), the other one blocks of its "8B" (width
4,096), as many as one device trains.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # of the models' shapes

Model = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Shapes:
    device: str
    precision: str
    billion: Model
    """Model of the 1B class."""
    wide: Model
    """Model of blocks as large as those of 8B."""
    unseen: dict[str, Model]
    """Models that no rate was measured for."""
    micro_batch: int
    blocks: int
    """Blocks of steps that each side of a comparison makes."""
    block_steps: int
    saved_parameters: float
    """Parameters of the model whose save and load are timed."""
    rounds: int
    stream_bytes: int
    """Size of a tensor that no cache holds."""
    product: int
    """Side of a large product of square matrices."""
    restart_ranks: int
    matrix_part: int
    """Sides of the matrices of Qwen3-8B over this."""
    matrix_layers: int

    def matrices(self) -> list[tuple[int, int]]:
        """Shapes of the matrices in a step of a matrix rule, in model order."""
        from tools.qwen3 import QWEN3

        found = [each.shape for each in QWEN3["8B"].matrices("split")]
        each_layer = len(found) // QWEN3["8B"].layers
        return [
            (rows // self.matrix_part, columns // self.matrix_part)
            for rows, columns in found[: each_layer * self.matrix_layers]
        ]


_LLAMA = {"vocabulary": 128256, "context": 4096}
_TINY = {"layers": 2, "width": 64, "hidden": 128, "heads": 4, "kv_heads": 2, "vocabulary": 512, "context": 64}

FULL = Shapes(
    device="cuda", precision="bf16",
    billion={"layers": 16, "width": 2048, "hidden": 8192, "heads": 32, "kv_heads": 8, **_LLAMA},
    wide={"layers": 4, "width": 4096, "hidden": 14336, "heads": 32, "kv_heads": 8, **_LLAMA},
    unseen={
        "narrow": {"layers": 24, "width": 1280, "hidden": 5120, "heads": 20, "kv_heads": 4, "vocabulary": 50304,
                   "context": 2048},
        "wide": {"layers": 3, "width": 5120, "hidden": 13824, "heads": 40, "kv_heads": 8, "vocabulary": 32000,
                 "context": 4096},
    },
    micro_batch=2, blocks=8, block_steps=10, saved_parameters=128e6, rounds=2, stream_bytes=2**32, product=8192,
    restart_ranks=1, matrix_part=1, matrix_layers=36,
)  # fmt: skip
SMALL = Shapes(
    device="cpu", precision="bf16", billion=_TINY, wide=_TINY | {"layers": 1},
    unseen={"narrow": _TINY | {"width": 32, "hidden": 64}, "wide": _TINY | {"layers": 1, "width": 128, "hidden": 256}},
    micro_batch=2, blocks=3, block_steps=2, saved_parameters=2e6, rounds=1, stream_bytes=2**24, product=256,
    restart_ranks=1, matrix_part=32, matrix_layers=2,
)  # fmt: skip
