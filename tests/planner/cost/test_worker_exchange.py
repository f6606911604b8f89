"""Bytes that workers of a parameter server exchange, against the files that they write."""

from dataclasses import replace

import pytest
from tests.train.parameters.parts import run_plan

from gangline.errors import ConfigError
from gangline.planner.plans import require_exchange, worker_exchange
from gangline.spec.config.site import Site, SitePlanTable, StoreTable
from gangline.spec.forecast import Forecast
from gangline.train.parameters.encode import ChangeCodec, file_bytes

SIZE = 2**20


@pytest.mark.parametrize("kind", ["none", "bf16", "int8", "topk"])
def test_bytes_of_a_push_are_those_of_its_file(kind):
    plan = replace(run_plan(kind=kind), forecast=Forecast(parameters=SIZE, step_seconds=0.5))
    found = worker_exchange(plan)
    assert found.push_bytes == pytest.approx(file_bytes(ChangeCodec(plan.parameters.compression, SIZE).form), rel=0.01)
    assert (found.pull_bytes, found.block_seconds) == (4 * SIZE, 2.0)
    assert found.text.startswith("1 server, 4 shards \u00b7 a push of ")
    assert "every 2" in found.text
    assert found.text.endswith("\u00b7 merges of 1")


@pytest.mark.parametrize(
    ("quorum", "said"), [(4, " and up to 1 pull of "), (3, " and up to 1.3 pulls of "), (1, " and up to 4 pulls of ")]
)
def test_each_merge_of_all_workers_may_be_pulled_during_a_block(quorum, said):
    plan = replace(run_plan(workers=4, quorum=quorum), forecast=Forecast(parameters=SIZE, step_seconds=0.5))
    assert said in worker_exchange(plan).text


def test_nothing_is_said_of_a_model_whose_size_is_not_known():
    assert worker_exchange(run_plan()) is None


def planned(*, step_seconds=0.5, **table):
    return replace(run_plan(**table), forecast=Forecast(parameters=SIZE, step_seconds=step_seconds))


def site_of(rate, *, storage="object store", url="s3://bucket"):
    return Site(store=StoreTable(url=url), plan=SitePlanTable(storage={storage: rate}))


def test_more_servers_than_shards_are_refused():
    require_exchange(planned(servers=4), site_of(1e9))
    with pytest.raises(ConfigError, match="one for each of 4 shards of the parameters, found 5; servers = 4 works"):
        require_exchange(planned(servers=5), site_of(1e9))


def test_blocks_that_are_shorter_than_their_exchange_are_refused():
    exchange = worker_exchange(planned())
    whole = exchange.push_bytes + exchange.pull_bytes
    require_exchange(planned(), site_of(whole / exchange.block_seconds))
    with pytest.raises(ConfigError, match=r"blocks of 2.0 s and an exchange of 7.0 s at .*; 4 times the steps work"):
        require_exchange(planned(), site_of(whole / 7.0))
    with pytest.raises(ConfigError, match="exchange of 7"):
        require_exchange(planned(), site_of(whole / 7.0, storage="file system", url="file:store"))


def test_blocks_whose_time_or_exchange_is_not_known_are_not_refused():
    require_exchange(planned(step_seconds=None), site_of(1.0))
    require_exchange(planned(), site_of(1.0, storage="file system"))
    require_exchange(run_plan(servers=99), site_of(1.0))
