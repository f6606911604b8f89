"""S8, S12: a slow store holds training up by the copy alone; one save is in flight, and memory is bounded."""

import threading
import time
from pathlib import Path
from secrets import token_hex
from statistics import median, quantiles

import pytest
import torch
from torch import nn

from gangline.checkpoint.saver import Saver
from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.storage.folder.store import FolderStore

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
        began = time.monotonic()
        reported = made.save(model, optimizer, {}, step=step, wait=False)
        blocking.append(time.monotonic() - began)
        assert reported.blocking_seconds <= blocking[-1]
        [report] = made.wait()
        assert report.error is None
        assert report.seconds > 0.4
    assert median(blocking) <= 0.05 * waited.seconds


@pytest.mark.row("S8", full="20 saves into a store that takes a second for each object")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_steps_next_to_a_slow_save_are_as_quick_as_without(tmp_path):
    """Each of 20 saves passes a store that takes a second for every object."""
    model, optimizer = training(512)
    made, alone, during = saver(Slow(FolderStore(tmp_path), pause=1.0)), [], []
    for step in range(1, 21):
        alone += [_step_seconds(model, optimizer) for _ in range(100)]
        assert made.save(model, optimizer, {}, step=step, wait=False) is not None
        while not made.poll():
            during.append(_step_seconds(model, optimizer))
    p99 = [quantiles(each, n=100)[98] for each in (alone, during)]
    print(f"S8 p99 of a step {1000 * p99[0]:.2f} ms alone, {1000 * p99[1]:.2f} ms during a save")
    assert p99[1] <= 1.1 * p99[0]


@pytest.mark.row("S8", full="5 saves into a server behind 50 kB/s")
@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.timeout(900)
def test_thin_line_to_a_server_holds_training_up_by_the_copy_alone(minio_server):
    model, optimizer = training(256)
    rule, blocking = FaultRule(action="throttle", probability=1.0, bytes_per_second=50_000), []
    with FaultProxy("127.0.0.1", minio_server.port, rules=[rule]) as proxy:
        store = minio_server.store(f"thin/{token_hex(4)}", endpoint=proxy.endpoint, deadline_seconds=120)
        made = saver(store)
        waited = made.save(model, optimizer, {}, step=1, wait=True)
        assert waited.error is None
        for step in range(2, 7):
            began = time.monotonic()
            assert made.save(model, optimizer, {}, step=step, wait=False) is not None
            blocking.append(time.monotonic() - began)
            [report] = made.wait()
            assert report.error is None
    print(f"S8 behind 50 kB/s: a save {waited.seconds:.1f} s, blocking {1000 * max(blocking):.1f} ms")
    assert max(blocking) <= 0.05 * waited.seconds


def _step_seconds(model, optimizer) -> float:
    began = time.perf_counter()
    model(torch.ones(64, 512)).square().mean().backward()
    optimizer.step()
    return time.perf_counter() - began


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
