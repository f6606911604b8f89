"""The state of a gang on this machine, from the files of its keepers."""

from types import SimpleNamespace

import pytest

from gangline.launch.local import launcher
from gangline.spec.gang.status import KeeperStatus


@pytest.mark.parametrize(
    ("state", "joined", "says"),
    [("starting", 0, "starting"), ("running", 1, "running"), ("stopping", 0, "stopping"), ("ended", 0, "stopping")],
)
def test_a_keeper_that_has_ended_and_not_yet_written_how_is_not_one_that_starts(state, joined, says):
    status = KeeperStatus(node_rank=0, pid=1, start_time=1, state=state, generation=0, restarts=0, ranks={}, joined=())
    folder = SimpleNamespace(end=lambda node: None, cancelled=lambda: None)
    podset = SimpleNamespace(num_nodes=1, world_size=1)
    assert launcher._state(folder, podset, [status], joined) == says
