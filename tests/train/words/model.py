"""A small transformer with everything that rule words are for, and a task for each way to cut it."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from gangline.train import Loss, ParallelHints

VOCABULARY = 24


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, head_width=4):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, head_width
        self.wq = nn.Linear(width, heads * head_width, bias=False)
        self.wk = nn.Linear(width, kv_heads * head_width, bias=False)
        self.wv = nn.Linear(width, kv_heads * head_width, bias=False)
        self.norm_of_heads = nn.LayerNorm(head_width)
        self.wo = nn.Linear(heads * head_width, width)

    def forward(self, x):
        query, key, value = (
            each(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for each in (self.wq, self.wk, self.wv)
        )
        mixed = scaled_dot_product_attention(self.norm_of_heads(query), key, value, is_causal=True, enable_gqa=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, dropout):
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm_attention(x)))
        x_mlp = self.norm_mlp(x)
        return x + self.drop(self.down(silu(self.gate(x_mlp)) * self.up(x_mlp)))


class Words(nn.Module):
    def __init__(self, width=16, heads=4, kv_heads=2, layers=2, length=12, dropout=0.0, tied=False):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Block(width, heads, kv_heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.predict(x)

    def embed(self, tokens):
        return self.token(tokens) + self.place.weight[: tokens.shape[1]]

    def predict(self, x):
        return self.head(self.norm(x))


class Sentences:
    """Sample `i` is a function of `i`."""

    def __init__(self, start, size, length):
        self.start, self.size, self.length = start, size, length

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.start + index)
        steps = torch.randint(1, 3, (self.length + 1,), generator=generator)
        tokens = (steps.cumsum(0) + index) % VOCABULARY
        return {"tokens": tokens[:-1], "targets": tokens[1:]}


HEADS = {
    "layers.*.attention.w[q]": "colwise:heads",
    "layers.*.attention.w[kv]": "colwise:kv_heads",
    "layers.*.attention.norm_of_heads": "local",
    "layers.*.attention.wo": "rowwise:heads",
    "layers.*.gate": "colwise",
    "layers.*.up": "colwise",
    "layers.*.down": "rowwise",
}
NORMS = {"layers.*.norm_*": "sequence", "layers.*.drop": "sequence"}
LOSS = {"token": "embed", "head": "colwise_loss"}


def hints_with(**tensor):
    return ParallelHints(blocks="layers.*", tensor=HEADS | tensor, embed="embed", head="predict")


class Cut:
    """Blocks are cut, logits are whole."""

    hints = hints_with(head="colwise_gather")

    def build_model(self, options):
        return Words(**options)

    def build_data(self, split, options):
        length = options["model"].get("length", 12)
        return Sentences(0, 40, length) if split == "train" else Sentences(1000, 6, length)

    def loss(self, outputs, batch):
        targets = batch["targets"]
        return Loss(
            total=cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum"), weight=targets.numel()
        )

    def evaluate(self, model, batch):
        wrong = model(batch["tokens"]).argmax(-1) != batch["targets"]
        return {"error": (wrong.sum(), wrong.numel())}


class CutSequence(Cut):
    """Between blocks every peer holds a part of each sequence."""

    hints = hints_with(**NORMS)


class CutLoss(Cut):
    """Logits are never put together."""

    hints = hints_with(**LOSS)


class CutAll(Cut):
    hints = hints_with(**NORMS, **LOSS)
