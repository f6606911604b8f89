"""T1: a rank is killed in the middle of a step; the gang resumes from its checkpoint and loses one interval at most."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.train.gang import ROOT, tiny_plan

from gangline.launch.faults.signals import at_step
from gangline.spec.plan import CheckpointPolicy
from gangline.storage.blobs import put_blob
from gangline.storage.layer import LayerFile, pack

pytestmark = pytest.mark.row("T1")
EVERY = 2


def code_layer() -> bytes:
    return pack([LayerFile("model.py", (ROOT / "tests" / "train" / "code" / "model.py").read_bytes())])


def submit(stand, *, steps, **environ):
    plan = tiny_plan(steps=steps, checkpoint=CheckpointPolicy(every=EVERY, asynchronous=False))
    podset = stand.podset("", env=environ)
    podset = replace(podset, code=put_blob(stand.store, code_layer()), plan=put_blob(stand.store, plan.to_json()))
    stand.launcher.submit(podset)


@pytest.mark.timeout(180)
def test_gang_of_real_ranks_survives_the_death_of_one(stand, end_of, seed):
    step = 4 + seed % 4
    submit(stand, steps=10, STRIKE=f"kill:1:{step}")
    end, events = end_of()
    log = "\n".join(line.text for line in stand.launcher.logs("run-1", ranks=None))
    assert (end.exit_code, end.restarts) == (0, 1), f"{end}\n{log}"
    assert [event.text for event in events if event.kind == "restart"] == ["rank 1 ended by signal 9"]

    told = [event.data for event in events if event.kind == "progress" and event.data["rank"] == 0]
    before = [each["step"] for each in told if each["event"] == "step" and each["generation"] == 0]
    after = [each["step"] for each in told if each["event"] == "step" and each["generation"] == 1]
    assert after[-1] == 10
    assert max(before, default=0) - (after[0] - 1) <= EVERY, "more than one interval was lost"
    died = max(each["mono"] for each in told if each["generation"] == 0)
    resumed = next(each["mono"] for each in told if each["event"] == "step" and each["generation"] == 1)
    assert resumed - died <= 15, "p99 of a kill to the first new step is 15 s"
    assert abs(sum(end.ledger.values()) - end.allocated_seconds) <= 1e-3 * end.allocated_seconds
    assert end.ledger["compute"] > 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_death_of_the_warm_parent_is_one_event_like_any_other(stand, end_of):
    home = stand.root / "run-1"
    submit(stand, steps=400)
    at_step(home, 1, EVERY, timeout_seconds=120)
    parents = {int(field) for pid in stand.processes() if (field := _parent(pid)) and _is_warm(int(field))}
    for pid in parents:
        os.kill(pid, signal.SIGKILL)
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    assert parents


def _parent(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[1] if stat.exists() else None


def _is_warm(pid):
    return b"gangline.train.warm" in Path(f"/proc/{pid}/cmdline").read_bytes()
