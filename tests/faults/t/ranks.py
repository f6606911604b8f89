"""Gangs of real ranks under a real keeper, to strike: a small task that tells which samples it took."""

import json
import random
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from tests.contracts.launcher.gangs import Stand, poll
from tests.train.gang import ROOT, tiny_plan

from gangline.drill.history import DrillHistory, steps_backwards
from gangline.faults.process_faults import last_step
from gangline.launch.local.folder import GangFolder
from gangline.spec.gang.status import GangEnd
from gangline.spec.plan import CheckpointPolicy, Plan
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.train.loop.sample_order import SampleOrder

RUN = "run-1"
NUM_SAMPLES = 37
KEY = b"value of checkpoint-key"
RECORDED = '''
"""The tiny task, which writes down the samples of every pass, and takes its time."""

import json
import os
import time

import torch
from model import Tiny

RANK, GENERATION = int(os.environ["RANK"]), int(os.environ["GANGLINE_GENERATION"])


class Recorded(Tiny):
    def loss(self, outputs, batch):
        if torch.is_grad_enabled():
            with open(f"{os.environ['GANGLINE_HOME']}/samples-{RANK}.jsonl", "a") as file:
                print(json.dumps({"generation": GENERATION, "samples": batch["index"].tolist()}), file=file)
            if not os.path.exists(f"{os.environ['GANGLINE_HOME']}/hurry"):
                time.sleep(float(os.environ.get("PACE", "0")))
        return super().loss(outputs, batch)
'''


def at_step(home: Path, rank: int, step: int) -> None:
    """Wait until `rank` has finished `step`, which is not 0."""
    poll(lambda: (last_step(home, rank) or 0) >= step, 120)


def recorded_plan(strategy: str = "ddp", *, every: int = 2, **changes) -> Plan:
    """A plan of that task: `loss` is called once a step on each rank."""
    plan = tiny_plan(strategy, checkpoint=CheckpointPolicy(every=every, asynchronous=False), **changes)
    return replace(plan, program=replace(plan.program, task="recorded:Recorded"), run=RUN, run_prefix=f"runs/p/c/{RUN}")


def submit(stand: Stand, plan: Plan, *, code: str = "code", **environ: str) -> Path:
    """Start the gang of `plan` with a model of `tests/train`; its folder."""
    model = (ROOT / "tests" / "train" / code / "model.py").read_bytes()
    layer = pack([LayerFile("model.py", model), LayerFile("recorded.py", RECORDED.encode())])
    podset = stand.podset("", ranks=plan.world_size, env=environ)
    podset = replace(podset, code=put_blob(stand.store, layer), plan=put_blob(stand.store, plan.to_json()))
    stand.launcher.submit(podset)
    return stand.root / RUN


def finish(stand: Stand) -> GangEnd:
    """How the gang ended, once it has; nothing of it is left then (I4), and no step was lost that was durable (I5)."""
    events = list(stand.launcher.follow(RUN))
    end = events[-1].end
    assert end is not None
    poll(lambda: not stand.processes(RUN))
    assert not list(stand.store.open_uploads(f"runs/p/c/{RUN}/")), "an upload is left open"
    assert steps_backwards(DrillHistory.read(stand.root / RUN)) == []
    assert abs(sum(end.ledger.values()) - end.allocated_seconds) <= 1e-3 * end.allocated_seconds
    return end


def hurry(home: Path) -> None:
    """From now on steps take no time of their own."""
    (home / "hurry").touch()


def await_step(home: Path, step: int, *, generation: int, seconds: float = 120.0) -> dict:
    """The event of the first step from `step` on that rank 0 finished in `generation`, or a later one."""
    patience = time.monotonic() + seconds
    while True:
        ended = GangFolder(home).end(0)
        steps = [each for each in DrillHistory.read(home).steps() if each["generation"] >= generation]
        found = next((each for each in steps if each["step"] >= step), None)
        if found is not None:
            return found
        assert ended is None, f"ended before step {step} of generation {generation}: {ended}"
        assert time.monotonic() < patience, f"no step {step} of generation {generation} in {seconds} s"
        time.sleep(0.02)


def samples_by_step(home: Path, *, global_batch: int) -> list[list[int]]:
    """What the ranks really took in each step that counts: a step that was redone is the later one."""
    calls: dict[int, dict[int, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    for path in home.glob("samples-*.jsonl"):
        for line in path.read_text().splitlines():
            call = json.loads(line)
            calls[call["generation"]][int(path.stem.partition("-")[2])].append(call["samples"])
    history, taken = DrillHistory.read(home), list[list[int]]()
    begins = {generation: _begin(history, generation) for generation in sorted(calls)}
    for generation, successor in zip(begins, [*list(begins)[1:], None], strict=True):
        first, ranks = begins[generation], calls[generation]
        reported = [each["step"] for each in history.steps() if each["generation"] == generation]
        saved = begins.get(successor, 0)  # a rank may die between the save of a step and its word on the step
        last = max([first, saved, *reported])
        del taken[first:]
        for number in range(last - first):
            parts = [sample for _, own in sorted(ranks.items()) for sample in own[number]]
            assert len(parts) == global_batch, f"step {first + number + 1}: {parts}"
            taken.append(parts)
    return taken


def _begin(history: DrillHistory, generation: int) -> int:
    """Step that `generation` goes on from."""
    events = (each for each in history.ranks if each["generation"] == generation and each["rank"] == 0)
    return next((each["step"] for each in events if each["event"] == "resumed"), 0)


def wanted_samples(steps: int, *, global_batch: int, seed: int = 1) -> list[list[int]]:
    """What one process would have taken."""
    order = SampleOrder(num_samples=NUM_SAMPLES, seed=seed)
    return [[order.sample(step * global_batch + place) for place in range(global_batch)] for step in range(steps)]


def chance(row: str, seed: int) -> random.Random:
    return random.Random(f"{row} {seed}")


def effective_share(end: GangEnd) -> float:
    """Of the held time, what went into steps that count: computing, fetching data, waiting for each other."""
    working = sum(end.ledger.get(cause, 0.0) for cause in ("compute", "data", "wait", "bubble"))
    return working / end.allocated_seconds
