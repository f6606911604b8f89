"""Gangs of small programs without torch, run by a real keeper in its own process."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.keeper.coordination.nodes import PATIENCE_SECONDS, poll

from gangline.keeper.ipc.heartbeat import peek
from gangline.procfs import with_variable
from gangline.spec.codec import from_json
from gangline.spec.gang.status import GangEnd
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec, Recovery, SaveCosts


@dataclass
class KeptGang:
    home: Path
    process: subprocess.Popen[bytes]
    environ: dict[str, str] = field(default_factory=dict)

    def end(self) -> GangEnd:
        self.process.wait(PATIENCE_SECONDS)
        return from_json(GangEnd, (self.home / "exit-0.json").read_bytes())

    def events(self, kind: str) -> list[dict[str, Any]]:
        path = self.home / "keeper-0.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def log(self, name: str | int = 0) -> str:
        path = self.home / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def state(self) -> str:
        path = self.home / "keeper-0.json"
        return str(json.loads(path.read_text())["state"]) if path.exists() else "absent"

    def beating(self, ranks: int = 2, step: int = 0) -> bool:
        """All ranks have finished `step`."""
        beats = [peek(self.home / "heartbeat" / str(rank)) for rank in range(ranks)]
        return all(beat is not None and beat.step >= step for beat in beats)

    def wait_for(self, condition: Callable[[], object]) -> None:
        try:
            poll(condition)
        except AssertionError as error:
            raise AssertionError(f"{error}; the gang is {self.state()}, its log ends: {self.log()[-2000:]}") from None

    def leftovers(self) -> list[int]:
        return list(with_variable("GANGLINE_HOME", str(self.home)))


@pytest.fixture
def keep(tmp_path):
    """Start a keeper over ranks that run a Python program; everything of it is gone afterwards."""
    gangs: list[KeptGang] = []

    def start(
        program: str, *, ranks: int = 2, restarts: int = 3, task: str | None = None, costs: SaveCosts | None = None,
        command: tuple[str, ...] = ("python", "program.py"), **environ: str,
    ) -> KeptGang:  # fmt: skip
        home = tmp_path / f"gang-{len(gangs)}"
        code = home / "code"
        code.mkdir(parents=True)
        (code / "program.py").write_text(textwrap.dedent(program))
        (home / "key").write_bytes(b"k" * 32)
        plan = Plan(
            run="r",
            project="p",
            name="ddp",
            run_prefix="runs/p/c/r",
            program=ProgramSpec(task=task) if task else ProgramSpec(command=command),
            strategy="ddp",
            mesh=Mesh(dp_replicate=ranks),
            steps=10,
            global_batch=ranks,
            micro_batch=1,
            checkpoint=CheckpointPolicy(every=5, costs=costs),
            recovery=Recovery(max_events=restarts),
        )
        (home / "plan.json").write_bytes(plan.to_json())
        variables = {
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
            "GANGLINE_RUN": "r",
            "GANGLINE_GANG": "r",
            "GANGLINE_HOME": str(home),
            "GANGLINE_PLAN": str(home / "plan.json"),
            "GANGLINE_CODE": str(code),
            "GANGLINE_STORE": f"file:{tmp_path / 'store'}",
            "GANGLINE_KEY_FILE": str(home / "key"),
            "GANGLINE_GRACE_SECONDS": "20",
            "PATH": os.environ["PATH"],
        }
        with (tmp_path / f"keeper-{len(gangs)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gangline.keeper.main"],
                env=variables | environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        gang = KeptGang(home, process)
        gangs.append(gang)
        return gang

    yield start
    for gang in gangs:
        gang.process.kill()
        gang.process.wait()
        poll(lambda gang=gang: not gang.leftovers())
