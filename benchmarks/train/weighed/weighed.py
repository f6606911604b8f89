"""bytegpt that weighs its rank: tensors when its optimizer steps, and the peak of torch's allocator in two steps.

Every allocation and release since the task was made is counted, the making of the model included. A model of bytegpt
lies beside this file as `bytegpt.py`.
"""

import json
import os
from pathlib import Path

import torch
from allocations import peak_of
from bytegpt import ByteGPT
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.profiler import ProfilerActivity, profile

WEIGHED_STEPS = 2


class Scales:
    """Measures what the rank of a task holds."""

    def __init__(self) -> None:
        super().__init__()
        self.found = {"parameters": 0, "gradients": 0, "optimizer": 0}
        self.depth = self.steps = 0
        register_optimizer_step_pre_hook(self.before)
        register_optimizer_step_post_hook(self.after)
        self.profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
        self.profiler.start()

    def before(self, optimizer, *_):
        """One optimizer may step inside another, which counts more than the inner one or as much."""
        self.depth += 1
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        self.most("parameters", parameters)
        self.most("gradients", [each.grad for each in parameters if each.grad is not None])

    def after(self, optimizer, *_):
        held = [value for state in optimizer.state.values() for value in state.values()]
        self.most("optimizer", [value for value in held if isinstance(value, torch.Tensor) and value.ndim])
        self.depth -= 1
        if not self.depth:
            self.steps += 1
            if self.steps == WEIGHED_STEPS:
                self.write()

    def most(self, kind, tensors):
        self.found[kind] = max(self.found[kind], sum(map(size_bytes, tensors)))

    def write(self):
        self.profiler.stop()
        peak = peak_of(self.profiler.profiler.kineto_results.experimental_event_tree())
        path = Path(os.environ["GANGLINE_HOME"]) / f"weight-{os.environ['RANK']}.json"
        path.write_text(json.dumps(self.found | {"peak": peak}))


class Weighed(Scales, ByteGPT):
    pass


def size_bytes(tensor):
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.numel() * local.element_size()
