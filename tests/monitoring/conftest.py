"""A Prometheus that knows a run and a service in which everything has happened."""

import pytest
from tests.monitoring.exposed import Exposed, everything, text_of
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.sources import ALERTS, RULES


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    """Every series of the catalogue, scraped at least twice, and every rule evaluated on it."""
    folder, book = tmp_path_factory.mktemp("prometheus"), everything()
    with (
        Exposed(lambda: text_of(everything(book=book))) as exposed,
        Prometheus(folder, [exposed.address], [*RULES, *ALERTS]) as server,
    ):
        server.wait("count_over_time(gangline_run_info[1m]) >= 3")
        yield server
