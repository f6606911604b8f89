"""A model whose one shard has 16 MiB, saved step by step, and what a reader finds."""

import torch
from torch import nn

from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import tensor_digests
from gangline.errors import GanglineError

KEY = b"shards"
PREFIX = "runs/p/c/r/checkpoints"
STEP_BYTES = 64 * 1024
SHARD_BYTES = 16 * 2**20


class Training:
    """One generation that saves to `store`."""

    def __init__(self, store, *, generation=1, keep=2, elements=SHARD_BYTES // 8):
        self.model = nn.Linear(elements, 1, bias=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.step, self.digests = 0, {}
        self.saver = Saver(
            store=store, prefix=PREFIX, run="r", plan_digest="d", generation=generation, key=KEY, group=None, keep=keep,
            retry_seconds=60.0,
        )  # fmt: skip

    def save(self, *, wait=False):
        """One step and its save, seen to its end; why it failed, None: it is good."""
        self.step += 1
        self.model.weight.grad = torch.full_like(self.model.weight, float(self.step))
        self.optimizer.step()
        self.digests[self.step] = tensor_digests(self.model, self.optimizer)
        try:
            report = self.saver.save(self.model, self.optimizer, {}, step=self.step, wait=wait)
            return report.error if wait else self.saver.wait()[0].error
        except GanglineError as error:
            return str(error)


def opened(store, *, elements=SHARD_BYTES // 8):
    """(step, digests, refused) that a reader finds; step None: no checkpoint."""
    model = nn.Linear(elements, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    refused = []
    loaded = load(
        store, PREFIX, model, optimizer, key=KEY, group=None, on_refused=lambda *reported: refused.append(reported)
    )
    return (loaded.step if loaded else None), tensor_digests(model, optimizer), refused


def assert_reads(store, training, step, **changes):
    found, digests, refused = opened(store, **changes)
    assert (found, refused) == (step, [])
    assert digests == training.digests[step], f"step {step} is a mix"
