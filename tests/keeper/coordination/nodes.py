"""A gang of several nodes on this machine, node by node."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.keeper.ipc.heartbeat import peek
from gangline.procfs import with_variable
from gangline.spec.codec import from_json
from gangline.spec.gang.status import GangEnd
from gangline.spec.plan import Plan

PATIENCE_SECONDS = 60.0
KEY = b"k" * 32
HEAD = """
import json, os, signal, sys, time
from gangline.train import heartbeat
rank, generation = int(os.environ["RANK"]), int(os.environ["GANGLINE_GENERATION"])
def tell(event, **values):
    with open(f"{os.environ['GANGLINE_OUT']}/ranks/{rank}.jsonl", "a") as file:
        print(json.dumps({"event": event, "generation": generation, "mono": time.monotonic(), **values}), file=file)
def end(code):
    tell("done", exit=code, reason="as the runtime of a rank says it")
    sys.exit(code)
"""
SAVER = """
signal.signal(signal.SIGTERM, lambda *_: (print("saved"), end(143)))
heartbeat.beat(0, "train")
while generation < int(os.environ.get("LAST", 1)): time.sleep(0.02)
"""
"""Works until it is asked to stop; in its last generation it is done at once."""


class GangOfNodes:
    def __init__(self, root: Path, plan: Plan, num_nodes: int, environ: dict[str, str]) -> None:
        self.root, self.plan, self.num_nodes, self.environ = root, plan, num_nodes, environ
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        (root / "key").write_bytes(KEY)
        (root / "plan.json").write_bytes(plan.to_json())

    def home(self, node: int) -> Path:
        return self.root / f"node-{node}"

    def start(self, node: int, **environ: str) -> None:
        """Start the keeper of `node`, as a pod would: in a new folder."""
        home = self.home(node)
        if home.exists():
            home.rename(home.with_name(f"{home.name}-gone-{len(self._all)}"))
        home.mkdir()
        local = self.plan.world_size // self.num_nodes
        variables = {
            "NODE_RANK": str(node), "WORLD_SIZE": str(self.plan.world_size), "LOCAL_WORLD_SIZE": str(local),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "GANGLINE_RUN": "r", "GANGLINE_GANG": "r",
            "GANGLINE_HOME": str(home), "GANGLINE_PLAN": str(self.root / "plan.json"),
            "GANGLINE_CODE": str(self.root / "code"), "GANGLINE_STORE": f"file:{self.root / 'store'}",
            "GANGLINE_KEY_FILE": str(self.root / "key"), "GANGLINE_GRACE_SECONDS": "20",
            "GANGLINE_REJOIN_SECONDS": "50", "PATH": os.environ["PATH"], "TEST_GANG": str(self.root),
        }  # fmt: skip
        with (self.root / f"keeper-{node}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gangline.keeper.main"], env=variables | self.environ | environ,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes[node] = process
        self._all.append(process)

    def kill(self, node: int) -> None:
        """As when a pod vanishes: the keeper and with it all that it started."""
        self.processes[node].kill()
        self.processes[node].wait()

    def signal(self, node: int, number: int = signal.SIGTERM) -> None:
        self.processes[node].send_signal(number)

    def end(self, node: int = 0) -> GangEnd:
        self.processes[node].wait(PATIENCE_SECONDS)
        path = self.home(node) / f"exit-{node}.json"
        assert path.exists(), (self.root / f"keeper-{node}.log").read_text()
        return from_json(GangEnd, path.read_bytes())

    def events(self, kind: str, node: int = 0) -> list[dict[str, Any]]:
        path = self.home(node) / f"keeper-{node}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def status(self, node: int = 0) -> dict[str, Any]:
        path = self.home(node) / f"keeper-{node}.json"
        return json.loads(path.read_text()) if path.exists() else {"generation": -1, "state": "absent", "reason": ""}

    def log(self, rank: int) -> str:
        node = rank // (self.plan.world_size // self.num_nodes)
        path = self.home(node) / "logs" / f"{rank}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_step(self, step: int = 0, *, generation: int = 0) -> None:
        """All ranks of `generation` have finished `step`."""
        poll(lambda: all(self._has_step(rank, step, generation) for rank in range(self.plan.world_size)))

    def end_everything(self) -> None:
        for process in self._all:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        poll(lambda: not list(with_variable("TEST_GANG", str(self.root))))

    def _has_step(self, rank: int, step: int, generation: int) -> bool:
        node = rank // (self.plan.world_size // self.num_nodes)
        beat = peek(self.home(node) / "heartbeat" / str(rank))
        started = self.events("generation_started", node)
        return bool(started) and started[-1]["generation"] == generation and beat is not None and beat.step >= step


def poll(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience, "the condition did not come true in time"
        time.sleep(0.02)
