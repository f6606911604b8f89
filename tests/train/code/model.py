"""A tiny task that misbehaves on demand: `STRIKE=what:rank:step` in the environment, once, in generation 0.

`poison` is a `nan` from that step on; `slow` is so once all other ranks wait, on a busy machine, too.
"""

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss

from gangline.train import Loss, ParallelHints, heartbeat

KIND, STRIKE_RANK, STRIKE_STEP = (os.environ.get("STRIKE") or "none:0:0").split(":")


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.inner, self.outer, self.drop = (
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        return x + self.drop(self.outer(torch.tanh(self.inner(x))))


class Statistics(nn.BatchNorm1d):
    """With a buffer that nobody changes, whose mean over three would not be itself, and one of its own that changes."""

    def __init__(self, width):
        super().__init__(width)
        self.register_buffer("fixed", torch.full((1,), 0.1))
        self.register_buffer("usual", torch.zeros(width))

    def forward(self, x):
        if self.training:
            self.usual.lerp_(x.detach().mean(0), 0.5)
        return super().forward(x) * self.fixed + self.usual


class Net(nn.Module):
    def __init__(self, width=8, layers=2, dropout=0.0, norm=False):
        super().__init__()
        self.norm = Statistics(4) if norm else nn.Identity()
        self.first = nn.Linear(4, width)
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = self.first(self.norm(x))
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
        return {"x": x, "y": x.sin().sum(), "weight": torch.tensor(1.0 + (index % 5)), "index": torch.tensor(index)}


class Tiny:
    hints = ParallelHints(blocks="layers.*", tensor={"layers.*.inner": "colwise", "layers.*.outer": "rowwise"})

    def __init__(self):
        self.step = 0
        self.metric_units = {"error": "abs"}

    def build_model(self, options):
        return Net(**options)

    def build_data(self, split, options):
        return Points(0, 37) if split == "train" else Points(1000, 11)

    def loss(self, outputs, batch):
        if torch.is_grad_enabled():
            self.step += 1
            outputs = strike(self.step, outputs)
        errors = mse_loss(outputs, batch["y"], reduction="none")
        return Loss(total=(errors * batch["weight"]).sum(), weight=batch["weight"].sum())

    def export_names(self):
        return {"last.weight": "lm_head.weight"}

    def evaluate(self, model, batch):
        return {"error": ((model(batch["x"]) - batch["y"]).abs().sum(), len(batch["y"]))}


def strike(step, outputs):
    """Counts loss calls of this process: with one micro-batch a step they are steps."""
    when = step >= int(STRIKE_STEP) if KIND == "poison" else step == int(STRIKE_STEP)
    here = when and os.environ.get("RANK", "0") == STRIKE_RANK
    if not here or os.environ.get("GANGLINE_GENERATION", "0") != "0":
        return outputs
    if KIND in ("nan", "poison"):
        return outputs * float("nan")
    if KIND == "raise":
        raise ValueError("the user's own mistake")
    if KIND == "memory":
        raise MemoryError
    if KIND == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if KIND == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    if KIND == "slow":
        await_others()
        time.sleep(0.3)
    return outputs


def await_others():
    """Return when every other rank is in the backward pass of this step: from then on it waits for this one."""
    own = Path(os.environ["GANGLINE_HEARTBEAT"])
    here = (heartbeat.peek(own).step, "backward")
    others = [own.with_name(str(rank)) for rank in range(int(os.environ["WORLD_SIZE"])) if str(rank) != own.name]
    while not all((beat := heartbeat.peek(path)) and (beat.step, beat.phase) == here for path in others):
        time.sleep(0.001)
