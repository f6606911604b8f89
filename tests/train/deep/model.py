"""A task whose model has two ends and a row of blocks, as pipelines want it, with what makes cutting hard.

`STRIKE=what:step` in the environment makes the loss of one step go wrong, `UNEVEN` samples of different lengths.
"""

import os

import torch
from torch import nn
from torch.nn.functional import mse_loss

from gangline.train import Loss, ParallelHints

KIND, STRIKE_STEP = (os.environ.get("STRIKE") or "none:0").split(":")


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, scale):
        """A boundary of two tensors: the first is a view, the second is never trained."""
        x = x + scale * self.drop(self.outer(torch.tanh(self.inner(self.norm(x)))))
        return x.view_as(x), scale


class Deep(nn.Module):
    """One parameter is the model's own, in no module."""

    def __init__(self, width=8, layers=4, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.shift = nn.Parameter(torch.empty(width))
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.last = nn.Linear(width, 1)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.shift)

    def embed(self, x):
        return self._lift(x), torch.ones(len(x), 1)

    def _lift(self, x):
        return self.first(x) + self.shift

    def head(self, x, scale):
        return {"point": self.last(x).squeeze(-1), "scale": scale}

    def forward(self, x):
        values = self.embed(x)
        for layer in self.layers:
            values = layer(*values)
        return self.head(*values)


class Points:
    """Sample `i` is a function of `i`; its weight is uneven on purpose."""

    def __init__(self, start, size):
        self.start, self.size = start, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.start + index)
        x = torch.randn(4, generator=generator)
        sample = {"x": x, "y": x.sin().sum(), "weight": torch.tensor(1.0 + (index % 5))}
        if "UNEVEN" in os.environ:
            sample["note"] = torch.zeros(1 + index // 10)
        return sample


class DeepPoints:
    hints = ParallelHints(blocks="layers.*", embed="embed", head="head", tensor={
        "layers.*.inner": "colwise", "layers.*.outer": "rowwise",
    })  # fmt: skip

    def __init__(self):
        self.calls = 0

    def build_model(self, options):
        return Deep(**options)

    def build_data(self, split, options):
        return Points(0, 37) if split == "train" else Points(1000, 11)

    def loss(self, outputs, batch):
        errors = mse_loss(self._strike(outputs["point"]), batch["y"], reduction="none")
        return Loss(total=(errors * batch["weight"]).sum(), weight=batch["weight"].sum())

    def evaluate(self, model, batch):
        held = sum(each.numel() for each in model.parameters())
        return {
            "error": ((model(batch["x"])["point"] - batch["y"]).abs().sum(), len(batch["y"])),
            "held": (held * len(batch["y"]), len(batch["y"])),
        }

    def _strike(self, points):
        """Counts losses of this process that are trained on."""
        self.calls += torch.is_grad_enabled()
        here = torch.is_grad_enabled() and self.calls == int(STRIKE_STEP)
        if here and KIND == "overflow":
            points.register_hook(lambda grad: grad * float("inf"))
        return points * float("nan") if here and KIND == "nan" else points
