"""S12: saves that overlap under a memory limit of what training and one set of copies take, and a fifth: none dies."""

import resource
import time
from pathlib import Path

import pytest
from tests.faults.s.shards import KEY, PREFIX, Training
from tests.forks.server import fork_server
from tests.leash import end_with_tests

from gangline.checkpoint.loader import load
from gangline.storage.folder.store import FolderStore

pytestmark = pytest.mark.row("S12", full="50 overlapping saves")
ELEMENTS = 32 * 2**20
STATE_BYTES = 2 * 4 * ELEMENTS
"""Parameters and momentum: 256 MiB."""


class Slow:
    """A store whose parts take a while, so that the next save finds one in flight."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def upload(self, key):
        time.sleep(0.3)
        return self._store.upload(key)


def overlapping_saves(root, saves):
    """In a child: its address space may grow by one set of host copies and a fifth of that, no more."""
    end_with_tests()
    training = Training(Slow(FolderStore(root)), elements=ELEMENTS)
    training.model.weight.grad = training.model.weight.detach().clone()
    training.optimizer.step()
    training.model.weight.grad = None
    now = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + int(1.2 * STATE_BYTES) + SLACK_BYTES,) * 2)
    taken = 0
    for step in range(1, saves + 1):
        taken += training.saver.save(training.model, training.optimizer, {}, step=step, wait=False) is not None
        time.sleep(0.05)
    reports = [
        *training.saver.wait(),
        training.saver.save(training.model, training.optimizer, {}, step=saves + 1, wait=True),
    ]
    assert not any(report.error for report in reports), reports
    assert taken + training.saver.skipped == saves
    assert training.saver.skipped > 0


SLACK_BYTES = 160 * 2**20
"""Threads' stacks and arenas, and the blocks of 16 MiB on their way."""


@pytest.mark.parametrize("saves", [4, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_overlapping_saves_stay_within_a_fifth_above_one_set_of_copies(tmp_path, saves):
    process = fork_server().Process(target=overlapping_saves, args=(tmp_path / "store", saves))
    process.start()
    process.join(600)
    assert process.exitcode == 0
    assert load(FolderStore(tmp_path / "store"), PREFIX, *_fresh(), key=KEY, group=None).step == saves + 1


def _fresh():
    training = Training(None, elements=ELEMENTS)
    return training.model, training.optimizer
