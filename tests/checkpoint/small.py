"""A model of a few tensors and its saver, in this process."""

import torch
from torch import nn

from gangline.checkpoint.saver import Saver

KEY = b"small"
PREFIX = "runs/p/c/r/checkpoints"


def trained(steps=1, *, seed=1, width=4, optimizer=torch.optim.AdamW):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, 1))
    made = optimizer(model.parameters(), lr=1e-2)
    for _ in range(steps):
        step(model, made)
    return model, made


def step(model, optimizer):
    model(torch.randn(3, model[0].in_features)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def saver(store, **changes):
    made = {"run": "r", "plan_digest": "d", "generation": 1, "key": KEY, "group": None}
    return Saver(store=store, prefix=PREFIX, **(made | changes))


class Wrapped:
    """A store double: every call goes to `store`, unless a test puts another method in front."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)
