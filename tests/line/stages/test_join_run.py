"""Workers that join a run from a second checkout with another site, over one store."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

import pytest
from tests.line import repositories
from tests.line.run.test_stopping import processes_of
from tests.line.stages.test_parameter_server import LINE, TASK, until
from tests.report import records

from gangline.errors import CapacityError, ConfigError, IntegrityError, UsageError
from gangline.line.record.joined_workers import read_joined
from gangline.line.record.runs import list_runs
from gangline.line.stages.join_run import require_joinable, require_same_inputs
from gangline.signing.keys import signing_key
from gangline.spec.config.site import Site
from gangline.spec.identity import worker_gang
from gangline.spec.record import Seal, StageInfo
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store
from gangline.storage.s3.run_credentials import credential_owners

PACED = """\
import os, time
from model import Tiny

class Paced(Tiny):
    def loss(self, outputs, batch):
        own = os.environ.get("GANGLINE_GANG", "").endswith(("-t101", "-t201"))
        time.sleep(5.0 if own else 0.2)
        return super().loss(outputs, batch)
"""
"""Workers of the run are slow, so that it does not end before others have joined."""
BLOCKS, JOINED = 60, 3
LONG_SECONDS = 900


def paced_line():
    table = "grace_seconds = 1\nlease_seconds = 30\nmax_age = 1000"
    line = LINE.replace("model:Tiny", "paced:Paced").replace("outer_steps = 4", "outer_steps = 2")
    line = line.replace("steps = 16", f"steps = {BLOCKS}").replace("grace_seconds = 2", table)
    return line.replace('plan = "auto"', 'plan = "off"')


@dataclass
class Checkout:
    """A clone with a site file of its own."""

    repo: Path
    site: Path
    environ: dict

    def start(self, *arguments):
        command = [sys.executable, "-m", "gangline", *arguments, "--repo", str(self.repo), "--site", str(self.site)]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"} | self.environ
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def call(self, *arguments):
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=LONG_SECONDS)
        return process.returncode, said


@dataclass
class TwoCheckouts:
    own: Checkout
    other: Checkout
    store: ObjectStore

    @property
    def record(self):
        return next(iter(list_runs(self.store)))


@pytest.fixture
def checkouts(tmp_path):
    """Two clones over a folder."""
    table = f'[store]\nurl = "file:{tmp_path / "store"}"\n'
    yield checkouts_over(open_store(f"file:{tmp_path / 'store'}"), table, tmp_path)
    kill(processes_of(None, tmp_path))


@pytest.fixture
def checkouts_over_minio(tmp_path, minio_server):
    """Two clones over MinIO, which gives the gangs of either site credentials of the run alone."""
    prefix = f"join-{token_hex(4)}"
    table = f"""\
[store]
url = "s3://{minio_server.bucket}/{prefix}"
endpoint = "{minio_server.endpoint}"
credentials = "secret:env:STORE"
"""
    yield checkouts_over(minio_server.store(prefix), table, tmp_path, STORE=minio_server.credentials)
    kill(processes_of(None, tmp_path))


def checkouts_over(store, table, folder, **environ):
    """Two clones of one repository, each with a site file of its own, that have the same key."""
    own, other = folder / "own", folder / "other"
    repositories.make_repository(own, {"line.toml": paced_line(), "paced.py": PACED})
    shutil.copy(TASK, own / "model.py")
    repositories.commit(own, {})
    repositories.git(folder, "clone", "--quiet", str(own), str(other))
    environ |= {"XDG_CONFIG_HOME": str(folder / "config")}
    found = []
    for repo in (own, other):
        site = folder / f"{repo.name}.toml"
        site.write_text(table)
        found.append(Checkout(repo, site, environ))
    return TwoCheckouts(*found, store)


def kill(pids):
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended since
            os.kill(pid, signal.SIGKILL)


@contextmanager
def training(checkouts):
    """A run whose workers have pushed; its driver ends with the block."""
    driver = checkouts.own.start("run")
    try:
        record = until(
            lambda: still(driver, next(iter(list_runs(checkouts.store)), None)), "a record", seconds=LONG_SECONDS
        )
        pushes = f"{record.gang_prefix}/parameters/pushes/"
        until(lambda: still(driver, checkouts.store.list(pushes)), "a push", seconds=LONG_SECONDS)
        yield driver, record
    finally:
        driver.kill()
        driver.communicate()


def still(driver, found):
    """What was found while the driver runs."""
    assert driver.poll() is None, driver.stdout.read()
    return found


def events_of(checkouts):
    return [event.text for event in checkouts.record.events if event.kind == "worker"]


def blocks_by_worker(record):
    return {each.worker: each.blocks for each in record.training.workers.workers}


def gang_of_joined(checkouts, record):
    return checkouts.other.repo / ".gangline" / "gangs" / worker_gang(record.run.id, JOINED)


def wait_for_push(checkouts, record):
    """Until the gang of the joined worker says that it has pushed a block."""
    folder = gang_of_joined(checkouts, record)
    until(
        lambda: any("block_pushed" in path.read_text() for path in folder.rglob("0.jsonl")), "a push of the worker",
        seconds=LONG_SECONDS,
    )  # fmt: skip


def end_of(driver, *others):
    """Exit codes, once the run's driver and others have ended; what they printed goes into the message."""
    said = [each.communicate(timeout=LONG_SECONDS)[0] for each in (driver, *others)]
    assert driver.returncode == 0, "\n".join(said)
    return [each.returncode for each in others]


@pytest.mark.timeout(3600)
@pytest.mark.long
def test_worker_of_another_checkout_trains_blocks_of_the_run_and_ends_with_it(checkouts):
    demand_joined_and_ended(checkouts)


@pytest.mark.timeout(3600)
@pytest.mark.tools
def test_worker_of_another_checkout_joins_a_run_whose_store_is_s3(checkouts_over_minio):
    demand_joined_and_ended(checkouts_over_minio)
    assert credential_owners(checkouts_over_minio.store) == frozenset(), "those of the joined worker end with the run"


def demand_joined_and_ended(checkouts):
    """A worker of the other checkout joins, its log is where it runs, and it ends with the run."""
    with training(checkouts) as (driver, record):
        joined = checkouts.other.start("join", record.run.id)
        wait_for_push(checkouts, record)
        code, log = checkouts.other.call("logs", record.run.id, "--worker", str(JOINED))
        assert (code, "r00│" in log) == (0, True)
        code, log = checkouts.own.call("logs", record.run.id, "--worker", str(JOINED))
        in_store = code == 0 and "r00│" in log  # its gang has ended
        assert in_store or (code, f"worker {JOINED} joined from" in log) == (2, True), log
        assert end_of(driver, joined) == [0]
    blocks = blocks_by_worker(checkouts.record)
    assert (sorted(blocks), sum(blocks.values())) == ([1, 2, JOINED], BLOCKS)
    assert events_of(checkouts)[0].startswith(f"worker {JOINED} has joined: 1 rank at local")
    assert events_of(checkouts)[1:] == [f"worker {JOINED}, which had joined, has ended: every block is trained"]
    assert read_joined(checkouts.store, record, JOINED).left is not None
    code, said = checkouts.other.call("join", record.run.id)
    assert (code, "training has ended" in said) == (2, True)


@pytest.mark.timeout(3600)
@pytest.mark.long
def test_worker_that_is_killed_with_its_driver_loses_no_block_and_may_come_again(checkouts):
    with training(checkouts) as (driver, record):
        joined = checkouts.other.start("join", record.run.id)
        wait_for_push(checkouts, record)
        joined.kill()
        joined.communicate()
        kill(processes_of(record.run.id, gang_of_joined(checkouts, record)))
        assert read_joined(checkouts.store, record, JOINED).left is None
        again = checkouts.other.start("join", record.run.id)
        assert end_of(driver, again) == [0]
    blocks = blocks_by_worker(checkouts.record)
    assert (sorted(blocks), sum(blocks.values())) == ([1, 2, JOINED], BLOCKS)
    assert [each.partition(":")[0] for each in events_of(checkouts)[:2]] == [
        "worker 3 has joined", "worker 3 has a driver again",
    ]  # fmt: skip


@pytest.mark.timeout(3600)
@pytest.mark.long
def test_worker_whose_driver_was_killed_is_followed_again_and_one_that_left_is_followed_by_another(checkouts):
    with training(checkouts) as (driver, record):
        first = checkouts.other.start("join", record.run.id)
        wait_for_push(checkouts, record)
        first.kill()
        first.communicate()
        again = checkouts.other.start("join", record.run.id)
        until(lambda: len(events_of(checkouts)) == 2, "a second driver", seconds=LONG_SECONDS)
        again.send_signal(signal.SIGINT)
        said, _ = again.communicate(timeout=LONG_SECONDS)
        assert (again.returncode, "what it had pushed counts" in said) == (70, True), said
        assert not processes_of(record.run.id, gang_of_joined(checkouts, record))
        assert end_of(driver, checkouts.other.start("join", record.run.id)) == [0]
    joined, followed, left, other, _ = events_of(checkouts)
    assert (joined.split(":")[0], followed.split(":")[0]) == ("worker 3 has joined", "worker 3 has a driver again")
    assert left.startswith("worker 3 has left: stopped by Ctrl-C")
    assert other.startswith("worker 4 has joined")
    assert sum(blocks_by_worker(checkouts.record).values()) == BLOCKS


@pytest.fixture
def key(tmp_path):
    return signing_key(Site(), {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})


@pytest.fixture
def trains(key):
    """A record of a run with a parameter server that trains."""
    record = records.passed()
    values = record.inputs.values | {"train.parameter_server.workers": 2, "train.strategy": "parameter_server"}
    inputs = replace(record.inputs, values=values, versions={"gangline": "1"})
    stages = record.stages | {"train": StageInfo(state="running")}
    run = replace(record.run, state="open", verdict=None)
    return replace(record, inputs=inputs, stages=stages, run=run, seal=Seal(key_id=key.key_id, signature=""))


def test_run_that_trains_may_be_joined(trains, key):
    require_joinable(trains, key_id=key.key_id, version="1")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda r: replace(r, inputs=replace(r.inputs, values={"train.strategy": "ddp"})), UsageError, "found 'ddp'"),
        (lambda r: replace(r, run=replace(r.run, state="ended")), UsageError, "whose training has ended"),
        (lambda r: replace(r, stages=r.stages | {"train": StageInfo(state="done")}), UsageError, "has ended"),
        (lambda r: replace(r, gang=None), CapacityError, "does not train yet"),
        (lambda r: replace(r, commit=replace(r.commit, trust="fork")), IntegrityError, "is of a fork"),
        (lambda r: replace(r, inputs=replace(r.inputs, versions={"gangline": "2"})), ConfigError, "wanted gangline 2"),
        (lambda r: replace(r, seal=Seal(key_id="feedbeef", signature="")), IntegrityError, "the key of its driver"),
    ],
    ids=["strategy", "ended", "trained", "waits", "fork", "version", "key"],
)
def test_run_that_takes_no_worker_says_why(trains, key, change, error, words):
    with pytest.raises(error, match=words):
        require_joinable(change(trains), key_id=key.key_id, version="1")


@pytest.mark.parametrize("what", ["code", "data"])
def test_commit_that_gives_other_code_or_data_here_is_refused(trains, what):
    require_same_inputs(trains, trains)
    built = replace(trains, inputs=replace(trains.inputs, **{what: "f" * 64}))
    with pytest.raises(IntegrityError, match=f"wanted its {what}.* found ffffffffffff here"):
        require_same_inputs(trains, built)
