"""Goes into a gang's code layer, beside `model`: its tasks, struck once at one rank in one step, whatever the mesh.

`STRIKE=what:rank:step` in the environment, in generation 0. Every block of a model is struck at its door: each rank has
some, under a pipeline as well. What ranks took is written down in `samples-<rank>.jsonl`, by step.
"""

import json
import os
import signal
from pathlib import Path

import model
import torch

from gangline.train import heartbeat

HOME, RANK = Path(os.environ["GANGLINE_HOME"]), os.environ["RANK"]
GENERATION = int(os.environ["GANGLINE_GENERATION"])
KIND, STRIKE_RANK, STRIKE_STEP = (os.environ.get("STRIKE") or "none:0:0").split(":")


def step_under_way():
    beat = heartbeat.peek(Path(os.environ["GANGLINE_HEARTBEAT"]))
    return beat.step + 1 if beat is not None else 0


def strike(_, inputs):
    """Before a block's forward pass."""
    mark = HOME / "struck"
    here = RANK == STRIKE_RANK and GENERATION == 0 and torch.is_grad_enabled() and KIND != "none"
    if not here or step_under_way() != int(STRIKE_STEP) or mark.exists():
        return None
    mark.touch()
    if KIND == "nan":
        return tuple(each * float("nan") if each.is_floating_point() else each for each in inputs)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM}[KIND])
    return None


class Reported:
    """A data set that writes down what was taken of it."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        with (HOME / f"samples-{RANK}.jsonl").open("a") as file:
            print(json.dumps({"generation": GENERATION, "step": step_under_way(), "sample": index}), file=file)
        return self.data[index]


class Faulty:
    def build_model(self, options):
        net = super().build_model(options)
        for layer in net.layers:
            layer.register_forward_pre_hook(strike)
        return net

    def build_data(self, split, options):
        data = super().build_data(split, options)
        return Reported(data) if split == "train" else data


class FaultyLong(Faulty, model.Long):
    """Without experts."""


class FaultyExperts(Faulty, model.LongExperts):
    """With them."""
