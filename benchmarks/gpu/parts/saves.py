"""What a save blocks, and a verified load next to plain DCP's, which checks nothing, of tensors on the device.

The comparison of `train/checkpoint.py`, in a folder on this machine's disk; its pages stay in memory. Bounds: a save in
the background blocks at most 5 % of one that is waited for, and at most 1.25 of the time in which one tensor of that
size is copied to host memory here; the load takes at most 1.3 of plain DCP's.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from figures import Report
from one_rank import apart
from shapes import Shapes

COPYING = 1.25
MOST_COPIED = 2**30
"""Bytes of the one tensor that is copied."""


def names(_: Shapes) -> tuple[str, ...]:
    return "blocking / save", "blocking / copy", "load / plain DCP"


def run(report: Report, shapes: Shapes) -> None:
    found, copied = apart(measured, shapes), apart(to_host, shapes)
    report.tell("seconds", found | {"copied_to_host_bytes_per_second": copied})
    limits = found["limits"]
    report.add(
        "blocking / save", found["blocking_ratio"], at_most=limits["blocking"], source="train/background_save.py"
    )
    ratio = found["blocking_seconds"] * copied / found["checkpoint_bytes"]
    report.add("blocking / copy", ratio, at_most=COPYING, source="copy of one tensor to pinned memory in this run")
    report.add("load / plain DCP", found["load_ratio"], at_most=limits["load"], source="plain DCP in this run")


def measured(shapes: Shapes) -> dict[str, Any]:
    import warnings

    import torch
    from background_save import BLOCKING
    from checkpoint import LOADING, WIDTH, core_rates, measure

    warnings.filterwarnings("ignore", message="torch.distributed is disabled|Detected an existing")
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="gangline-saves-"))
    try:
        layers = max(1, round(shapes.saved_parameters / WIDTH**2))
        found = measure(folder, layers, shapes.rounds, None, device=shapes.device)
        disk = {"free_disk_bytes": shutil.disk_usage(folder).free, "limits": {"blocking": BLOCKING, "load": LOADING}}
        return found | core_rates(folder / "block") | disk
    finally:
        shutil.rmtree(folder)


def to_host(shapes: Shapes) -> float:
    from machine import to_host_rate

    return to_host_rate(shapes, min(MOST_COPIED, round(12 * shapes.saved_parameters)))
