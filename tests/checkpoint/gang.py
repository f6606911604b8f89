"""Small trainings under three layouts, in this process (`one`) or on two warm ranks (`ddp2`, `fsdp2`).

Run as a program this is one of the ranks: it takes a task as a line of JSON, answers with one, and ends with its input.
"""

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from queue import Empty, Queue

sys.path.insert(0, str(Path(__file__).parents[2]))

KEY = b"a key of the tests"
PREFIX = "runs/p/c/r/checkpoints"


class Ranks:
    """Two ranks of a gloo gang that live through a whole session."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error", __file__, str(rank), str(folder / "rendezvous")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            )
            for rank in range(2)
        ]  # fmt: skip
        self._lines = [Queue() for _ in self._processes]
        for process, lines in zip(self._processes, self._lines, strict=True):
            threading.Thread(target=_drain, args=(process, lines), daemon=True).start()

    def run(self, **task) -> list[dict]:
        for process in self._processes:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        answers = [self._answer(rank) for rank in range(2)]
        for answer in answers:
            if "traceback" in answer:
                raise AssertionError(answer["traceback"])
        return answers

    def stop(self) -> None:
        for process in self._processes:
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def _answer(self, rank: int) -> dict:
        try:
            line = self._lines[rank].get(timeout=120)
        except Empty:
            raise AssertionError(f"rank {rank} did not answer in 120 s") from None
        if line is None:
            raise AssertionError(f"rank {rank} ended with {self._processes[rank].wait(10)}")
        return json.loads(line)


def _drain(process, lines) -> None:
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def run_here(**task) -> dict:
    """The same task in this process, without a gang."""
    return perform(task, rank=0, group=None)


def perform(task: dict, *, rank: int, group) -> dict:
    """Build, open the newest checkpoint where there is one, train, save; say what was seen."""
    import torch

    from gangline.checkpoint.loader import load
    from gangline.checkpoint.saver import Saver
    from gangline.checkpoint.state import tensor_digests
    from gangline.errors import GanglineError
    from gangline.storage.folder.store import FolderStore

    torch.set_num_threads(1)
    store = _store(task, FolderStore(task["root"]), rank)
    wrapped, bare, optimizer = build(task["layout"], seed=task.get("seed", 1))
    refused: list[tuple[str, str]] = []
    try:
        loaded = load(
            store, PREFIX, bare, optimizer, key=KEY, group=group,
            on_refused=lambda file, reason: refused.append((file, reason)),
        )  # fmt: skip
    except GanglineError as error:
        return {"error": type(error).__name__, "text": str(error), "refused": refused}
    start = loaded.step if loaded else 0
    opened = tensor_digests(bare, optimizer) if loaded else {}
    losses = [
        train_step(wrapped, optimizer, number=start + number, rank=rank, size=2 if group else 1)
        for number in range(task.get("steps", 0))
    ]
    report = None
    if "periodic" in task:
        return save_often(task, store, bare, optimizer, group)
    if task.get("save"):
        saver = Saver(
            store=store,
            prefix=PREFIX,
            run="r",
            plan_digest="d",
            generation=task.get("generation", 1),
            key=KEY,
            group=group,
        )
        numbers = {"cursor": start + len(losses), "layout": task["layout"]}
        report = saver.save(bare, optimizer, numbers, step=start + len(losses), wait=True, rank_numbers={"rank": rank})
        saver.close()
    return {
        "step": start, "opened": opened, "refused": refused, "losses": losses,
        "numbers": loaded.numbers if loaded else None, "rank_numbers": loaded.rank_numbers if loaded else None,
        "digests": tensor_digests(bare, optimizer), "key": report.key if report else None,
        "optimizer": [repr({k: v for k, v in g.items() if k != "params"}) for g in optimizer.param_groups],
    }  # fmt: skip


def save_often(task: dict, store, model, optimizer, group) -> dict:
    """Periodic saves without waiting, then a final one; what each of them came to on this rank."""
    from gangline.checkpoint.saver import Saver
    from gangline.errors import GanglineError

    saver = Saver(
        store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=group,
        keep=task.get("keep", 3),
        retry_seconds=task.get("patience", 30.0), max_unsaved_seconds=task.get("max_unsaved", 60.0),
    )  # fmt: skip
    taken, ends, error = [], [], None
    try:
        for step in range(1, task["periodic"] + 1):
            taken.append(saver.save(model, optimizer, {}, step=step, wait=False) is not None)
            ends += [(each.step, each.error is None) for each in saver.poll()]
            time.sleep(0.02)
            if task.get("settle"):
                ends += [(each.step, each.error is None) for each in saver.wait()]
        final = saver.save(model, optimizer, {}, step=task["periodic"] + 1, wait=True)
        ends += [(each.step, each.error is None) for each in [*saver.poll(), final]]
    except GanglineError as raised:
        error = f"{type(raised).__name__}: {raised}"
    saver.close()
    return {"taken": taken, "ends": ends, "skipped": saver.skipped, "failed": error}


def _store(task: dict, store, rank: int):
    """The store as this rank sees it: rank `strikes` has one that is slow, or refuses its first writes."""
    from tests.checkpoint.small import Wrapped

    from gangline.errors import StorageError

    class Slow(Wrapped):
        def put(self, key, data):
            time.sleep(task["slow_seconds"])
            return self._store.put(key, data)

        def delete(self, key):
            time.sleep(task["slow_seconds"] / 4)
            self._store.delete(key)

    class Refusing(Wrapped):
        left = task.get("refusals", 0)

        def put(self, key, data):
            if key.endswith(".safetensors") and self.left:
                self.left -= 1
                raise StorageError(f"no space left for {key}")
            return self._store.put(key, data)

    if task.get("strikes") != rank:
        return store
    return Slow(store) if "slow_seconds" in task else Refusing(store)


def build(layout: str, *, seed: int):
    """(module to call, bare module, optimizer); sizes that do not divide by two, buffers, a frozen parameter."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(11, 7)
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(7, 7), nn.LayerNorm(7)) for _ in range(2)])
            self.gain = nn.Parameter(torch.randn(1))
            self.frozen = nn.Parameter(torch.randn(3, 5), requires_grad=False)
            self.head = nn.Linear(7, 11, bias=False)
            self.register_buffer("seen", torch.tensor(0))
            self.register_buffer("scale", torch.randn(5).to(torch.bfloat16))

        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = x + block(x)
            self.seen += 1
            return self.head(x * self.gain)

    torch.manual_seed(seed)
    model = Net()
    if layout == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    wrapped = nn.parallel.DistributedDataParallel(model) if layout == "ddp2" else model
    trained = [each for each in model.parameters() if each.requires_grad]
    groups = [{"params": trained[:2], "weight_decay": 0.0}, {"params": trained[2:], "lr": 3e-3}]
    return wrapped, model, torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.95))


def train_step(wrapped, optimizer, *, number: int, rank: int, size: int) -> float:
    import torch

    generator = torch.Generator().manual_seed(number)
    batch = torch.randint(0, 11, (4, 6), generator=generator)[rank::size]
    loss = torch.nn.functional.cross_entropy(wrapped(batch).flatten(0, 1), batch.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _main(rank: int, rendezvous: str) -> None:
    import torch.distributed as dist

    from gangline.errors import GanglineError

    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    group = dist.new_group(backend="gloo")
    for line in sys.stdin:
        try:
            answer = perform(json.loads(line), rank=rank, group=group)
        except (Exception, GanglineError):
            answer = {"traceback": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
