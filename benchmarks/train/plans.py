"""Plans side by side on forked gloo ranks of this machine: losses, and the bytes that went over loopback.

Bytes are those of every process in the network namespace; `alone` starts a program again in one of its own.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "bytegpt"))  # the code layer of all plans
WARM_UP = 2
"""Steps that do not count: DDP lays out its buckets anew after the first."""


@dataclass
class Found:
    losses: list[float]
    bytes_per_step: float
    """Sent by all ranks together."""
    seconds_per_step: float
    """Mean of all."""
    steps: list[dict]
    """Events of the steps of rank 0 that count."""


def alone(arguments: list[str]) -> int:
    """This program again, in a network namespace of its own; its exit code."""
    inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *arguments]
    return subprocess.run(["unshare", "--net", *inside], check=False).returncode


def has_own_network() -> bool:
    """Nothing but loopback is here."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return [line.partition(":")[0].strip() for line in lines] == ["lo"]


def run(plans: Mapping[str, object], *, steps: int, samples: int, seed: int = 1) -> dict[str, Found]:
    """Train `steps` steps of each plan; plans of equal world size share the ranks."""
    found = {}
    for ranks in sorted({plan.world_size for plan in plans.values()}):
        some = {name: replace(plan, steps=steps, seed=seed) for name, plan in plans.items() if plan.world_size == ranks}
        found |= _on_ranks(some, ranks, samples)
    return {name: found[name] for name in plans}


def _on_ranks(plans: Mapping[str, object], ranks: int, samples: int) -> dict[str, Found]:
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")
        peers = [
            context.Process(target=_be_rank, args=(rank, ranks, Path(folder), plans, samples)) for rank in range(ranks)
        ]
        for peer in peers:
            peer.start()
        for peer in peers:
            peer.join()
        if any(peer.exitcode for peer in peers):
            raise SystemExit(f"ranks ended with {[peer.exitcode for peer in peers]}")
        answers = json.loads((Path(folder) / "found.json").read_text())
    return {name: Found(**each) for name, each in answers.items()}


def _be_rank(rank: int, ranks: int, folder: Path, plans: Mapping[str, object], samples: int) -> None:
    import torch
    import torch.distributed as dist

    from gangline.train.runtime.rendezvous import Groups

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), ranks), rank=rank, world_size=ranks)
    groups = Groups(control=dist.new_group(), checkpoint=dist.new_group())
    found = {name: asdict(_train(plan, rank, groups, samples)) for name, plan in plans.items()}
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # as ranks of a gang end: torch's threads may abort an interpreter that winds down


def _train(plan, rank, groups, samples) -> Found:
    import time

    import torch
    import torch.distributed as dist
    from model import ByteGPT, ByteText

    from gangline.train.account.clock import PhaseClock
    from gangline.train.account.event_log import EventLog
    from gangline.train.loop.engine import TrainingJob
    from gangline.train.loop.trainer import Trainer
    from gangline.train.runtime.context import RankContext
    from gangline.train.runtime.device_mesh import Meshes

    events, reported, marks = EventLog(None, rank=rank, generation=0), [], []
    events.listeners.append(lambda each: reported.append(each) if each["event"] == "step" else None)
    context = RankContext(
        plan=plan, rank=rank, device=torch.device("cpu"), groups=groups, clock=PhaseClock("start"), events=events,
        meshes=Meshes.of(plan, rank),
    )  # fmt: skip
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py")))
    data = _First(ByteText([_file(text)], "train", context=plan.model["context"], holdout=0.1), samples)
    trainer = Trainer(context, ByteGPT(), TrainingJob(seed=plan.seed, steps=plan.steps, number=0))

    def after_step(step: int) -> None:
        if step in (WARM_UP, plan.steps - 1):
            dist.barrier(groups.checkpoint)
            marks.append((loopback_bytes(), time.perf_counter()))
            dist.barrier(groups.checkpoint)

    trainer.train(data, after_step=after_step)
    trainer.engine.close()
    counted = plan.steps - 1 - WARM_UP
    (sent, began), (all_sent, ended) = marks
    losses = [each["loss"] for each in reported]
    return Found(losses, (all_sent - sent) / counted, (ended - began) / counted, reported[WARM_UP:-1])


def loopback_bytes() -> int:
    """Sent over loopback in this namespace so far, headers and acknowledgements too."""
    (line,) = (each for each in Path("/proc/net/dev").read_text().splitlines() if each.strip().startswith("lo:"))
    return int(line.split()[9])


def _file(text: bytes) -> str:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(text)
    return file.name


class _First:
    """The first samples of a data set."""

    def __init__(self, data, count: int) -> None:
        self.data, self.count = data, min(count, len(data))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        return self.data[index]
