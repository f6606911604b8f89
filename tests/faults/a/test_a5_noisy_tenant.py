"""A5: a neighbour who queues a hundred gangs costs another project no more than one who queues three."""

from functools import cache
from itertools import count
from statistics import quantiles

import pytest
from tests.launch.kubernetes.cluster_stand import Stand, watch_over

STEP_SECONDS, RUN_STEPS, STEPS = 10, 3, 24


@cache
def waits_of_victim(neighbours_queue, *, neighbour="neighbour", steps=STEPS):
    """Steps that each gang of `victim` waited, to the end of the game at most.

    It keeps two gangs queued, its neighbour as many as told.
    """
    stand = Stand(dict.fromkeys("abcdef", 1))
    watch_over(stand)
    numbers, queued, ends, waited = count(), {}, {}, []
    for step in range(steps):
        for project, depth in ((neighbour, neighbours_queue), ("victim", 2)):
            owned = [name for name, (_, whose) in queued.items() if whose == f"{project}:{depth}"]
            for _ in range(depth - len(owned)):
                name = f"g{next(numbers)}"
                stand.submit(name, 2, project=project)
                queued[name] = (step, f"{project}:{depth}")
        stand.turn(seconds=STEP_SECONDS)
        stand.turn(seconds=0)
        for name in [name for name in queued if len(stand.bound(name)) == 2]:
            since, whose = queued.pop(name)
            ends[name] = step + RUN_STEPS
            if whose == "victim:2":
                waited.append(step - since)
        for name in [name for name, end in ends.items() if end == step]:
            stand.end(name)
            stand.api.delete(f"/apis/batch/v1/namespaces/gangs/jobs/{name}", propagation="Foreground")
            stand.move()
            del ends[name]
    return [*waited, *(steps - since for since, whose in queued.values() if whose == "victim:2")]


def p99(waits):
    return quantiles(waits, n=100)[98]


@pytest.mark.row("A5", full="a neighbour with 100 gangs in the queue")
@pytest.mark.parametrize("noise", [pytest.param(10, marks=pytest.mark.long), pytest.param(100, marks=pytest.mark.slow)])
def test_a_long_queue_of_one_project_does_not_make_another_wait(noise):
    polite, noisy = waits_of_victim(2), waits_of_victim(noise)
    assert len(polite) > 5
    assert len(noisy) >= len(polite) - 2, "its share of starts is kept"
    assert p99(noisy) <= 1.5 * p99(polite)


@pytest.mark.row("A5")
@pytest.mark.long
def test_within_one_project_age_alone_decides():
    mixed = waits_of_victim(10, neighbour="victim")
    assert p99(mixed) > 1.5 * p99(waits_of_victim(2))
