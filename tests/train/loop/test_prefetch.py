"""Workers that read ahead, in real gangs: same samples and draws as without them, errors with names, nothing left."""

import json
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.train.gang import ROOT, tiny_plan
from tests.train.sets.packed import put_dataset, source_of

from gangline import procfs
from gangline.spec.data_source import DataSource
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec
from gangline.train.loop.prefetch import drop_sockets

STEPS, BATCH = 10, 12


def plan_of(data, world=1, **changes):
    plan = tiny_plan(
        "ddp" if world > 1 else "none", program=ProgramSpec(task="model:Sets"), model={}, steps=STEPS,
        global_batch=BATCH, micro_batch=max(BATCH // world // 2, 1),
        checkpoint=CheckpointPolicy(every=3, asynchronous=False), data=data, **changes,
    )  # fmt: skip
    return replace(plan, mesh=Mesh(dp_replicate=world))


@pytest.fixture
def make_reader(make_gang):
    """Function that gives a gang whose task reads samples that draw."""
    return lambda: make_gang(ROOT / "tests" / "train" / "sets")


def taken(gang, worlds):
    """By step: number and draws of each sample, of the last generation that took the step; and who read them."""
    by_step, readers = {}, set()
    for rank in range(worlds):
        file = gang.home / f"samples-{rank}.jsonl"
        for line in map(json.loads, file.read_text().splitlines() if file.exists() else ()):
            readers |= set(line["readers"])
            latest = by_step.setdefault(line["step"], (line["generation"], []))
            if line["generation"] > latest[0]:
                latest = by_step[line["step"]] = (line["generation"], [])
            if line["generation"] == latest[0]:
                latest[1].extend(zip(line["samples"], map(tuple, line["drawn"]), strict=True))
    return {step: sorted(samples) for step, (_, samples) in sorted(by_step.items())}, readers


def finished(gang, plan, **environ):
    codes = gang.run(plan, CORES="8", **environ)
    assert codes == [0] * plan.world_size, gang.log()
    return taken(gang, plan.world_size)


@pytest.mark.row("DL2")
def test_workers_read_the_samples_and_draws_of_the_rank_itself(make_reader):
    first = make_reader()
    data = source_of(put_dataset(first.store))
    alone, readers = finished(first, plan_of(data))
    assert len({number for step in range(1, 6) for number, _ in alone[step]}) == 30, "all of two epochs"
    assert len(readers) == 1
    for world, workers in ((1, 2), (2, 1)):
        gang = make_reader()
        put_dataset(gang.store)
        found, readers = finished(gang, plan_of(replace(data, workers=workers), world))
        assert found == alone
        assert len(readers) == world * workers
        assert not [each for each in readers if procfs.state(each) not in (None, "Z")], "workers end with training"


@pytest.mark.row("DL2")
def test_a_killed_gang_goes_on_with_other_ranks_and_workers_and_takes_all_once(make_reader):
    whole = make_reader()
    data = source_of(put_dataset(whole.store), put_dataset(whole.store, "more", first=1000), weights=[3, 1])
    wanted, _ = finished(whole, plan_of(data))
    gang = make_reader()
    put_dataset(gang.store), put_dataset(gang.store, "more", first=1000)
    assert 137 in gang.run(plan_of(replace(data, workers=2), 2), STRIKE="1:5:0")
    assert 137 in gang.run(plan_of(replace(data, workers=1), 3), STRIKE="0:8:1")
    finished(gang, plan_of(replace(data, workers=3), 1))
    found, _ = taken(gang, 3)
    assert found == wanted


def test_tasks_without_data_sets_draw_by_position_once_they_have_workers(make_reader):
    found = [
        finished(make_reader(), plan_of(DataSource(workers=workers), world)) for workers, world in ((1, 1), (2, 2))
    ]
    assert found[0][0] == found[1][0]
    own, _ = finished(make_reader(), plan_of(DataSource()))
    assert [sorted(number for number, _ in step) for step in own.values()] == [
        sorted(number for number, _ in step) for step in found[0][0].values()
    ]
    assert own != found[0][0], "lines that have none keep the draws that they always had"


@pytest.mark.parametrize(
    ("broken", "code", "said"),
    [
        ("raise:11", 30, r"TrainingError: samples \[.*\b11\b.*\] cannot be read: ValueError: the user's own mistake"),
        ("memory:11", 32, r"OutOfMemoryError: samples \[.*\b11\b.*\] cannot be read: MemoryError"),
        ("kill:11", 34, r"LostPeerError: a worker of data.workers was killed by signal 9 while .*\b11\b"),
        ("exit:11", 30, r"TrainingError: a worker of data.workers ended with code 3 while .*\b11\b"),
    ],
)
def test_a_worker_that_fails_ends_the_rank_with_the_sample_and_its_code(make_reader, broken, code, said):
    gang = make_reader()
    data = replace(source_of(put_dataset(gang.store)), workers=2)
    assert gang.run(plan_of(data), BROKEN=broken) == [code], gang.log()
    assert re.search(said, gang.events(event="done")[0]["reason"] + gang.log()), gang.log()
    if broken.startswith("raise"):
        assert "in break_down" in gang.log(), "the traceback of the worker is in the log"


def test_workers_leave_sigterm_to_the_rank(make_reader):
    """A scheduler may send it to every process of a job, and the rank still has to save."""
    gang = make_reader()
    data = replace(source_of(put_dataset(gang.store)), workers=1)
    finished(gang, plan_of(data), BROKEN="term:11")


def test_workers_end_with_a_rank_that_is_killed(make_reader):
    gang = make_reader()
    data = replace(source_of(put_dataset(gang.store)), workers=2)
    assert gang.run(plan_of(data), STRIKE="0:3:0") == [137]
    _, readers = taken(gang, 1)
    assert len(readers) == 2
    assert not [each for each in readers if procfs.state(each) not in (None, "Z")]


def test_more_workers_than_cores_are_refused(make_reader):
    gang = make_reader()
    data = replace(source_of(put_dataset(gang.store)), workers=1000)
    assert gang.run(plan_of(data)) == [10]
    assert "data.workers = 1000: wanted at most the" in gang.log()


def test_sockets_are_dropped_and_their_numbers_stay_taken():
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        drop_sockets()
        os._exit(0 if os.fstat(ours.fileno()).st_rdev == Path("/dev/null").stat().st_rdev else 1)
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert theirs.recv(1) == b""
    theirs.close()
