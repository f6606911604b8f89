"""A driver as one user of a machine: `drive.py FOLDER TRUST`. Runs a module once and a gang, prints what came of it."""

import json
import sys
from pathlib import Path

from gangline.errors import GanglineError
from gangline.launch.local import LocalLauncher
from gangline.launch.local.folder import GangFolder
from gangline.launch.sandbox import Sandbox, find_engine
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner
from gangline.spec.gang.podset import PodSet
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.storage.open import open_store

KEEPS = """
import multiprocessing, os, pathlib
from multiprocessing.shared_memory import SharedMemory
from gangline.storage.open import open_store
import helper
word = helper.hunt("rank")
pathlib.Path(os.environ["GANGLINE_OUT"], "word.json").write_text(word)
store = open_store(os.environ["GANGLINE_STORE"])
store.put("runs/p/c/run-1/gang/checkpoints/step-1", b"kept")
for key in ("runs/p/c/run-1/record.json", "blobs/x", "runs/other/x"):
    try:
        store.put(key, b"another's")
        print("WROTE", key)
    except Exception as error:
        print(type(error).__name__)
multiprocessing.Lock()                                    # as every DataLoader with workers wants
shared = SharedMemory(create=True, size=1 << 20)
shared.unlink()
print("SHARED")
"""


def main() -> None:
    folder, trust = Path(sys.argv[1]), sys.argv[2]
    hunter = (folder / "hunter.py").read_text()
    engine = find_engine("auto", wide=trust == "own", places=(folder / "repo",))
    home = folder / "repo" / "home" if trust == "own" else None
    sandbox = Sandbox(engine=engine, trust=trust, hidden=(folder,), home=home)
    reported = {"engine": engine.name, "text": engine.text}
    try:
        reported["once"] = once(sandbox, hunter)
        reported |= gang(sandbox, folder / "repo", hunter)
    except GanglineError as error:
        reported["refused"] = [error.exit_code, str(error)]
    print(json.dumps(reported))


def once(sandbox: Sandbox, hunter: str) -> str:
    layer = pack(
        [LayerFile("start.py", b"import helper; helper.hunt('once')"), LayerFile("helper.py", hunter.encode())]
    )
    done = ProcessRunner(lambda _: sandbox).run(ModuleJob(module="start", code=layer, seconds=60, trust=sandbox.trust))
    assert done.exit_code == 0, done
    return done.stderr.decode()


def gang(sandbox: Sandbox, repo: Path, hunter: str) -> dict[str, object]:
    store = open_store(f"file:{repo / 'store'}")
    plan = Plan(
        run="run-1", project="p", name="none", run_prefix="runs/p/c/run-1/gang", strategy="none", mesh=Mesh(), steps=1,
        program=ProgramSpec(command=("python", "program.py")), global_batch=1, micro_batch=1,
        checkpoint=CheckpointPolicy(every=1),
    )  # fmt: skip
    layer = pack([LayerFile("program.py", KEEPS.encode()), LayerFile("helper.py", hunter.encode())])
    podset = PodSet(
        name="run-1", run="run-1", project="p", commit="c", procs_per_node=1, code=put_blob(store, layer),
        plan=put_blob(store, plan.to_json()), store=store.url, secrets=("checkpoint-key",),
    )  # fmt: skip
    launcher = LocalLauncher(repo / "gangs", store=store, secrets=lambda _: b"k" * 32, sandbox=sandbox)
    launcher.submit(podset)
    (end,) = [event.end for event in launcher.follow("run-1") if event.end]
    log = "\n".join(line.text for line in launcher.logs("run-1"))
    kept = store.get("runs/p/c/run-1/gang/checkpoints/step-1")
    word = store.get("runs/p/c/run-1/gang/word.json")
    owner = GangFolder(repo / "gangs" / "run-1").inside.stat().st_uid
    return {
        "exit": end.exit_code, "reason": end.reason, "log": log, "kept": kept and kept.data.decode(), "owner": owner,
        "word": word and word.data.decode(),
    }  # fmt: skip


if __name__ == "__main__":
    main()
