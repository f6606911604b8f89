"""Workers and servers as processes on one store."""

import os
import signal
import time

import pytest
from tests.train.gang import stored_model
from tests.train.parameters.parts import heads_of, launch_parts, pushes_of, run_plan, until

from gangline.errors import SIGKILL_CODE, SIGTERM_CODE
from gangline.faults.proxy import FaultProxy
from gangline.faults.s3_gateway import S3Gateway
from gangline.spec.mesh import Mesh
from gangline.train.parameters.layout import ParameterKeys


def test_two_workers_and_a_server_train_every_block_once(make_gang):
    plan = run_plan()
    parts = launch_parts(make_gang, plan)
    codes = {number: generation.wait() for number, (_, generation) in parts.items()}
    assert codes == {0: [0], 1: [0], 2: [0]}, [gang.log() for gang, _ in parts.values()]
    servers = parts[0][0]
    result = servers.result()
    assert (result.final_step, result.jobs[0].step) == (8, 8)
    assert result.checkpoint == f"{plan.run_prefix}/checkpoints/step-00000008"
    assert [each["step"] for each in servers.metrics()] == sorted({each["step"] for each in servers.metrics()})
    pushed = [each["block"] for number in (1, 2) for each in parts[number][0].events(event="block_pushed")]
    assert sorted(pushed) == [0, 1, 2, 3]


@pytest.mark.slow
def test_workers_of_two_ranks_and_three_servers_train_every_block_once(make_gang):
    """Each shard has one server, each worker reads and writes weights that both its ranks hold."""
    plan = run_plan(steps=16, strategy="fsdp", mesh=Mesh(dp_shard=2), servers=3, shard_bytes=400)
    parts = launch_parts(make_gang, plan)
    codes = {number: generation.wait() for number, (_, generation) in parts.items()}
    assert codes == {0: [0, 0, 0], 1: [0, 0], 2: [0, 0]}, [gang.log() for gang, _ in parts.values()]
    servers, store = parts[0][0], parts[0][0].store
    opened = [servers.events(rank, "shards_opened")[0]["shards"] for rank in range(3)]
    heads = heads_of(plan, store)
    assert (len(heads), min(opened)) == (sum(opened), len(heads) // 3)
    assert {(head.done.mark, head.dropped, head.refused) for head in heads} == {(8, 0, 0)}
    assert (servers.result().final_step, servers.result().jobs[0].step) == (16, 16)
    assert len(stored_model(servers, servers.result().checkpoint)) > 0


@pytest.mark.slow
def test_worker_that_is_killed_comes_back_and_every_block_is_trained_once(make_gang):
    plan = run_plan(steps=64)
    gangs = [make_gang() for _ in range(3)]
    parts = launch_parts(make_gang, plan, gangs=gangs)
    events = gangs[1].home / "out" / "ranks" / "0.jsonl"
    until(lambda: events.exists() and len(gangs[1].events(event="block_pushed")) >= 2)
    os.kill(gangs[1].events(event="started")[0]["pid"], signal.SIGKILL)
    assert parts[1][1].wait() == [SIGKILL_CODE]
    again = launch_parts(make_gang, plan, gangs=gangs, chosen=[1])
    assert again[1][1].wait() == [0], gangs[1].log()
    assert [parts[number][1].wait() for number in (0, 2)] == [[0], [0]]
    pushes = pushes_of(plan, gangs[0].store)
    assert sorted(push.block for push in pushes) == list(range(32))
    (head,) = heads_of(plan, gangs[0].store)
    assert (head.done.mark, head.dropped, head.refused) == (32, 0, 0)
    assert gangs[0].result().final_step == 64


@pytest.mark.slow
def test_worker_whose_line_is_cut_trains_on_and_its_pushes_count(make_gang, tmp_path):
    plan = run_plan(steps=128, max_age=10_000)
    gangs = [make_gang() for _ in range(3)]
    folder = gangs[0].store
    with S3Gateway(folder) as gateway, FaultProxy("127.0.0.1", gateway.port) as proxy:
        credentials = tmp_path / "credentials"
        credentials.write_text(gateway.credentials)
        through = {"GANGLINE_STORE": S3Gateway.url(proxy.port), "GANGLINE_STORE_CREDENTIALS_FILE": str(credentials)}
        parts = launch_parts(make_gang, plan, gangs=gangs, extra={1: through})
        events = gangs[1].home / "out" / "ranks" / "0.jsonl"
        until(lambda: events.exists() and len(gangs[1].events(event="block_pushed")) >= 2)
        proxy.shut()
        before = len(gangs[1].events(event="block_pushed"))
        time.sleep(8)
        assert len(gangs[1].events(event="block_pushed")) >= before
        assert gangs[1].events(event="store_silent")
        merged = heads_of(plan, folder)[0].done.count
        assert merged > before, "the other worker trains on"
        proxy.open()
        assert {number: generation.wait() for number, (_, generation) in parts.items()} == {0: [0], 1: [0], 2: [0]}
    (head,) = heads_of(plan, folder)
    assert (head.done.mark, head.dropped, head.refused) == (64, 0, 0)
    pushes = pushes_of(plan, folder)
    assert sorted(push.block for push in pushes) == list(range(64))
    assert max(push.silent_seconds for push in pushes if push.worker == 1) >= 4
    assert len([push for push in pushes if push.worker == 1]) > before


@pytest.mark.slow
def test_run_that_is_stopped_gives_its_blocks_back_and_continues_from_the_heads(make_gang):
    plan = run_plan(steps=64)
    gangs = [make_gang() for _ in range(3)]
    parts = launch_parts(make_gang, plan, gangs=gangs)
    until(
        lambda: gangs[0].store.list(ParameterKeys.of(plan).pushes) and heads_of(plan, gangs[0].store)[0].done.count >= 2
    )
    for gang in gangs:
        os.kill(gang.events(event="started")[0]["pid"], signal.SIGTERM)
    assert [generation.wait() for _, generation in parts.values()] == [[SIGTERM_CODE]] * 3, gangs[1].log()
    merged = heads_of(plan, gangs[0].store)[0].done.count
    assert 0 < merged < 32
    claims = {entry.key.rsplit("/", 1)[1][:8] for entry in gangs[0].store.list(ParameterKeys.of(plan).claims)}
    pushes = {f"{push.block:08d}" for push in pushes_of(plan, gangs[0].store)}
    assert claims == pushes, "what was claimed and not pushed is free"
    again = launch_parts(make_gang, plan, gangs=gangs)
    assert [generation.wait() for _, generation in again.values()] == [[0]] * 3, gangs[0].log()
    (head,) = heads_of(plan, gangs[0].store)
    assert (head.done.mark, head.dropped, head.refused) == (32, 0, 0)
    assert [each["step"] for each in gangs[0].metrics()][-1] == 64
