"""A small GPT over bytes: no tokenizer, no download, any text is its data set."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from gangline.train import Loss, ParallelHints

VOCABULARY = 256


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // 32)
        self.head_width = width // self.heads
        self.norm_attention = nn.LayerNorm(width)
        self.wqkv = nn.Linear(width, 3 * width)
        self.wo = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))

    def attention(self, x: Tensor) -> Tensor:
        heads = self.wqkv(x).unflatten(-1, (-1, 3, self.head_width))  # as many as are here: tp peers share them
        query, key, value = heads.permute(3, 0, 2, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class GPT(nn.Module):
    def __init__(self, layers: int = 4, width: int = 128, context: int = 128) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """`positions` of the tokens, where these are a part of longer sequences."""
        x = self.embed(tokens, positions)
        for layer in self.layers:
            x = layer(x)
        return self.predict(x)

    def embed(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        places = self.position.weight[: tokens.shape[1]] if positions is None else self.position(positions)
        return self.token(tokens) + places

    def predict(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))


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


class ByteGPT:
    """The task of line.toml: what gangline calls. Nothing here says how many ranks there are."""

    hints = ParallelHints(
        blocks="layers.*",
        tensor={
            "layers.*.norm_*": "sequence",
            "layers.*.wqkv": "colwise:heads",
            "layers.*.wo": "rowwise:heads",
            "layers.*.mlp.0": "colwise",
            "layers.*.mlp.2": "rowwise",
            "token": "embed",
            "head": "colwise_loss",
        },
        embed="embed",
        head="predict",
        sequence={"tokens": 1, "targets": 1},
    )

    def build_model(self, options):
        return GPT(**options)

    def build_data(self, split, options):
        context = options["model"].get("context", 128)
        return ByteText(options["text"], split, context=context, holdout=options["holdout"])

    def loss(self, outputs, batch):
        targets = batch["targets"]
        total = cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
        return Loss(total=total, weight=targets.numel())
