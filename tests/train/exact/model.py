"""A task whose gradients are eighths of small integers, whatever the weights: exact sums, in any order, on any ranks.

Wide, tall and square matrices, some of rows that four ranks do not share evenly; no other parameter.
"""

import os
import time

import torch
from torch import nn

from gangline.train import Loss, ParallelHints

SHAPES = [(6, 10), (10, 6), (8, 8), (4, 9), (9, 4)]
"""Columns and rows of the layers."""
WIDEST = 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(columns, rows, bias=False) for columns, rows in SHAPES)

    def forward(self, x):
        return torch.cat([layer(x[:, : layer.in_features]) for layer in self.layers], dim=1)


class Integers:
    """Sample `i` is a function of `i`."""

    def __len__(self):
        return 37

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randint(-2, 3, (WIDEST,), generator=generator).float()
        y = torch.randint(-2, 3, (sum(rows for _, rows in SHAPES),), generator=generator).float()
        return {"x": x, "y": y}


class Exact:
    hints = ParallelHints(blocks="layers.*")

    def build_model(self, options):
        return Net()

    def build_data(self, split, options):
        return Integers()

    def loss(self, outputs, batch):
        if torch.is_grad_enabled():
            time.sleep(float(os.environ.get("PACE", "0")))
        return Loss(total=(outputs * batch["y"]).sum(), weight=len(batch["y"]))
