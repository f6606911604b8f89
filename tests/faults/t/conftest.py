"""Gangs of this machine to strike; nothing of them is left afterwards."""

import shutil
from pathlib import Path

import pytest
from tests.contracts.launcher.gangs import Stand, poll
from tests.train.conftest import make_gang, warm
from tests.train.parallel.long import CODE
from tests.train.trained import left_by

__all__ = ["make_gang", "warm"]


@pytest.fixture
def stand(tmp_path):
    stand = Stand(tmp_path)
    yield stand
    names = [path.parent.name for path in stand.root.glob("*/podset.json")]
    for name in names:
        stand.launcher.cancel(name, reason="the test is over", save=False)
    poll(lambda: not any(stand.processes(name) for name in names))


@pytest.fixture
def end_of(stand):
    def follow(name="run-1"):
        """The last event's end, and all events before it."""
        events = list(stand.launcher.follow(name))
        assert events[-1].end is not None
        return events[-1].end, events

    return follow


@pytest.fixture
def make_faulty(make_gang):
    """Function without arguments: a gang whose code can be struck, as a task and as a program of its own."""

    def make():
        gang, here = make_gang(CODE), Path(__file__).parent
        shutil.copy(here / "faulty_code.py", gang.code)
        shutil.copy(here / "faulty_program.py", gang.code / "train.py")
        return gang

    return make


@pytest.fixture(scope="module")
def kept():
    return {}


@pytest.fixture
def calm(make_faulty, kept):
    """Function of a plan: what a gang trains to which nothing happens."""

    def train(plan):
        if plan.digest not in kept:
            gang = make_faulty()
            run = gang.run if plan.program.task else gang.run_program
            assert set(run(plan)) == {0}, gang.log()
            kept[plan.digest] = left_by(gang)
        return kept[plan.digest]

    return train
