"""Tasks on data sets: samples say what they are and what they drew, ranks write down what they took."""

import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gangline.keeper.ipc import heartbeat
from gangline.train import Loss

GENERATION = os.environ.get("GANGLINE_GENERATION", "0")
BROKEN = os.environ.get("BROKEN", "")
"""What happens in generation 0 when a sample is read: `KIND:SAMPLE`."""

if "CORES" in os.environ:  # of a machine with more of them
    os.sched_getaffinity = lambda _: set(range(int(os.environ["CORES"])))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x @ self.weight


class Decoded:
    """Made of rows, one sample a row, with draws of all three generators."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        break_down(int(row["id"]))
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return {"x": torch.tensor(drawn), "id": row["id"], "worker": os.getpid()}


def break_down(sample):
    kind, _, wanted = BROKEN.partition(":")
    if GENERATION != "0" or not kind or sample != int(wanted):
        return
    if kind == "raise":
        raise ValueError("the user's own mistake")
    if kind == "memory":
        raise MemoryError
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    if kind == "exit":
        os._exit(3)


class Sets:
    """Loss of a sum of draws: equal draws of equal samples give equal weights."""

    def build_model(self, options):
        return Net()

    def build_data(self, split, options):
        if "dataset" not in options:
            return Decoded([{"id": np.int64(each)} for each in range(37)])
        return Decoded(options["dataset"])

    def loss(self, outputs, batch):
        if torch.is_grad_enabled():
            note(batch)
            strike()
            return Loss(total=(outputs - batch["x"].sum(1)).square().sum(), weight=len(outputs))
        return Loss(total=outputs.sum() * 0 + batch["id"].sum(), weight=len(outputs))


def step():
    """The step that this rank is in, by its own heartbeat: what others see of it may be older."""
    return heartbeat._own_writer()._step + 1


def note(batch):
    """What this rank takes in this step."""
    line = {
        "step": step(), "generation": int(GENERATION), "samples": batch["id"].tolist(), "drawn": batch["x"].tolist(),
        "readers": sorted(set(batch["worker"].tolist())),
    }  # fmt: skip
    with (Path(os.environ["GANGLINE_HOME"]) / f"samples-{os.environ['RANK']}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def strike():
    """`STRIKE=RANK:STEP:GENERATION`, several with commas: that rank is killed in the middle of that step."""
    for each in filter(None, os.environ.get("STRIKE", "").split(",")):
        if (os.environ["RANK"], str(step()), GENERATION) == tuple(each.split(":")):
            os.kill(os.getpid(), signal.SIGKILL)
