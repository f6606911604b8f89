"""Events that a program writes itself: a driver leaves out those whose figures are none, and goes on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.line import repositories

from gangline.launch.kubernetes.follow.follower import PodEvents
from gangline.launch.protocol import GangEvent
from gangline.line.gangs.follow import warning_of
from gangline.report.progress import StageProgress
from gangline.serve.runs.watchers import progress_fields
from gangline.spec.gang.pod_output import event_line
from gangline.spec.gang.rank_events import is_usable
from gangline.trackers.mirror import entry_of

FORGED = [
    {"event": "step", "rank": 0, "step": "x"},
    {"event": "step", "rank": 0},
    {"event": "step", "rank": [0], "step": 1},
    {"event": "step", "rank": 0, "step": 1, "phases": [1]},
    {"event": "step", "rank": 0, "step": 1, "phases": {"compute": "x"}},
    {"event": "step", "rank": 0, "step": 10**400, "seconds": 1.0},
    {"event": "step", "rank": 0, "step": 1, "loss": 10**400},
    {"event": "merged", "num_dropped": "x"},
    {"event": "straggler", "ratio": "x", "slow": 1},
    {"event": "job_started", "rank": 0, "jobs": {}},
]
WRITES_EVENTS = f"""\
import os, pathlib
folder = pathlib.Path(os.environ["GANGLINE_OUT"], "ranks")
folder.mkdir(exist_ok=True)
with (folder / "0.jsonl").open("a") as file:
    file.write({"".join(json.dumps(each) + chr(10) for each in FORGED)!r})
"""


def test_a_run_whose_program_forges_events_ends_as_any_other(workspace):
    repositories.commit(workspace.repo, {"answer.py": WRITES_EVENTS + repositories.PROGRAM})
    assert workspace.run().run.verdict == "passed"


@pytest.mark.parametrize("event", FORGED, ids=str)
def test_forged_events_are_left_out(event):
    assert not is_usable(event)
    pod = PodEvents()
    assert not [*pod.take("pod", event_line({"rank": 0} | event)), *pod.flush(now=True)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(["compute", "wait"]), each, max_size=2),
    max_leaves=4,
)
NAMES = ("step", "round", "round_lost", "merged", "members", "straggler", "straggler_over", "busy", "resumed",
         "job_started", "done", "saved", "non_finite", "block_pushed", "worker_silent", "worker_back", "worker_slow",
         "version_damaged")  # fmt: skip
FIELDS = ("rank", "step", "steps", "loss", "seconds", "tokens", "phases", "jobs", "index", "rounds", "ratio", "missing",
          "num_dropped", "num_refused", "age_mean", "silent_seconds", "accepted", "quorum", "generation",
          "without_store", "worker", "reason")  # fmt: skip


@given(
    drawn=st.lists(
        st.tuples(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)), max_size=6
    )
)
def test_whatever_is_let_through_is_shown(drawn):
    progress = StageProgress("train", steps=10)
    for name, fields in drawn:
        event = fields | {"event": name}
        if is_usable(event):
            seen = GangEvent(kind="progress", text=name, data=event)
            progress.see(seen)
            warning_of(seen)
            entry_of(event)
        assert isinstance(progress.sentence(spark=8), str)
        progress.slowest_first()
        json.dumps(progress_fields(progress), allow_nan=False)
