"""A machine with a local launcher on it, for gangs of several virtual nodes."""

import time
from dataclasses import replace
from pathlib import Path

from tests.train.gang import KEY, ROOT, make_plan

from gangline.launch.local import LocalLauncher
from gangline.launch.local.folder import GangFolder
from gangline.procfs import with_variable
from gangline.spec.codec import from_json
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd, GangResult
from gangline.spec.plan import Plan, ProgramSpec
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.storage.open import open_store

PATIENCE_SECONDS = 120.0
SLEEPER = b"""
import time
from gangline.train import heartbeat
heartbeat.beat(0, "train")
time.sleep(120)
"""


class Machine:
    """A launcher, its store and its folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root / "gangs", open_store(f"file:{root / 'store'}")
        self.launcher = LocalLauncher(self.root, store=self.store, secrets=lambda _: KEY)

    def podset(self, plan: Plan, files: dict[str, bytes], *, num_nodes: int = 2, **changes) -> PodSet:
        podset = PodSet(
            name="run-1", run=plan.run, project="p", commit="c", num_nodes=num_nodes,
            procs_per_node=plan.world_size // num_nodes, store=self.store.url, grace_seconds=20,
            code=put_blob(self.store, pack([LayerFile(path, data) for path, data in files.items()])),
            plan=put_blob(self.store, plan.to_json()), secrets=("checkpoint-key",),
        )  # fmt: skip
        return replace(podset, **changes)

    def train(self, plan: Plan, *, num_nodes: int = 2, **environ: str) -> GangEnd:
        code = {"model.py": (ROOT / "tests" / "train" / "code" / "model.py").read_bytes()}
        self.launcher.submit(self.podset(plan, code, num_nodes=num_nodes, env=environ))
        return next(event.end for event in self.launcher.follow("run-1") if event.end is not None)

    def losses(self, plan: Plan) -> tuple[tuple[int, float], ...]:
        result = from_json(GangResult, self.store.get(f"{plan.run_prefix}/result.json").data)
        return result.jobs[0].losses

    def folder(self) -> GangFolder:
        return GangFolder(self.root / "run-1")

    def sleepers(self) -> PodSet:
        plan = replace(make_plan("ddp"), program=ProgramSpec(command=("python", "sleeper.py")))
        return self.podset(plan, {"sleeper.py": SLEEPER})

    def wait_for(self, state: str) -> None:
        patience = time.monotonic() + PATIENCE_SECONDS
        while (found := self.launcher.status("run-1")).state != state:
            assert found.state != "ended", self.launcher.collect("run-1").reason
            assert time.monotonic() < patience, found
            time.sleep(0.05)

    def close(self) -> None:
        """Raises where anything is left."""
        self.launcher.cancel("run-1", reason="the test is over", save=False)
        patience = time.monotonic() + PATIENCE_SECONDS  # a keeper that has written its end is about to go
        while left := list(with_variable("GANGLINE_HOME", str(self.folder().home))):
            assert time.monotonic() < patience, left
            time.sleep(0.05)
