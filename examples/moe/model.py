"""A small mixture of experts over bytes: each byte goes through two of eight perceptrons, which its router picks."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gangline.train import Loss, ParallelHints
from gangline.train.attention import attention
from gangline.train.moe import MoE

VOCABULARY = 256
BALANCE = 0.01
"""Share of the loss that wants experts to be used evenly."""


class Block(nn.Module):
    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.head_width = 32
        self.norm_attention = nn.LayerNorm(width)
        self.wqkv = nn.Linear(width, 3 * width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.norm_moe = nn.LayerNorm(width)
        self.moe = MoE(width, experts, top_k=2, hidden=2 * width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        heads = self.wqkv(self.norm_attention(x)).unflatten(-1, (-1, 3, self.head_width))
        query, key, value = heads.permute(3, 0, 2, 1, 4)
        x = x + self.wo(attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))
        mixed, balance = self.moe(self.norm_moe(x))
        return x + mixed, balance


class ExpertGPT(nn.Module):
    def __init__(self, layers: int = 4, width: int = 128, context: int = 128, experts: int = 8) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Block(width, experts) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits, and how unevenly each sample used the experts, as a mean over the layers."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        x, uneven = self.token(tokens) + self.position(positions), 0.0
        for layer in self.layers:
            x, balance = layer(x)
            uneven = uneven + balance / len(self.layers)
        return self.head(self.norm(x)), uneven


class ByteText:
    """Windows of `context` bytes, each with the byte that follows at every place; the tail of all text is held out."""

    def __init__(self, files: list[str], split: str, *, context: int, holdout: float) -> None:
        text = b"".join(Path(file).read_bytes() for file in files)
        cut = int(len(text) * (1 - holdout))
        text = text[:cut] if split == "train" else text[cut:]
        if len(text) <= context:
            raise ValueError(f"the {split} split has {len(text)} bytes, one window needs {context + 1}: give more text")
        self.bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.context = context

    def __len__(self) -> int:
        return (len(self.bytes) - 1) // self.context

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        start = index * self.context
        window = self.bytes[start : start + self.context + 1].long()
        return {"tokens": window[:-1], "targets": window[1:]}


class ByteExperts:
    """The task of line.toml: what gangline calls. Nothing here says how many ranks there are."""

    hints = ParallelHints(
        blocks="layers.*",
        experts="layers.*.moe.experts",
        sequence={"tokens": 1, "targets": 1},
    )

    def __init__(self):
        self.metric_units = {"cross_entropy": "nats"}

    def build_model(self, options):
        return ExpertGPT(**options)

    def build_data(self, split, options):
        context = options["model"].get("context", 128)
        return ByteText(options["text"], split, context=context, holdout=options["holdout"])

    def loss(self, outputs, batch):
        logits, uneven = outputs
        total, weight = self.cross_entropy(logits, batch)
        return Loss(total=total + BALANCE * uneven.sum(), weight=weight)

    def evaluate(self, model, batch):
        """What is held out is judged without the wish for balance."""
        logits, _ = model(batch["tokens"], batch.get("positions"))
        return {"cross_entropy": self.cross_entropy(logits, batch)}

    def cross_entropy(self, logits, batch):
        targets = batch["targets"]
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"), targets.numel()
