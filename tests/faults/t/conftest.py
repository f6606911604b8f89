"""Gangs of this machine to strike; nothing of them is left afterwards."""

import pytest
from tests.contracts.launcher.gangs import Stand, poll
from tests.train.conftest import make_gang, warm

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
