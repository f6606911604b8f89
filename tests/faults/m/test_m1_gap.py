"""M1: a Prometheus that was away gets what ranks said meanwhile: each sample once, however often it is given."""

import pytest
from tests.metrics.test_from_events import STEP
from tests.monitoring.prometheus import Prometheus, promtool
from tests.report.records import passed

from gangline.metrics.from_events import replay
from gangline.metrics.openmetrics import render_openmetrics

pytestmark = [pytest.mark.row("M1"), pytest.mark.tools]
BEGAN = 1_790_000_000.0


def events(rank, seconds):
    return [
        {**STEP, "rank": rank, "step": at, "seconds": 0.5, "tokens": 100, "time": BEGAN + at}
        for at in range(1, seconds + 1)
    ]


@pytest.mark.parametrize(
    ("ranks", "seconds"), [(4, 300), pytest.param(67, 7200, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_every_second_of_every_rank_is_there_once(tmp_path, ranks, seconds):
    """Five minutes; in full two hours of 67 ranks with three series each: 200 samples a second."""
    record = passed()
    run = record.run.id
    moments = (
        each
        for rank in range(ranks)
        for each in replay(events(rank, seconds), run=run, rank=rank, every_seconds=0.5, world_size=ranks)
    )
    (tmp_path / "gap.om").write_text(render_openmetrics([], moments=moments))
    for _ in range(2):
        promtool("tsdb", "create-blocks-from", "openmetrics", tmp_path / "gap.om", tmp_path / "server" / "data")
    keeps = ["--storage.tsdb.retention.time=10y"]
    with Prometheus(tmp_path / "server", options=keeps) as server:
        at = BEGAN + seconds + 1
        for name in ("rank_step_seconds", "rank_wait_ratio", "rank_last_step"):
            counts = server.query(f'count_over_time(gangline_{name}{{run="{run}"}}[{seconds + 60}s])', at=at)
            assert {each["metric"]["rank"]: float(each["value"][1]) for each in counts} == {
                str(rank): float(seconds) for rank in range(ranks)
            }
        assert server.value(f'gangline_train_tokens_total{{run="{run}"}}', at=at) == 100 * seconds
