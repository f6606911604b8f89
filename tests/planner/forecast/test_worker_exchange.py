"""Bytes that workers of a parameter server exchange, against the files that they write."""

from dataclasses import replace

import pytest
from tests.train.parameters.parts import run_plan

from gangline.planner.forecast.worker_exchange import worker_exchange
from gangline.spec.forecast import Forecast
from gangline.train.parameters.encode import ChangeCodec, file_bytes

SIZE = 2**20


@pytest.mark.parametrize("kind", ["none", "bf16", "int8", "topk"])
def test_bytes_of_a_push_are_those_of_its_file(kind):
    plan = replace(run_plan(kind=kind), forecast=Forecast(parameters=SIZE, step_seconds=0.5))
    found = worker_exchange(plan)
    assert found.push_bytes == pytest.approx(file_bytes(ChangeCodec(plan.parameters.compression, SIZE).form), rel=0.01)
    assert (found.pull_bytes, found.block_seconds) == (4 * SIZE, 2.0)
    assert "every 2" in found.text


def test_nothing_is_said_of_a_model_whose_size_is_not_known():
    assert worker_exchange(run_plan()) is None


@pytest.mark.parametrize(("quorum", "momentum", "is_said"), [(2, 0.9, False), (1, 0.9, True), (1, 0.5, False)])
def test_a_large_momentum_is_named_where_merges_do_not_wait_for_all(quorum, momentum, is_said):
    plan = replace(run_plan(momentum=momentum, quorum=quorum), forecast=Forecast(parameters=SIZE))
    assert (f"outer_momentum {momentum} is much" in worker_exchange(plan).text) == is_said
