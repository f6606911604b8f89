"""S5: a full disk under the checkpoints: training goes on, nothing half is listed, the next save after space works."""

import subprocess
from random import Random

import pytest
import torch
from torch import nn

from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import tensor_digests
from gangline.storage.folder.store import FolderStore

pytestmark = pytest.mark.row("S5", full="100 disks that fill up")
PREFIX = "runs/p/c/r/checkpoints"


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.slow)])
def small_disk(tmp_path, request):
    """A file system of that many MiB; mounting one takes root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs leave to mount a tmpfs: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("number", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 50))])
def test_full_disk_costs_no_step_and_lists_nothing_half(small_disk, seed, number):
    """100 at full size."""
    dice = Random(f"S5 {seed + number}")
    full, free = dice.randint(2, 4), dice.randint(5, 7)
    store = FolderStore(small_disk / "store")
    model = nn.Linear(150, 100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=b"k", group=None, keep=2)
    filler = small_disk / "filler"
    reports, digests = [], {}
    for step in range(1, 9):
        if step == full:
            _fill(filler)
        if step == free:
            filler.unlink()
        model(torch.ones(150)).sum().backward()
        optimizer.step()
        saver.save(model, optimizer, {}, step=step, wait=False)
        digests[step] = tensor_digests(model, optimizer)
        reports += saver.wait()
        listed = list_checkpoints(store, PREFIX)
        other = nn.Linear(150, 100)
        loaded = load(store, PREFIX, other, torch.optim.SGD(other.parameters(), momentum=0.9), key=b"k", group=None)
        assert loaded.step == listed[0].step
        assert tensor_digests(other).items() <= digests[loaded.step].items()
    failed = [report.step for report in reports if report.error]
    assert failed == list(range(full, free))
    assert all("space" in report.error for report in reports if report.error)
    assert [found.step for found in list_checkpoints(store, PREFIX)] == [8, 7]


def _fill(path):
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            pass
