"""Where a rank serves its series: to this machine alone, but in a pod, to whoever its network policy lets in."""

from types import SimpleNamespace

import pytest
from tests.train.gang import make_plan

from gangline.train.account.event_log import serve_metrics


@pytest.mark.parametrize(("on_loopback", "host"), [(True, "127.0.0.1"), (False, "0.0.0.0")])
def test_a_rank_of_this_machine_listens_on_loopback_and_one_of_a_pod_for_its_scraper(monkeypatch, on_loopback, host):
    made = {}

    class Exporter:
        problem = None

        def __init__(self, run, rank, port, **options):
            made.update(options, run=run, rank=rank, port=port)

        def observe(self, event):
            """Nothing."""

    monkeypatch.setattr("gangline.metrics.exporter.RankExporter", Exporter)
    environment = SimpleNamespace(metrics_port=9400, run="r", rank=5, local_rank=1, on_loopback=on_loopback)
    events = SimpleNamespace(listeners=[])
    serve_metrics(environment, make_plan("none"), events)
    assert (made["host"], made["port"], made["rank"], made["trains"]) == (host, 9401, 5, True)
    assert len(events.listeners) == 1
