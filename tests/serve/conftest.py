"""A service of two tenants, for every test here."""

import pytest
from tests.serve.world import world as made


@pytest.fixture
def world(tmp_path):
    """Behind a real server; nothing drives."""
    with made(tmp_path) as found, found.serving():
        yield found


@pytest.fixture
def still(tmp_path):
    """Without a server: a test starts it with limits of its own."""
    with made(tmp_path) as found:
        yield found
