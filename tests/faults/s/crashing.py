"""A training of three steps that saves its last one over a store that kills it; run in forked children."""

from dataclasses import dataclass
from pathlib import Path

import torch
from tests.faults.instruments.crash_points import CountingStore, CrashPlan, When
from tests.forks.server import fork_server
from tests.leash import end_with_tests
from torch import nn

from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import tensor_digests
from gangline.storage.folder.store import FolderStore

KEY = b"crashing"
PREFIX = "runs/p/c/r/checkpoints"
STEPS = 3


@dataclass(frozen=True)
class Child:
    """What a child is asked to do; it ends by its plan's SIGKILL or with exit code 0."""

    root: Path
    generation: int
    log: Path
    at: int | None = None
    when: When = "before"

    def __call__(self) -> None:
        torch.set_num_threads(1)
        train(
            CountingStore(FolderStore(self.root), CrashPlan(self.log, self.at, self.when)), self.generation, until=STEPS
        )


def train(store, generation: int, *, until: int) -> dict[int, dict[str, str]]:
    """Resume, train and save every step up to `until`, keep two; digests by step."""
    model, optimizer = build()
    loaded = load(store, PREFIX, model, optimizer, key=KEY, group=None)
    saver = Saver(
        store=store, prefix=PREFIX, run="r", plan_digest="d", generation=generation, key=KEY, group=None, keep=2
    )
    digests = {loaded.step: tensor_digests(model, optimizer)} if loaded else {}
    for step in range(loaded.step + 1 if loaded else 1, until + 1):
        torch.manual_seed(step)
        model(torch.randn(2, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        saver.save(model, optimizer, {"cursor": step}, step=step, wait=True)
        digests[step] = tensor_digests(model, optimizer)
    saver.close()
    return digests


def build():
    """A model whose one shard is longer than one block of 16 MiB, so that it is uploaded in parts."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 22_000), nn.Linear(22_000, 64, bias=False))
    return model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def _leashed(child: Child) -> None:
    end_with_tests()
    child()


def in_child(child: Child) -> int:
    """Exit code of `child`, run by a warm server that has torch imported and one thread."""
    process = fork_server().Process(target=_leashed, args=(child,))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode
