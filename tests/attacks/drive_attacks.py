"""One attack as one user of a machine: `drive_attacks.py FOLDER ATTACK TRUST`; prints what came of it as JSON.

The driver's home, its repository and what is private in both lie in FOLDER.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.build.virtualenv.conftest import EGGS, Bench
from tests.build.wheels import lock_of, make_wheel
from tests.contracts.launcher.gangs import HEAD, Stand, poll
from tests.line.conftest import Workspace
from tests.line.repositories import LINE, commit, git, make_repository

from gangline.errors import GanglineError
from gangline.faults.process_faults import lose_node
from gangline.launch.local.folder import GangFolder
from gangline.launch.sandbox import Sandbox, find_engine
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner
from gangline.line.gangs.sandbox import sandbox_of
from gangline.spec.config.site import ForgeTable, SandboxTable, Site
from gangline.spec.plan import Plan, StartCheckpoint
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import get_blob, put_blob
from gangline.storage.objects.code_layer import LayerFile, pack

SWAPS = """
import pathlib, shutil, tempfile
home, private = pathlib.Path(os.environ["GANGLINE_HOME"]), pathlib.Path(sys.argv[1])
own = [home / "tmp", home / "home", home, home / "secrets", pathlib.Path(os.environ["HOME"])]
own += [pathlib.Path(tempfile.gettempdir()), home.parent / "tmp", home.parent / "secrets"]
def loot(folder):
    try:
        return [(folder / "id").read_text()]
    except OSError:
        return []
found = [word for each in (*own, pathlib.Path("/tmp"), pathlib.Path("/var/tmp")) for word in loot(each)]
for each in own:
    try:
        (each / "written").write_text("x")
        each.rename(each.with_name(f"{each.name}-gone")) if each.exists() else None
        each.symlink_to(private)
    except OSError:
        pass
print("LOOT", json.dumps(found), flush=True)
step(0)
time.sleep(120)
"""
OPENS = """
import pathlib
root = pathlib.Path(os.environ["GANGLINE_STORE"].removeprefix("file:")) / "runs/p/c/run-1/checkpoints"
try:
    found = [each.read_text() for each in root.glob("*")]
except OSError:
    found = []
print("LOOT", json.dumps(found), flush=True)
"""


WATCHES = """
import pathlib
outside = pathlib.Path("OUTSIDE")
found = set()
print("NEIGHBOUR", (outside / "open.txt").exists(), flush=True)
while not (outside / "turned").exists():
    step(0)
    for path in outside.glob("*/**/*"):
        try:
            found.add(path.read_text())
        except OSError:
            pass
    time.sleep(0.02)
for name in ("keys/token", "volume/token", "volume/..data/token", "volume/..2/token", "linked/token", "linked/second"):
    try:
        found.add((outside / name).read_text())
    except OSError:
        pass
print("LOOT", json.dumps(sorted(found)), flush=True)
"""


def swapped_folders(folder: Path, sandbox: Sandbox) -> dict:
    """Ranks put links in the place of every folder of theirs, and their node is lost and started again."""
    stand = Stand(folder / "repo", sandbox=sandbox)
    try:
        program = f"import sys; sys.argv.append({str(folder / 'home' / '.ssh')!r})\n{HEAD}{SWAPS}"
        stand.launcher.submit(stand.podset(program, ranks=1))
        gang = GangFolder(stand.root / "run-1")
        poll(lambda: len(_loot(gang)) == 1)
        lose_node(gang.home, 0)
        poll(lambda: len(_loot(gang)) == 2 or stand.launcher.status("run-1").state == "ended")
        stand.launcher.cancel("run-1", reason="enough", save=False)
        return {"loot": _loot(gang), "left": sorted(each.name for each in (folder / "home" / ".ssh").iterdir())}
    finally:
        stand.close()


def swapped_checkpoint(folder: Path, sandbox: Sandbox) -> dict:
    """A checkpoint that the next run opens is a link."""
    stand = Stand(folder / "repo", sandbox=sandbox)
    try:
        private = str(folder / "home" / ".ssh")
        place = 'os.environ["GANGLINE_STORE"].removeprefix("file:") + "/runs/p/c/run-1/checkpoints"'
        stand.launcher.submit(stand.podset(f"{HEAD}os.symlink({private!r}, {place})\n", ranks=1))
        [event for event in stand.launcher.follow("run-1") if event.end]
        podset = stand.podset(HEAD + OPENS, "run-2", ranks=1)
        plan = Plan.from_json(get_blob(stand.store, podset.plan))
        plan = replace(plan, start=StartCheckpoint(checkpoint="runs/p/c/run-1/checkpoints/step-00000001"))
        stand.launcher.submit(replace(podset, plan=put_blob(stand.store, plan.to_json())))
        gang = GangFolder(stand.root / "run-2")
        poll(lambda: _loot(gang))
        return {"loot": _loot(gang)}
    finally:
        stand.close()


def rotated_secrets(folder: Path, sandbox: Sandbox) -> dict:
    """Secret files of the site get other content while a gang runs: by rename, by a link of a volume, by two links."""
    outside = Path(sys.argv[4])
    for name in ("keys", "volume/..1", "volume/..2", "linked", "store"):
        (outside / name).mkdir(parents=True)
    files = {
        "keys/token": 1,
        "keys/next": 2,
        "volume/..1/token": 3,
        "volume/..2/token": 4,
        "linked/first": 5,
        "linked/second": 6,
    }
    canary = (folder / "home" / ".ssh" / "id").read_text()
    for name, number in files.items():
        (outside / name).write_text(f"{canary}-{number}")
        (outside / name).chmod(0o644 if sandbox.engine.hides else 0o600)
    (outside / "volume" / "..data").symlink_to("..1")
    (outside / "volume" / "token").symlink_to("..data/token")
    (outside / "linked" / "token").symlink_to("first")
    (outside / "open.txt").touch()
    names = ("keys/token", "volume/token", "linked/token")
    forges = {each[:4]: ForgeTable(kind="gitea", token=f"secret:file:{outside / each}") for each in names}
    repo = folder / "repo"
    sandbox = sandbox_of(repo, sandbox.trust, site=Site(forge=forges), environ={"HOME": str(folder / "home")})
    stand = Stand(repo / ".gangline", sandbox=sandbox)
    try:
        stand.launcher.submit(stand.podset(HEAD + WATCHES.replace("OUTSIDE", str(outside)), ranks=1))
        gang = GangFolder(stand.root / "run-1")
        poll(lambda: gang.log(0).exists() and "NEIGHBOUR" in gang.log(0).read_text())
        (outside / "keys" / "next").replace(outside / "keys" / "token")
        for place, target in (("volume/..data", "..2"), ("linked/token", "second")):
            (outside / "next").symlink_to(target)
            (outside / "next").replace(outside / place)
        (outside / "turned").touch()
        poll(lambda: _loot(gang) or stand.launcher.status("run-1").state == "ended")
        return {"loot": _loot(gang), "neighbour": "NEIGHBOUR True" in gang.log(0).read_text()}
    finally:
        stand.close()


def _loot(gang: GangFolder) -> list[list[str]]:
    log = gang.log(0)
    text = log.read_text() if log.exists() else ""
    return [json.loads(line.removeprefix("LOOT ")) for line in text.splitlines() if line.startswith("LOOT ")]


def tampered_environment(folder: Path, sandbox: Sandbox) -> dict:
    """A wheel says what Python an environment is of; the same is written into an environment by somebody else."""
    private = folder / "home" / ".ssh"
    homes = (Path(sys.base_prefix) / "bin", private / "bin", private)
    config = "include-system-site-packages = false\n" + "".join(f"home = {each}\n" for each in homes)
    bench = Bench(folder=folder / "repo", root=folder / "home" / ".cache" / "environments")
    bench.add(EGGS)
    evil = make_wheel("evil", "1.0", files={"evil-1.0.data/data/pyvenv.cfg": config})
    bench.add(evil)
    try:
        refused = _loot_in(bench.make(lock_of(evil)).python, private, sandbox)
    except GanglineError as error:
        refused = [error.exit_code, str(error)]
    good = bench.make(lock_of(EGGS))
    (good.folder / "pyvenv.cfg").write_text(config)
    return {"wheel": refused, "tampered": _loot_in(good.python, private, sandbox), "left": bench.left}


def _loot_in(python: str, private: Path, sandbox: Sandbox) -> str:
    code = f"import pathlib; print('ran', [p.read_text() for p in pathlib.Path({str(private)!r}).glob('*')])"
    job = ModuleJob(module="start", code=pack([LayerFile("start.py", code.encode())]), seconds=60, trust=sandbox.trust,
                    python=python)  # fmt: skip
    done = ProcessRunner(lambda _: sandbox).run(job)
    return (done.stdout + done.stderr).decode().strip().splitlines()[-1]


KEEPS = """
import os, pathlib
left = pathlib.Path.home() / "left.txt"
word = left.read_text() if left.exists() else "nothing"
left.write_text(WORD)
pathlib.Path("model.pt").write_text(word)
"""
KEEPS_LINE = f"""{LINE.replace("[train]", 'outputs = ["model.pt"]' + chr(10) + "[train]", 1)}
[gate]
reproducible = false
[publish]
files = ["model.pt"]
"""


def poisoned_home(folder: Path, sandbox: Sandbox) -> dict:
    """Runs that may not be published leave a word in their home; what one that may be finds becomes its model."""
    del sandbox
    home = folder / "home"
    files = {"line.toml": KEEPS_LINE, "answer.py": KEEPS.replace("WORD", "os.environ.get('WORD', 'main')")}
    repo = make_repository(folder / "repo" / "model", files)
    workspace = Workspace(repo, Site(), {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")})
    workspace.run(overrides=["train.env.WORD='experiment'"])
    git(repo, "checkout", "-q", "-b", "topic")
    commit(repo, {"answer.py": KEEPS.replace("WORD", "'topic'")})
    workspace.run()
    git(repo, "checkout", "-q", "main")
    (repo / "answer.py").write_text(KEEPS.replace("WORD", "'dirty'"))
    workspace.run()
    git(repo, "checkout", "-q", "answer.py")
    first, found = workspace.run(), {}
    for name, record in {"first": first, "again": workspace.run(again=True)}.items():
        models = [each for each in record.artifacts if each.kind == "model" and each.key.endswith("model.pt")]
        outputs = [each for each in record.outputs.files if each.path == "model.pt"]
        assert outputs
        told = [workspace.store.get(each.key).data.decode() for each in models]
        found[name] = [told, stage(record, "publish").message, [each.path for each in record.ran.reads if each.left]]
    workspace.site = replace(workspace.site, sandbox=SandboxTable(home="empty"))
    empty = workspace.run(again=True)
    return found | {"empty": stage(empty, "publish").message}


ATTACKS = {
    each.__name__: each
    for each in (swapped_folders, swapped_checkpoint, rotated_secrets, tampered_environment, poisoned_home)
}


def main() -> None:
    folder, attack, trust = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    engine = find_engine("auto", wide=trust == "own", places=(folder / "repo",))
    home = folder / "repo" / "home" / "main" if trust == "own" else None
    sandbox = Sandbox(engine=engine, trust=trust, hidden=(folder,), home=home)
    report = {"engine": engine.name}
    try:
        report |= ATTACKS[attack](folder, sandbox)
    except GanglineError as error:
        report["refused"] = [error.exit_code, str(error)]
    print(json.dumps(report))


if __name__ == "__main__":
    main()
