"""Ranks put links, pipes and lies where their driver looks: it reads, writes, kills and deletes nothing of its own."""

import json
import signal
import subprocess
from dataclasses import replace

import pytest
from tests.contracts.launcher.gangs import HEAD, Stand, poll, sandbox_here

from gangline import procfs
from gangline.errors import StorageError, UsageError
from gangline.faults.process_faults import kill_rank, last_step
from gangline.launch.local.folder import GangFolder
from gangline.launch.local.processes import kill_gang
from gangline.storage.objects.multipart import abort_left_uploads
from gangline.storage.objects.protocol import list_all

pytestmark = [pytest.mark.row("P5"), pytest.mark.row("P2"), pytest.mark.timeout(240)]
PREFIX = "runs/p/c/run-1"
SWAPS = """
home, victim = pathlib.Path(os.environ["GANGLINE_HOME"]), "{victim}"
def put(path, kind):
    path = pathlib.Path(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists() or path.is_symlink():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path) if kind == "pipe" else os.symlink(kind, path)
"""


@pytest.fixture
def stand(tmp_path):
    made = Stand(tmp_path, sandbox=sandbox_here(tmp_path, "own"))
    yield made
    kill_gang(GangFolder(made.root / "run-1"))  # such a gang hinders its own uploader for a minute
    made.close()


@pytest.fixture
def victim(tmp_path):
    """A folder of the driver's."""
    folder = tmp_path / "victim"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "secret").write_text('{"event": "canary", "mono": 1}\ncanary\n')
    (folder / "checkpoints" / "manifest.json").write_text("precious")
    (folder / "x.key").write_text(f"{PREFIX}/stolen")
    return folder


def start(stand, victim, program: str, *, until: str = "done") -> GangFolder:
    text = f"import pathlib, shutil\n{HEAD}{SWAPS.replace('{victim}', str(victim))}{program}\nprint({until!r})\n"
    stand.launcher.submit(stand.podset(text + "time.sleep(120)\n", ranks=1))
    folder = GangFolder(stand.root / "run-1")
    log = folder.inside / "logs" / "0.log"
    poll(lambda: log.exists() and until in log.read_text())
    return folder


def test_what_the_driver_reads_of_a_gang_is_the_gangs(stand, victim):
    folder = start(
        stand, victim,
        'put(home / "out" / "ranks" / "0.jsonl", victim + "/secret")\n'
        'put(home / "logs" / "1.log", victim + "/secret")\nput(home / "logs" / "2.log", "pipe")\n'
        'put(home / "heartbeat" / "0", victim + "/secret")\nput(home / "keeper-0.jsonl", "pipe")\n',
    )  # fmt: skip
    events = stand.again().follow("run-1")
    assert next(events).kind == "state"
    assert last_step(folder.home, 0) is None
    lines = [line.text for line in stand.launcher.logs("run-1", ranks=[0, 1, 2])]
    assert lines
    assert "canary" not in str(lines)
    kill_gang(folder)
    assert "canary" not in str(list(events))


def test_a_lying_status_makes_the_driver_kill_no_one(stand, victim):
    stranger = subprocess.Popen(["sleep", "100"])
    lie = {
        "node_rank": 0, "pid": stranger.pid, "start_time": procfs.start_time(stranger.pid), "state": "running",
        "ranks": {"0": stranger.pid}, "joined": [0],
    }  # fmt: skip
    text = f"os.unlink(home / 'keeper-0.json')\n(home / 'keeper-0.json').write_text({json.dumps(lie)!r})\n"
    folder = start(stand, victim, text)
    with pytest.raises(UsageError, match=r"rank 0 of .* does not run"):
        kill_rank(folder.home, 0)
    stand.launcher.cancel("run-1", reason="enough", save=False)
    assert not stand.processes()
    assert stranger.poll() is None
    stranger.send_signal(signal.SIGKILL)
    stranger.wait()


def test_what_the_driver_writes_stays_in_the_gangs_folder(stand, victim):
    start(stand, victim, 'put(home / "secrets", victim)\nput(home / "cancel.json", victim + "/secret")\n')
    before = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    stand.launcher.renew("run-1")
    stand.launcher.cancel("run-1", reason="enough", save=False)
    stand.launcher.collect("run-1")
    assert {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()} == before


def test_links_in_its_part_of_the_store_lead_nowhere(stand, victim):
    program = (
        f'gang = pathlib.Path(os.environ["GANGLINE_STORE"].removeprefix("file:"), "{PREFIX}")\n'
        'put(gang / "result.json", victim + "/secret")\nput(gang / "checkpoints", victim + "/checkpoints")\n'
        'put(gang / "logs" / "0.log", "pipe")\nput(gang / ".store~" / "uploads", victim)\n'
        'put(gang / ".store~" / "locks", victim)\nput(gang / ".store~" / "incoming", victim)\n'
    )
    start(stand, victim, program)
    before = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    store = stand.store
    for key in ("result.json", "checkpoints/manifest.json", "logs/0.log"):
        assert store.get(f"{PREFIX}/{key}") is None
        assert store.head(f"{PREFIX}/{key}") is None
    assert [each.key for each in list_all(store, f"{PREFIX}/") if "checkpoints" in each.key] == []
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StorageError):
            write(f"{PREFIX}/checkpoints/new", b"of the driver")
    with pytest.raises(StorageError):
        store.put(f"{PREFIX}/fine", b"its staging is gone, too")
    store.delete(f"{PREFIX}/checkpoints/manifest.json")
    with pytest.raises(StorageError):
        abort_left_uploads(store, f"{PREFIX}/", older_than_seconds=0)
    assert {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in victim.iterdir()) == ["checkpoints", "secret", "x.key"]


def test_variables_of_a_line_begin_inside(stand):
    trap = {"LD_PRELOAD": "/nonexistent/trap.so", "LD_AUDIT": "/nonexistent/trap.so", "BASH_ENV": "/nonexistent/trap"}
    program = HEAD + "print('has', os.environ['LD_PRELOAD'], flush=True)\ntime.sleep(120)\n"
    stand.launcher.submit(replace(stand.podset(program, ranks=1), env=trap))
    folder = GangFolder(stand.root / "run-1")
    log = folder.inside / "logs" / "0.log"
    poll(lambda: log.exists() and "has /nonexistent/trap.so" in log.read_text())
    outside = procfs.environ(folder.launched().keepers[0].parent)
    assert "PATH" in outside, "that of bwrap"
    assert not trap.keys() & outside.keys()
