"""Gangs of two pods under JobSet and under Trainer: they run, end, are cancelled and lost as those of a plain Job are.

The placer of the follower places them, Trainer's controller makes a JobSet of a TrainJob, JobSet's the Job and Service.
"""

from datetime import UTC, datetime

import pytest
from tests.contracts.launcher.gangs import HEAD, SAVER, SLEEPER, STEPPER, poll
from tests.contracts.launcher.stands import ClusterStand

from gangline.spec.gang.podset import Resources

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
PATIENCE_SECONDS = 120.0
SMALL = Resources(cpus=0.2, memory_bytes=2**28, shm_bytes=2**24)
KINDS = ["trainjob", pytest.param("jobset", marks=pytest.mark.slow)]
MADE = "trainjobs,trainingruntimes,jobsets,jobs,pods,services,secrets,networkpolicies"


@pytest.fixture(scope="module", params=KINDS)
def stand(request, cluster, tmp_path_factory):
    cluster.demand(request.param)
    namespace = cluster.namespace(request.param)
    made = ClusterStand(tmp_path_factory.mktemp("roots"), cluster, namespace, kind=request.param)
    yield made
    cluster.delete(namespace)


def pair(stand, program, name, **changes):
    return stand.podset(program, name, **{"num_nodes": 2, "procs_per_node": 1, "resources": SMALL} | changes)


def left(stand, cluster, name):
    """All that whoever has a part in a gang makes, but the end that is kept."""
    labels = f"gangline/gang={name}"
    found = cluster.kubectl.run("get", MADE, "-n", stand.api.namespace, "-l", labels, "-o", "name").split()
    service = cluster.kubectl.run("get", "service", name, "-n", stand.api.namespace, "--ignore-not-found", "-o", "name")
    return found + service.split()  # that of JobSet has no label of ours


def await_nothing_left(stand, cluster, name):
    poll(lambda: left(stand, cluster, name) == [], PATIENCE_SECONDS)


def pods(stand, name):
    return stand.api.items(f"/api/v1/namespaces/{stand.api.namespace}/pods", labels=f"gangline/gang={name}")[0]


def follow_until(stand, name, holds):
    """The follower, which also places the gang, once an event of its fits."""
    events = stand.launcher.follow(name)
    for event in events:
        assert event.end is None, event
        if holds(event):
            return events
    raise AssertionError(f"{name} was followed to no end")


def is_up(event):
    return event.status is not None and event.status.state == "running"


def test_gang_runs_to_its_end_is_adopted_and_leaves_nothing(stand, cluster):
    first = stand.launcher.submit(pair(stand, STEPPER, "whole"))
    assert stand.again().submit(pair(stand, STEPPER, "whole")).uid == first.uid
    events = list(stand.launcher.follow("whole"))
    assert events[-1].end.exit_code == 0, [(event.kind, event.text) for event in events if event.kind != "progress"]
    reported = [(event.data["rank"], event.data["step"]) for event in events if event.kind == "progress"]
    assert [step for rank, step in reported if rank == 0] == [0, 1, 2, 3, 4]
    assert {rank for rank, _ in reported} == {0, 1}
    assert {line.rank for line in stand.launcher.logs("whole", ranks=None)} == {0, 1}
    assert stand.launcher.collect("whole") == events[-1].end
    assert (adopted := stand.again().submit(pair(stand, STEPPER, "whole"))).adopted
    assert adopted.uid == first.uid
    stand.launcher.cancel("whole", reason="it has ended already")
    assert stand.launcher.collect("whole").exit_code == 0
    stand.api.delete(f"{stand.roots_path}/whole", propagation="Background")
    await_nothing_left(stand, cluster, "whole")


def test_cancel_lets_both_pods_save_and_leaves_nothing(stand, cluster):
    stand.launcher.submit(pair(stand, SAVER, "saved"))
    events = follow_until(stand, "saved", is_up)
    stand.launcher.cancel("saved", reason="a better idea")
    assert pods(stand, "saved") == []
    end = stand.launcher.collect("saved")
    assert (end.exit_code, end.retry) == (70, "never"), end
    rest = list(events)
    assert rest[-1].end == end
    await_nothing_left(stand, cluster, "saved")


def test_cancel_right_after_submit_leaves_nothing(stand, cluster):
    stand.launcher.submit(stand.podset(SLEEPER, "early", resources=SMALL))
    stand.launcher.cancel("early", reason="too early", save=False)
    assert stand.launcher.collect("early").exit_code == 70
    await_nothing_left(stand, cluster, "early")


def test_exit_class_is_that_of_the_culprit(stand, cluster):
    program = HEAD + "step(0); (time.sleep(60) if rank == 0 else end(32))"
    stand.launcher.submit(pair(stand, program, "failed"))
    end = list(stand.launcher.follow("failed"))[-1].end
    assert (end.exit_code, end.retry) == (32, "changed"), end
    stand.launcher.sweep(now=datetime.now(UTC), life=lambda _: "ended")
    await_nothing_left(stand, cluster, "failed")


def test_pod_that_a_stranger_deletes_is_replaced_and_the_gang_continues(stand, cluster):
    program = HEAD + "print('up', rank); step(0); generation or time.sleep(120)"
    stand.launcher.submit(pair(stand, program, "lost"))
    events = follow_until(stand, "lost", is_up)
    victim = pods(stand, "lost")[0]["metadata"]["name"]
    stand.api.delete(f"/api/v1/namespaces/{stand.api.namespace}/pods/{victim}", grace_seconds=5)
    end = list(events)[-1].end
    assert (end.exit_code, end.generation) == (0, 1), end
    assert stand.launcher.collect("lost") == end
    stand.launcher.sweep(now=datetime.now(UTC), life=lambda _: "orphan")
    await_nothing_left(stand, cluster, "lost")
