"""S8, S12: a slow store holds training up by the copy alone; one save is in flight, and memory is bounded."""

import threading
import time
from pathlib import Path
from statistics import median

import pytest
import torch
from torch import nn

from gangline.checkpoint.saver import Saver
from gangline.storage.local import FolderStore

PREFIX = "runs/p/c/r/checkpoints"


class Slow:
    """Writes pass one at a time, each after a pause; counts how many wait at once."""

    def __init__(self, store, pause):
        self._store, self._pause, self._lock = store, pause, threading.Lock()
        self.writing = self.most = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, key, data):
        self.writing += 1
        self.most = max(self.most, self.writing)
        time.sleep(self._pause)
        try:
            return self._store.put(key, data)
        finally:
            self.writing -= 1


def training(width):
    model = nn.Linear(width, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(width)).sum().backward()
    optimizer.step()
    return model, optimizer


def saver(store):
    return Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=b"k", group=None)


@pytest.mark.row("S8")
def test_slow_store_holds_training_up_by_the_copy_alone(tmp_path):
    model, optimizer = training(512)
    made = saver(Slow(FolderStore(tmp_path), pause=0.4))
    waited = made.save(model, optimizer, {}, step=1, wait=True)
    blocking = []
    for step in range(2, 5):
        blocking.append(made.save(model, optimizer, {}, step=step, wait=False).blocking_seconds)
        [report] = made.wait()
        assert report.error is None
        assert report.seconds > 0.4
    assert median(blocking) <= 0.05 * waited.seconds


@pytest.mark.row("S12")
def test_saves_that_overlap_never_pile_up(tmp_path):
    model, optimizer = training(1024)
    state_bytes = 2 * sum(each.nbytes for each in model.parameters())
    slow = Slow(FolderStore(tmp_path), pause=0.02)
    made = saver(slow)
    made.save(model, optimizer, {}, step=1, wait=True)
    before, peak, reports = _resident(), 0, []
    for step in range(2, 52):
        made.save(model, optimizer, {}, step=step, wait=False)
        reports += made.poll()
        peak = max(peak, _resident())
    reports += made.wait()
    assert slow.most == 1
    assert made.skipped + len(reports) == 50
    assert made.skipped > 0
    assert not any(report.error for report in reports)
    assert peak - before < 4 * state_bytes + 64 * 2**20


def _resident() -> int:
    """Bytes of memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
