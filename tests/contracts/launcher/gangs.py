"""What the launcher suite starts: gangs of a small program without torch."""

import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.launch.local import LocalLauncher
from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import Launcher
from gangline.launch.sandbox import Sandbox, find_engine
from gangline.procfs import with_variable
from gangline.spec.gang.podset import PodSet
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec, Recovery
from gangline.spec.record import Trust
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

HEAD = """
import json, os, signal, sys, time
from gangline.train import heartbeat
rank, generation = int(os.environ["RANK"]), int(os.environ["GANGLINE_GENERATION"])
events = open(f"{os.environ['GANGLINE_OUT']}/ranks/{rank}.jsonl", "a", buffering=1)
def tell(event, **values):
    now = time.monotonic()
    print(json.dumps({"event": event, "rank": rank, "generation": generation, "mono": now, **values}), file=events)
def step(number):
    heartbeat.beat(number, "train")
    tell("step", step=number)
def end(code):
    tell("done", exit=code, reason="as the runtime of a rank says it")
    sys.exit(code)
"""
SLEEPER = HEAD + "print('up', rank); step(0); time.sleep(120)"
SAVER = HEAD + "signal.signal(15, lambda *_: (print('saved', rank), end(143))); step(0); time.sleep(120)"
STEPPER = HEAD + "[step(number) or time.sleep(0.02) for number in range(5)]; print('done', rank)"


def sandbox_here(root: Path, trust: Trust) -> Sandbox:
    """Of a repository that keeps all it has in `root`."""
    engine = find_engine("auto", wide=trust == "own")
    if not engine.hides:
        pytest.skip(f"needs bubblewrap: apt-get install bubblewrap; here is {engine.text}")
    return Sandbox(engine=engine, trust=trust, hidden=(root,), home=root / "home" if trust == "own" else None)


class Stand:
    """The launcher of this machine with a store, and podsets to start; its gangs in a sandbox where there is one."""

    def __init__(self, root: Path, *, store: ObjectStore | None = None, sandbox: Sandbox | None = None) -> None:
        self.root, self.sandbox = root / "gangs", sandbox
        self.store = store or open_store(f"file:{root / 'store'}")
        self.launcher: Launcher = self.again()

    def again(self) -> Launcher:
        """As another driver would open it."""
        secrets = lambda name: f"value of {name}".encode()  # noqa: E731
        return LocalLauncher(self.root, store=self.store, secrets=secrets, sandbox=self.sandbox)

    def podset(self, program: str, name: str = "run-1", *, ranks: int = 2, restarts: int = 3, **changes) -> PodSet:
        plan = Plan(
            run=name,
            project="p",
            name="ddp",
            run_prefix=f"runs/p/c/{name}",
            program=ProgramSpec(command=("python", "program.py")),
            strategy="ddp",
            mesh=Mesh(dp_replicate=ranks),
            steps=10,
            global_batch=ranks,
            micro_batch=1,
            checkpoint=CheckpointPolicy(every=5),
            recovery=Recovery(max_events=restarts),
        )
        podset = PodSet(
            name=name,
            run=name,
            project="p",
            commit="c",
            procs_per_node=ranks,
            code=put_blob(self.store, layer_of({"program.py": textwrap.dedent(program)})),
            plan=put_blob(self.store, plan.to_json()),
            store=self.store.url,
            grace_seconds=20,
            secrets=("checkpoint-key",),
        )
        return replace(podset, **changes)

    def wait_for_all(self, name: str) -> None:
        """Until all ranks have joined; the gang's reason is in the failure if it ends before."""
        poll(lambda: self.launcher.status(name).state in ("running", "ended"), seconds=120)
        if self.launcher.status(name).state == "ended":
            pytest.fail(f"gang {name} ended before all its ranks joined: {self.launcher.collect(name).reason}")

    def processes(self, name: str = "run-1") -> list[int]:
        return list(with_variable("GANGLINE_HOME", str(GangFolder(self.root / name).inside)))

    def close(self) -> None:
        names = [path.parent.name for path in self.root.glob("*/podset.json")]
        for name in names:
            self.launcher.cancel(name, reason="the test is over", save=False)
        poll(lambda: not any(self.processes(name) for name in names))


def layer_of(files: dict[str, str]) -> bytes:
    return pack(LayerFile(path, text.encode()) for path, text in files.items())


def poll(condition: Callable[[], object], seconds: float = 60.0) -> None:
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience, "the condition did not come true in time"
        time.sleep(0.02)
