"""Next tokens of made-up sequences: a task with attention, dropout on demand, and a head that the hints name."""

import json
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from gangline.train import Loss, ParallelHints

VOCABULARY, LENGTH = 32, 12


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)  # attention ignores a bias of keys: AdamW would learn noise
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = self.qkv(self.norm(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


class Reader(nn.Module):
    def __init__(self, width=8, layers=3, dropout=0.0):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.token(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.outputs(x)

    def outputs(self, x):
        return self.last(self.norm(x))


class Texts:
    def __init__(self, start, size):
        self.start, self.size = start, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.start + index)
        tokens = torch.randint(VOCABULARY, (LENGTH + 1,), generator=generator)
        return {"tokens": tokens[:-1], "targets": tokens[1:]}


class Sequences:
    hints = ParallelHints(blocks="layers.*", head="outputs", sequence={"tokens": 1, "targets": 1})

    def build_model(self, options):
        return Reader(**options)

    def build_data(self, split, options):
        return Texts(0, 37) if split == "train" else Texts(1000, 11)

    def loss(self, outputs, batch):
        assert outputs.shape[:2] == batch["targets"].shape
        total = cross_entropy(outputs.flatten(0, 1), batch["targets"].flatten(), reduction="sum")
        return Loss(total=total, weight=batch["targets"].numel())


class Samples(Sequences):
    """Says nothing about sequences."""

    hints = ParallelHints(blocks="layers.*", head="outputs")


class Headless(Sequences):
    hints = ParallelHints(blocks="layers.*")


class Ending(Sequences):
    """Its head is a module."""

    hints = ParallelHints(blocks="layers.*", head="ending", sequence={"tokens": 1, "targets": 1})

    def build_model(self, options):
        return EndsInModule(**options)


class EndsInModule(Reader):
    def __init__(self, **options):
        super().__init__(**options)
        self.ending, self.norm, self.last = nn.Sequential(self.norm, self.last), None, None
        self.after = nn.Parameter(torch.zeros(1))

    def outputs(self, x):
        return self.ending(x)


class Later(Sequences):
    """Its forward goes on after what it calls its head."""

    hints = ParallelHints(blocks="layers.*", head="norm")


class Bigrams(nn.Module):
    """Fewer parameters than a gang has ranks."""

    def __init__(self, width=8, layers=1):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, VOCABULARY)

    def forward(self, tokens):
        return self.table(tokens)


class Few(Sequences):
    hints = ParallelHints()

    def build_model(self, options):
        return Bigrams(**options)


class OwnRule(Sequences):
    """Brings an optimizer whose options do not make another one of its kind."""

    def build_optimizer(self, model, options):
        return Plain(model.parameters(), True)


class Plain(torch.optim.SGD):
    def __init__(self, params, here):
        super().__init__(params, lr=0.1)
        self.here = here


class Line(nn.Module):
    """One weight, whose gradient is its input, under `Steps` a 1024th of it."""

    def __init__(self, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, 1))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


class Steps(Sequences):
    """A sample for each number of `inputs`."""

    hints = ParallelHints()

    def build_model(self, options):
        return Line(**options)

    def build_data(self, split, options):
        return [{"x": torch.tensor([float(each)])} for each in options["model"]["inputs"]]

    def loss(self, outputs, batch):
        return Loss(total=outputs.float().sum() / 1024, weight=len(outputs))


class Compiled(Sequences):
    """Writes down how many graphs there are before each loss, and where they break."""

    def __init__(self):
        self.graphs = []

    def loss(self, outputs, batch):
        from torch._dynamo.utils import counters

        if torch.is_grad_enabled():
            self.graphs.append(counters["stats"]["unique_graphs"])
            found = {"graphs": self.graphs, "breaks": sum(counters["graph_break"].values())}
            home = Path(os.environ["GANGLINE_HOME"])
            (home / f"compiled-{os.environ['RANK']}.json").write_text(json.dumps(found))
        return super().loss(outputs, batch)
