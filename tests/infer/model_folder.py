"""A small model folder, its code, and other versions of it."""

import json

import numpy as np
import torch
from safetensors.torch import save_file

from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.train.model.golden import GOLDEN, Golden, golden_bytes

TASK = """
import torch
from gangline.train import Loss

class Line(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, 1)
    def forward(self, x):
        print("model code prints")
        return self.linear(x) * FACTOR

class Task:
    def build_model(self, options):
        return Line(**options)
    def build_data(self, split, options):
        raise NotImplementedError
    def loss(self, outputs, batch):
        return Loss(total=outputs.sum(), weight=len(outputs))
"""


def write_model(folder, *, weight=1.0, answer=4.0, batch=8, queue=16):
    """A version whose answer is the sum of four numbers times `weight`; `answer` is what its golden sample says."""
    folder.mkdir(parents=True)
    infer = {"handler": None, "batch": batch, "wait_ms": 1.0, "queue": queue, "path": []}
    plain = {"format": "gangline-model/1", "task": "line_task:Task", "model": {"width": 4}, "infer": infer}
    (folder / "config.json").write_text(json.dumps(plain))
    weights = {"linear.weight": torch.full((1, 4), weight), "linear.bias": torch.zeros(1)}
    save_file(weights, folder / "model.safetensors")
    golden = Golden({"x": np.ones((2, 4), "float32")}, {"output": np.full((2, 1), answer, "float32")})
    (folder / GOLDEN).write_bytes(golden_bytes(golden))
    return folder


def code(factor=1.0):
    """Code layer of that task, whose outputs are multiplied."""
    return pack([LayerFile("line_task.py", f"FACTOR = {factor}\n{TASK}".encode(), executable=False)])
