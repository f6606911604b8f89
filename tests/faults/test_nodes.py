"""A virtual node is lost with all it holds: its gang goes on with another in its place, whoever looks meanwhile."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contracts.launcher.gangs import HEAD, Stand

from gangline import procfs
from gangline.errors import UsageError
from gangline.faults.process_faults import lose_node
from gangline.launch.local.folder import GangFolder

pytestmark = [pytest.mark.row("T11"), pytest.mark.timeout(300)]
UNTIL_LOST = HEAD + "step(0); time.sleep(600) if generation == 0 else None"


@pytest.fixture
def stand(tmp_path):
    stand = Stand(tmp_path)
    yield stand
    stand.close()


@pytest.fixture
def gang(stand):
    """The folder of a gang of two nodes that trains."""
    podset = replace(stand.podset(UNTIL_LOST), num_nodes=2, procs_per_node=1)
    stand.launcher.submit(podset)
    stand.wait_for_all("run-1")
    return GangFolder(stand.root / "run-1")


@pytest.mark.parametrize("node", [0, 1])
def test_the_gang_continues_with_another_node_though_its_driver_looks_all_the_time(stand, gang, node):
    before = gang.keeper(node)
    copies = list(Path("/dev/shm").glob(f"gangline-copies-*-{before.pid}-{before.start_time}"))
    assert len(copies) == 1
    looking = threading.Event()

    def look():
        while not looking.is_set():
            stand.launcher.status("run-1")

    driver = threading.Thread(target=look)
    driver.start()
    try:
        assert lose_node(gang.home, node) == before.pid
        assert not procfs.is_alive(before.pid, before.start_time)
        assert not copies[0].exists()
        assert gang.end(node) is None
        *_, last = stand.launcher.follow("run-1")
    finally:
        looking.set()
        driver.join()
    assert (last.end.exit_code, last.end.restarts) == (0, 1), last.end
    assert gang.keeper(node).pid != before.pid


def test_a_node_that_is_not_there_is_refused(stand, gang):
    with pytest.raises(UsageError, match=r"the keeper of node 2 of .* does not run"):
        lose_node(gang.home, 2)
