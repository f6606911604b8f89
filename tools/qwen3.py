"""Shapes of the dense Qwen3 models, from their public configurations: what tables of plans are made of. Pure."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from gangline.optim.plan.matrix import LogicalMatrix

Layout = Literal["split", "fused"]
VOCABULARY, HEAD_DIM = 151_936, 128


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseModel:
    """Sizes of a dense decoder."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int = 8
    ffn: int
    is_tied: bool
    """Is the output head the embedding?"""

    def parameters(self, layout: Layout) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Name and shape of every parameter, in model order."""
        return (
            ("embed.weight", (VOCABULARY, self.hidden)),
            *(each for layer in range(self.layers) for each in self._layer(f"layers.{layer}", layout)),
            ("norm.weight", (self.hidden,)),
            *(() if self.is_tied else (("head.weight", (VOCABULARY, self.hidden)),)),
        )

    def matrices(self, layout: Layout) -> tuple[LogicalMatrix, ...]:
        """Those of a matrix rule, in model order: embedding, head and norms left out."""
        return tuple(
            LogicalMatrix(fqn=fqn, shape=(shape[0], shape[1]))
            for fqn, shape in self.parameters(layout)
            if is_matrix(fqn, shape)
        )

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(prod(shape) for _, shape in self.parameters("fused"))

    def _layer(self, name: str, layout: Layout) -> tuple[tuple[str, tuple[int, ...]], ...]:
        wide, kv, hidden = self.heads * HEAD_DIM, self.kv_heads * HEAD_DIM, self.hidden
        qkv = (("q", wide), ("k", kv), ("v", kv)) if layout == "split" else (("qkv", wide + 2 * kv),)
        inner = (("gate", self.ffn), ("up", self.ffn)) if layout == "split" else (("fc1", 2 * self.ffn),)
        return (
            (f"{name}.input_norm.weight", (hidden,)),
            *((f"{name}.attention.{part}.weight", (rows, hidden)) for part, rows in qkv),
            (f"{name}.attention.q_norm.weight", (HEAD_DIM,)),
            (f"{name}.attention.k_norm.weight", (HEAD_DIM,)),
            (f"{name}.attention.o.weight", (hidden, wide)),
            (f"{name}.mlp_norm.weight", (hidden,)),
            *((f"{name}.mlp.{part}.weight", (rows, hidden)) for part, rows in inner),
            (f"{name}.mlp.down.weight", (hidden, self.ffn)),
        )


def is_matrix(fqn: str, shape: tuple[int, ...]) -> bool:
    """Does a matrix rule update this parameter of a `DenseModel`?"""
    return len(shape) == 2 and not fqn.startswith(("embed", "head"))


QWEN3 = {
    "1.7B": DenseModel(hidden=2048, layers=28, heads=16, ffn=6144, is_tied=True),
    "4B": DenseModel(hidden=2560, layers=36, heads=32, ffn=9728, is_tied=True),
    "8B": DenseModel(hidden=4096, layers=36, heads=32, ffn=12_288, is_tied=False),
    "14B": DenseModel(hidden=5120, layers=40, heads=40, ffn=17_408, is_tied=False),
    "32B": DenseModel(hidden=5120, layers=64, heads=64, ffn=25_600, is_tied=False),
}
"""Dense Qwen3, as `torchtitan/models/qwen3/__init__.py` of pytorch/torchtitan has them."""
