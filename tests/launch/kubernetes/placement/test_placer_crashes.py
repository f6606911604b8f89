"""A placer that dies at any write, or loses its answer: the next one completes what it left."""

import pytest
from tests.launch.kubernetes.cluster_stand import Killed, Stand, killing, watch_over

from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.kubernetes.placement.placer import Placer


def starts(stand, step):
    """Two gangs for one place: one starts, and ends, and the other starts."""
    stand.submit("first", 2)
    stand.submit("second", 2)
    for _ in range(5):
        step()
    stand.end("first")
    for _ in range(6):
        step()


def is_refused(stand, step):
    """A server refuses; the gang starts on others."""
    stand.refusing["b"] = "no"
    stand.submit("g", 2)
    for seconds in (1, 1, 1, 61, 1, 30, 1, 1, 1):
        step(seconds=seconds)


def loses_a_server(stand, step):
    """A pod of a gang that runs moves to another server."""
    stand.submit("g", 2)
    for _ in range(4):
        step()
    stand.taint("b")
    stand.lose("g", 1)
    for _ in range(5):
        step()


def runs_to_its_end(course, hook=None):
    """What `course` leaves; a placer that dies in `hook` is followed by another."""
    stand = Stand({"a": 1, "b": 1, "c": 1})
    watch_over(stand)
    if hook:
        stand.placing.hooks.append(hook)

    def step(seconds=1):
        try:
            stand.turn(seconds=seconds)
        except Killed:
            stand.placer = Placer(stand.placing, holder="next")
            stand.turn()
        except ApiUnavailable:
            stand.turn()

    course(stand, step)
    for _ in range(4):
        step(seconds=30)
    names = sorted(stand.reservations())
    return {name: stand.bound(name) for name in names}, stand.reservations()


SLOW = pytest.mark.slow  # before a write is after the one before it
COURSES = [starts, is_refused, loses_a_server]


@pytest.mark.row("C1")
@pytest.mark.parametrize("when", ["after", "lost", pytest.param("before", marks=SLOW)])
@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.__name__)
def test_a_death_at_any_write_changes_nothing_in_the_end(course, when):
    counting = killing(0, when)
    unbroken = runs_to_its_end(course, counting)
    assert len(counting.seen) >= 7
    for at, write in enumerate(counting.seen, start=1):
        assert runs_to_its_end(course, killing(at, when)) == unbroken, f"{when} {write}"
