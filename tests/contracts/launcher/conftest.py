"""A launcher to hold to the contract; nothing of it is left afterwards."""

import pytest
from tests.contracts.launcher.gangs import Stand, poll


@pytest.fixture
def stand(tmp_path):
    stand = Stand(tmp_path)
    yield stand
    names = [path.parent.name for path in stand.root.glob("*/podset.json")]
    for name in names:
        stand.launcher.cancel(name, reason="the test is over", save=False)
    poll(lambda: not any(stand.processes(name) for name in names))
