"""What matrix rules keep in the memory of a process, by the kernel's count; runs on ranks."""

import ctypes
import gc
import re
import tempfile
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from gangline.optim.executors.rank_updates import local_part
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.routing import partition_params
from gangline.optim.rules.matrix_rule import MatrixRule
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.train.parallel.state_on_disk import MatrixStateOnDisk, StateWindow

Shapes = list[tuple[int, int]]
SHAPES: Shapes = 2 * [(512, 512), (512, 768), (512, 512)]
"""Owners of two ranks have equal shares."""
RULES = {"soap": Soap(refresh_every=1), "shampoo": Shampoo(refresh_every=1)}
_WINDOW = 3 << 20
"""Of parameters: two or three."""
_M_MMAP_THRESHOLD = -3


def resident(folder: Path) -> int:
    """Bytes of this process's mappings of files in `folder` that are in memory."""
    total, here = 0, False
    with Path("/proc/self/smaps").open() as lines:  # the whole text would be megabytes of what is measured
        for line in lines:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                here = str(folder) in line
            elif here and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def built(shapes: Shapes) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(columns, rows, bias=False) for rows, columns in shapes))


def kept(rule: MatrixRule, shapes: Shapes, *, in_files: bool, sharded: bool = False) -> dict[str, int]:
    """Largest bytes of a rank in two steps: `files` of mapped files, `created` and `stepped` of the whole process
    beyond what it had before, without gradients; `left` of mapped files after the last step."""
    model, seen = built(shapes), [0]
    leave = StateWindow.leave_memory
    if sharded:
        fully_shard(model)

    def seen_leaving(window: StateWindow) -> None:
        seen.append(resident(folder))  # pages leave in no other place
        leave(window)

    with tempfile.TemporaryDirectory() as name, patch.object(StateWindow, "leave_memory", seen_leaving):
        folder = Path(name)
        files = MatrixStateOnDisk(list(model.parameters()), folder, window_bytes=_WINDOW) if in_files else None
        before = _forget_peak()
        optimizer = MatrixOptimizer(
            partition_params(model), rule=rule, files=files,
            replicas=dist.group.WORLD if dist.is_initialized() and not sharded else None,
        )  # fmt: skip
        created = _status("VmHWM") - before
        for each in model.parameters():
            each.grad = torch.randn_like(each)
        gradients = sum(local_part(each).nbytes for each in model.parameters())
        for _ in range(2):
            optimizer.step()
        stepped = _status("VmHWM") - before - gradients
        return {"files": max(seen), "created": created, "stepped": stepped, "left": resident(folder)}


def kept_of(rules: list[str]) -> list[dict[str, dict[str, int]]]:
    """Of each rule in files, and then in memory."""
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 16)  # freed tensors leave the process
    kept(RULES[rules[0]], SHAPES[:2], in_files=False)  # what libraries take for themselves
    return [
        {"files": kept(RULES[each], SHAPES, in_files=True), "memory": kept(RULES[each], SHAPES, in_files=False)}
        for each in rules
    ]


def kept_of_shards() -> list[dict[str, int]]:
    """Of each rule, and of Muon that sends its momentum, in files."""
    rules = [*RULES.values(), Muon(nesterov=False, dtype="float32")]
    return [kept(each, SHAPES, in_files=True, sharded=True) for each in rules]


def _forget_peak() -> int:
    """Restart the peak of this process at what it has, and return that."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    [kilobytes] = re.findall(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kilobytes) * 1024
