import pytest
from tests.serve.orders.yard import Yard

from gangline.serve.orders import order_runner, workers


@pytest.fixture(autouse=True)
def _lively(monkeypatch):
    """Nobody waits a second for the next look."""
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(order_runner, "OTHER_SECONDS", 0.1)
    monkeypatch.setattr(order_runner, "CHILD_SECONDS", 0.02)


@pytest.fixture
def yard(tmp_path):
    """A service over a repository of this machine."""
    yard = Yard(tmp_path)
    yield yard
    yard.close()


@pytest.fixture
def forged(tmp_path):
    """A service over a repository on a forge."""
    yard = Yard(tmp_path, forge=True)
    yield yard
    yard.close()
