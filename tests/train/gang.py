"""Real ranks without a keeper: a warm parent that forks them, a store in this process, a plan, a folder."""

import io
import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tests.forks.server import fork_server
from tests.leash import end_with_tests

from gangline.keeper.ranks.rank_processes import RankStart, WarmParent
from gangline.planner.layouts.layout import layout_of
from gangline.spec.codec import from_json
from gangline.spec.data_source import DataFile, DataSource
from gangline.spec.gang.status import GangResult
from gangline.spec.measurements import LEDGER_CAUSES
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec
from gangline.spec.strategies import STRATEGIES, names
from gangline.storage.open import open_store
from gangline.train.rank.child import redirect

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 120.0
KEY = b"k" * 32


class Gang:
    """One gang's folder and store; `run` is one generation of it."""

    def __init__(self, folder: Path, warm: WarmParent, code: Path) -> None:
        self.home, self.warm, self.code = folder, warm, code
        self.store_url = f"file:{folder / 'store'}"
        self.store = open_store(self.store_url)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "key").write_bytes(KEY)
        self.generation = 0

    def put_text(self, text: bytes) -> DataSource:
        """Store `text` as the one data file of a plan."""
        key = f"blobs/sha256/{sha256(text).hexdigest()}"
        self.store.put(key, text)
        return DataSource(files=(DataFile(path="text.bin", key=key, size_bytes=len(text)),), digest="0" * 64)

    def launch(self, plan: Plan, **environ: str) -> "Generation":
        return Generation(self, plan, environ)

    def run(self, plan: Plan, **environ: str) -> list[int]:
        """Exit codes of all ranks, by rank."""
        return self.launch(plan, **environ).wait()

    def run_program(self, plan: Plan, **environ: str) -> list[int]:
        """As `run`, for a command: `train.py` of the code layer in each rank."""
        return Generation(self, plan, environ, start=start_programs).wait()

    def events(self, rank: int = 0, event: str | None = None) -> list[dict]:
        lines = (self.home / "out" / "ranks" / f"{rank}.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [each for each in found if event in (None, each["event"])]

    def metrics(self) -> list[dict]:
        return [json.loads(line) for line in (self.home / "out" / "metrics.jsonl").read_text().splitlines()]

    def result(self) -> GangResult:
        return from_json(GangResult, (self.home / "out" / "result.json").read_bytes())

    def log(self, rank: int = 0) -> str:
        return (self.home / f"{rank}.log").read_text()


class Generation:
    def __init__(self, gang: Gang, plan: Plan, extra: dict[str, str], start: "Start | None" = None) -> None:
        from torch.distributed import TCPStore

        self.gang = gang
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        (gang.home / "plan.json").write_bytes(plan.to_json())
        base = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "WORLD_SIZE": str(plan.world_size), "LOCAL_WORLD_SIZE": str(plan.world_size), "NODE_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port),
            "GANGLINE_RUN": plan.run, "GANGLINE_GANG": "test", "GANGLINE_HOME": str(gang.home),
            "GANGLINE_PLAN": str(gang.home / "plan.json"), "GANGLINE_CODE": str(gang.code),
            "GANGLINE_STORE": gang.store_url, "GANGLINE_KEY_FILE": str(gang.home / "key"),
            "GANGLINE_GENERATION": str(gang.generation), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **extra,
        }  # fmt: skip
        gang.generation += 1
        self.world_size = plan.world_size
        self._codes = (start or _fork(gang.warm))([self._rank(base, rank) for rank in range(plan.world_size)])

    def _rank(self, base: dict[str, str], rank: int) -> RankStart:
        home = self.gang.home
        (home / "heartbeat").mkdir(exist_ok=True)
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "GANGLINE_HEARTBEAT": str(home / "heartbeat" / str(rank))}
        return RankStart(rank=rank, argv=(), environ=base | own, cwd=self.gang.code, log=home / f"{rank}.log")

    def codes(self) -> dict[int, int]:
        """Exit codes of the ranks that have ended."""
        return self._codes()

    def wait(self, seconds: float = DEADLINE_SECONDS) -> list[int]:
        deadline = time.monotonic() + seconds
        while len(codes := self._codes()) < self.world_size:
            assert time.monotonic() < deadline, f"only {codes} ended; log of 0:\n{self.gang.log()}"
            time.sleep(0.01)
        self._check_ledgers()
        return [codes[rank] for rank in range(self.world_size)]

    def _check_ledgers(self) -> None:
        """Every instant of every rank has one cause, whatever the test is about."""
        for rank in range(self.world_size):
            if not (self.gang.home / "out" / "ranks" / f"{rank}.jsonl").exists():
                continue  # it ended before its first word
            for reported in self.gang.events(rank, "ledger")[-1:]:
                assert reported["seconds"].keys() <= {*LEDGER_CAUSES}, reported
                assert min(reported["seconds"].values()) >= 0, reported
                lived = reported["until"] - reported["began"]
                assert abs(sum(reported["seconds"].values()) - lived) <= 1e-3 * lived, (rank, reported)


Codes = Callable[[], dict[int, int]]
Start = Callable[[list[RankStart]], Codes]


def _fork(warm: WarmParent) -> Start:
    """Ranks of a task."""
    ended: dict[int, int] = {}

    def codes() -> dict[int, int]:
        ended.update({each.rank: each.code for each in warm.exits()})
        return ended

    def start(ranks: list[RankStart]) -> Codes:
        warm.start(ranks)
        return codes

    return start


def start_programs(ranks: list[RankStart]) -> Codes:
    """Ranks that are programs, forked from a server that has torch already."""
    context = fork_server()
    processes = {each.rank: context.Process(target=_be_program, args=(each,)) for each in ranks}
    for process in processes.values():
        process.start()

    def codes() -> dict[int, int]:
        return {rank: process.exitcode for rank, process in processes.items() if process.exitcode is not None}

    return codes


def _be_program(rank: RankStart) -> None:
    end_with_tests()
    os.environ.clear()
    os.environ.update(rank.environ)
    redirect(rank.log)
    os.chdir(rank.cwd)
    sys.path.insert(0, str(rank.cwd))
    runpy.run_path("train.py", run_name="__main__")


def start_warm(folder: Path) -> WarmParent:
    folder.mkdir(parents=True, exist_ok=True)
    environ = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "tests" / "forks"),
    }
    warm = WarmParent(python=sys.executable, environ=environ, log=folder / "warm.log", timeout_seconds=120)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not warm.ready():
        assert time.monotonic() < deadline, (folder / "warm.log").read_text()
        time.sleep(0.05)
    return warm


def stored_model(gang: Gang, checkpoint: str) -> dict:
    """Full tensors of the model in a checkpoint."""
    from safetensors.torch import load_file

    from gangline.checkpoint.format.export import export_model

    folder = gang.home / "exported"
    tensors = {}
    for file in export_model(gang.store, checkpoint, KEY, folder, metadata={}):
        if file.suffix == ".safetensors":
            tensors |= load_file(file)
    return tensors


def load_tiny() -> ModuleType:
    """The module `model` of `tests/train/code`, under a name of its own."""
    spec = spec_from_file_location("tiny_task", ROOT / "tests" / "train" / "code" / "model.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tiny_plan(strategy: str = "ddp", **changes) -> Plan:
    """A plan of the tiny task in `tests/train/code`."""
    given = {"program": ProgramSpec(task="model:Tiny"), "model": {"width": 8}, "global_batch": 8, "micro_batch": 4}
    return make_plan(strategy, **given | changes)


def smallest_mesh(strategy: str) -> Mesh:
    """Degrees on two ranks, or on two nodes of two."""
    nodes = 2 if STRATEGIES[strategy].layout == "replicas_of_shards" else 1
    return layout_of(strategy, 2 * nodes, nodes).mesh


MESHES = {name: smallest_mesh(name) for name in names(lambda each: not each.cuts_model and not each.averages_rarely)}
"""Of each strategy that trains the weights of one process, whatever the model: the contract suites run all of them."""


def make_plan(strategy: str = "ddp", **changes) -> Plan:
    """A small plan of bytegpt under `strategy`; `changes` are fields of the plan."""
    plan = Plan(
        run="bytegpt-0000000-aaaaaa", project="bytegpt", name=f"{strategy}-test",
        run_prefix="runs/bytegpt/0000000/bytegpt-0000000-aaaaaa", program=ProgramSpec(task="model:ByteGPT"),
        strategy=strategy, mesh=MESHES[strategy], model={"layers": 2, "width": 32, "context": 16},
        steps=6, global_batch=8, micro_batch=4, checkpoint=CheckpointPolicy(every=3),
    )  # fmt: skip
    return replace(plan, **changes)


def sample_text(size: int = 4096) -> bytes:
    out = io.StringIO()
    number = 0
    while out.tell() < size:
        number += 1
        out.write(f"def f{number}(x): return x * {number}\n")
    return out.getvalue().encode()
