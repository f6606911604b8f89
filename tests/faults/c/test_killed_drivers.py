"""A driver killed before or after any durable effect: whoever runs the line again gets the same end, once."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.c.drive_a_line import prepare
from tests.faults.instruments.crash_points import enumerate_crashes, keys_of

from gangline.line.record.runs import list_runs
from gangline.line.run import lease
from gangline.spec.codec import digest
from gangline.spec.record import STAGES
from gangline.spec.run_flags import stage
from gangline.storage.folder.store import FolderStore

PROGRAM = Path(__file__).with_name("drive_a_line.py")
DRAWN = ("report", "junit")
"""Artifacts with times in them."""


def command(folder):
    return [sys.executable, str(PROGRAM), str(folder)]


def store_of(folder):
    return FolderStore(folder / "repo" / ".gangline" / "store")


OF_A_FOLDER = ("submit", "gate")
"""Stages whose keys name the folder that a run was driven in, or its repository."""


def what_is_left(folder):
    """Digest of a run without times, random words, who drove it and the folder that it was driven in."""
    (record,) = list_runs(store_of(folder))
    return digest(
        {
            "run": [record.run.id, record.run.state, record.run.verdict, record.run.exit_code],
            "commit": replace(record.commit, repository=None),
            "inputs": record.inputs,
            "plan": record.plan.digest,
            "stages": {
                name: [info.state, info.key if name not in OF_A_FOLDER else "", info.outputs, info.exit]
                for name in STAGES
                for info in [stage(record, name)]
                if name != "report"
            },
            "curve": record.curve,
            "gates": record.gates,
            "gang": record.gang.name,
            "artifacts": sorted(
                [each.kind, each.key, each.sha256] for each in record.artifacts if each.kind not in DRAWN
            ),
        }
    )


def written_by_the_driver(folder):
    """Keys but those that the gang's own mirror writes."""
    ends, folders = ("/metrics.jsonl", "/result.json"), ("/ranks/", "/logs/")
    return {
        key for key in keys_of(store_of(folder)) if not key.endswith(ends) and not any(name in key for name in folders)
    }


def invariants(folder):
    """One run, one gang that ever trained, no lease held, no open marker, no upload left."""
    store = store_of(folder)
    (record,) = list_runs(store)
    gangs = [each.name for each in (folder / "repo" / ".gangline" / "gangs").iterdir() if not each.name.startswith(".")]
    assert gangs == [record.run.id]
    assert stage(record, "report").state == "done"
    assert not lease.is_held(lease.read_lease(store, record.prefix), now=time.time())
    assert store.list("open/") == []
    assert list(store.open_uploads()) == []


@pytest.mark.row("C1")
@pytest.mark.long
def test_a_driver_killed_at_some_effects_is_resumed_to_the_same_end(tmp_path):
    """The gang's creation and the removal of the open marker; every point is `slow`."""
    points = ["submit ", "delete open/"]
    found = enumerate_crashes(
        command,
        digest=what_is_left,
        keys=written_by_the_driver,
        check=invariants,
        points=points,
        scratch=tmp_path,
    )
    assert found.num_crashes == 2 * len(points)
    assert len({effect for effect in found.effects if effect.startswith("submit ")}) == 1


@pytest.mark.slow
@pytest.mark.row("C1", full="every durable effect of a line, before and after, and 20 kills in recoveries")
@pytest.mark.timeout(1800)
def test_a_driver_killed_at_every_effect_is_resumed_to_the_same_end(tmp_path):
    found = enumerate_crashes(
        command,
        digest=what_is_left,
        keys=written_by_the_driver,
        check=invariants,
        recoveries=20,
        seed=1,
        scratch=tmp_path,
    )
    assert found.num_crashes == 2 * found.num_effects + 20


@pytest.mark.slow
@pytest.mark.row("C2", full="20 lines, each driver killed one to three times")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
def test_a_driver_killed_at_random_times_is_resumed_to_the_same_end(tmp_path, seed):
    import random

    draw = random.Random(seed)
    environment = {**os.environ, "GANGLINE_TEST_CRASH": f"before:0:{tmp_path / 'log'}"}
    for name, kills in (("unbroken", 0), ("killed", draw.randint(1, 3))):
        folder = tmp_path / name
        folder.mkdir()
        prepare(folder)
        for _ in range(kills):
            process = subprocess.Popen(command(folder), env=environment, stdout=subprocess.DEVNULL)
            time.sleep(draw.uniform(0.3, 1.5))
            process.kill()
            process.wait()
        subprocess.run(command(folder), env=environment, check=True)
        invariants(folder)
    assert what_is_left(tmp_path / "killed") == what_is_left(tmp_path / "unbroken")


def test_the_digest_sees_what_it_should(tmp_path):
    """An instrument that cannot tell two ends apart proves nothing."""
    environment = {**os.environ, "GANGLINE_TEST_CRASH": f"before:0:{tmp_path / 'log'}"}
    folder = tmp_path / "run"
    folder.mkdir()
    subprocess.run(command(folder), env=environment, check=True)
    before = what_is_left(folder)
    (record,) = list_runs(store_of(folder))
    file = folder / "repo" / ".gangline" / "store" / record.prefix / "record.json"
    plain = json.loads(file.read_text())
    plain["stages"]["gate"]["state"] = "failed"
    file.write_text(json.dumps(plain))
    assert what_is_left(folder) != before
