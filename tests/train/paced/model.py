"""A task whose ranks take `PACE` seconds a sample, one of them longer: `SLOW=rank:factor:from:until`, in samples."""

import os
import time

import torch
from torch import nn

from gangline.train import Loss, ParallelHints

PACE = float(os.environ.get("PACE", "0"))
SLOW, FACTOR, FROM, UNTIL = [float(each) for each in os.environ.get("SLOW", "-1:1:0:1e9").split(":")]
RANK = int(os.environ.get("RANK", "0"))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.outer(torch.tanh(self.inner(x)))


class Net(nn.Module):
    def __init__(self, width=8, layers=2):
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x).squeeze(-1)


class Points:
    """Sample `i` is a function of `i`; its weight is uneven on purpose."""

    def __init__(self, start, size):
        self.start, self.size = start, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.start + index)
        x = torch.randn(4, generator=generator)
        return {"x": x, "y": x.sin().sum(), "weight": torch.tensor(1.0 + (index % 5))}


class Paced:
    hints = ParallelHints(blocks="layers.*")

    def __init__(self):
        self.samples = 0

    def build_model(self, options):
        return Net(**options)

    def build_data(self, split, options):
        return Points(0, 37) if split == "train" else Points(1000, 8)

    def loss(self, outputs, batch):
        if torch.is_grad_enabled():
            self.samples += len(batch["y"])
            slow = RANK == SLOW and FROM <= self.samples < UNTIL
            time.sleep(PACE * len(batch["y"]) * (FACTOR if slow else 1.0))
        errors = (outputs - batch["y"]) ** 2
        return Loss(total=(errors * batch["weight"]).sum(), weight=batch["weight"].sum())
