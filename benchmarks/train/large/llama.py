"""A model of Llama's shape, as large as its options say: what the memory run follows and a GPU trains."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from gangline.train import Loss, ParallelHints


class Block(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        self.norm_attention, self.norm_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, heads * self.head_width, bias=False)
        self.key = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.value = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(heads * self.head_width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x), turn)
        y = self.norm_mlp(x)
        return x + self.down(silu(self.gate(y)) * self.up(y))

    def attention(self, x: Tensor, turn: Tensor) -> Tensor:
        query, key, value = (
            make(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for make in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(
            turned(query, turn), turned(key, turn), value, is_causal=True, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


def turned(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary places: pairs of features turned by angles of which `turn` holds cosine and sine."""
    cosine, sine = turn.to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


class Model(nn.Module):
    def __init__(
        self, *, layers: int, width: int, hidden: int, heads: int, kv_heads: int, vocabulary: int, **_: int
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, hidden, heads, kv_heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.half = width // heads // 2

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        turn = self.angles(tokens)
        for layer in self.layers:
            x = layer(x, turn)
        return self.predict(x)

    def angles(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        rates = 500_000.0 ** (-torch.arange(self.half, device=tokens.device) / self.half)
        angles = places[:, None] * rates
        return torch.stack([angles.cos(), angles.sin()])

    def predict(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))


class Tokens:
    """Random ones: on zeros, products of some devices are quicker than on data."""

    def __init__(self, options: dict[str, int], samples: int = 4096) -> None:
        self.vocabulary, self.context, self.samples = options["vocabulary"], options["context"], samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row = torch.randint(self.vocabulary, (self.context + 1,), generator=torch.Generator().manual_seed(index))
        return {"tokens": row[:-1], "targets": row[1:]}


class Llama:
    hints = ParallelHints(
        blocks="layers.*",
        tensor={
            "layers.*.norm_*": "sequence",
            "layers.*.query": "colwise:heads",
            "layers.*.key": "colwise:kv_heads",
            "layers.*.value": "colwise:kv_heads",
            "layers.*.out": "rowwise:heads",
            "layers.*.gate": "colwise",
            "layers.*.up": "colwise",
            "layers.*.down": "rowwise",
            "token": "embed",
            "head": "colwise_loss",
        },
        head="predict",
        sequence={"tokens": 1, "targets": 1},
    )

    def build_model(self, options):
        return Model(**options)

    def build_data(self, _, options):
        return Tokens(options["model"])

    def example(self, options):
        tokens = torch.zeros(options["context"], dtype=torch.long)
        return {"tokens": tokens, "targets": tokens}

    def loss(self, outputs, batch):
        targets = batch["targets"]
        total = cross_entropy(outputs.flatten(0, 1).float(), targets.flatten(), reduction="sum")
        return Loss(total=total, weight=targets.numel())


class WholeLogits(Llama):
    """The loss sees the logits of all peers, as one that cannot be computed in parts does."""

    hints = replace(Llama.hints, tensor={**Llama.hints.tensor, "head": "colwise_gather"})
