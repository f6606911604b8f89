"""Three worker gangs and a gang of two servers on a real MinIO, through lines that are cut, reset, slow and away."""

import os
import signal
import time
from contextlib import ExitStack
from secrets import token_hex

import pytest
from tests.train.parameters.parts import heads_of, launch_parts, pushes_of, run_plan, until

from gangline.errors import SIGKILL_CODE
from gangline.faults.proxy import FaultProxy, FaultRule

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]
SHAKY = (
    FaultRule(action="answer", probability=0.03),
    FaultRule(action="cut", direction="down", probability=0.03),
    FaultRule(action="reset", direction="down", probability=0.03),
    FaultRule(action="reset", probability=0.03),
)
SLOW = (
    FaultRule(action="throttle", probability=1.0, bytes_per_second=1e6),
    FaultRule(action="throttle", direction="down", probability=1.0, bytes_per_second=1e6),
)
SERVERS, SHAKY_WORKER, SLOW_WORKER, AWAY_WORKER = range(4)
RULES = {SERVERS: SHAKY, SHAKY_WORKER: SHAKY, SLOW_WORKER: SLOW, AWAY_WORKER: ()}
BLOCKS_A_STEP = 3 / 4
AWAY_SECONDS = 6.0
WHOLE_SECONDS = 400.0
"""A whole run at full size, on a busy machine."""


class Lines:
    """A line of its own from each gang to one MinIO; a context manager."""

    def __init__(self, server, folder, seed):
        self._server, self._stack, self._prefix = server, ExitStack(), f"parts-{token_hex(4)}"
        self.credentials = folder / "credentials"
        self.credentials.write_text(server.credentials)
        self.store = server.store(self._prefix)
        self.proxies = {
            part: FaultProxy("127.0.0.1", server.port, rules=rules, seed=seed + part) for part, rules in RULES.items()
        }

    def __enter__(self):
        for proxy in self.proxies.values():
            self._stack.enter_context(proxy)
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def environ(self):
        """Variables of each gang."""
        url = f"s3://{self._server.bucket}/{self._prefix}?endpoint="
        return {
            part: {
                "GANGLINE_STORE": f"{url}{proxy.endpoint}", "GANGLINE_STORE_CREDENTIALS_FILE": str(self.credentials)
            }
            for part, proxy in self.proxies.items()
        }  # fmt: skip


@pytest.fixture
def lines(minio_server, tmp_path, seed):
    with Lines(minio_server, tmp_path, seed) as found:
        yield found


def plan_of(steps):
    """Half a megabyte of weights in three shards: their exchange takes longer than a block on the slow line."""
    return run_plan(
        steps=steps, workers=3, servers=2, kind="int8", model={"width": 128, "layers": 2}, shard_bytes=2**18,
        quorum=2, grace_seconds=1.0, max_age=10_000,
    )  # fmt: skip


def kill(gang, ranks, *, lives):
    """Kill the ranks of a gang that has started so many times, once the last one has begun."""
    for rank in range(ranks):
        until(lambda rank=rank: len(gang.events(rank, "started")) == lives, seconds=WHOLE_SECONDS)
        os.kill(gang.events(rank, "started")[-1]["pid"], signal.SIGKILL)


def assert_every_block_counts_once(plan, store):
    count = round(plan.steps * BLOCKS_A_STEP)
    heads, pushes = heads_of(plan, store), pushes_of(plan, store)
    assert len(heads) > 1
    assert {(head.done.mark, head.done.above, head.dropped, head.refused) for head in heads} == {(count, (), 0, 0)}
    assert sorted(push.block for push in pushes) == list(range(count))
    left = [entry.key for entry in store.list(f"{plan.run_prefix}/parameters/changes/")]
    assert left == [], "a change that was merged is deleted"
    return pushes


@pytest.mark.row("PS2", full="a run of 300 blocks")
@pytest.mark.parametrize("steps", [32, pytest.param(400, marks=pytest.mark.slow)])
def test_blocks_over_broken_lines_are_merged_once_each(make_gang, lines, steps):
    plan = plan_of(steps)
    gangs = [make_gang() for _ in range(4)]
    parts = launch_parts(make_gang, plan, gangs=gangs, extra=lines.environ, store=lines.store)
    away = lines.proxies[AWAY_WORKER]
    until(lambda: len(pushes_of(plan, lines.store)) > 2)
    away.shut()
    time.sleep(AWAY_SECONDS)
    away.open()
    codes = {part: generation.wait(WHOLE_SECONDS) for part, (_, generation) in parts.items()}
    assert codes == {0: [0, 0], 1: [0], 2: [0], 3: [0]}, [gang.log() for gang in gangs]
    pushes = assert_every_block_counts_once(plan, lines.store)
    struck = {part: {each.rule.action for each in proxy.strikes} for part, proxy in lines.proxies.items()}
    assert struck[SHAKY_WORKER] | struck[SERVERS] == {"answer", "cut", "reset"}
    assert struck[SLOW_WORKER] == {"throttle"}
    assert max(push.silent_seconds for push in pushes if push.worker == AWAY_WORKER) > AWAY_SECONDS / 2
    assert gangs[0].result().final_step == steps


@pytest.mark.row("PS1", full="servers and workers killed 12 times")
@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_servers_and_workers_that_are_killed_lose_no_block(make_gang, lines, kills):
    plan = plan_of(16 * kills)
    gangs = [make_gang() for _ in range(4)]
    start = {"extra": lines.environ, "store": lines.store, "gangs": gangs}
    parts = launch_parts(make_gang, plan, **start)
    for number in range(kills):
        part = (SERVERS, SHAKY_WORKER)[number % 2]
        ranks = 2 if part == SERVERS else 1
        until(lambda number=number: len(pushes_of(plan, lines.store)) > 3 * number)
        kill(gangs[part], ranks, lives=1 + number // 2)
        assert parts[part][1].wait() == [SIGKILL_CODE] * ranks
        parts |= launch_parts(make_gang, plan, chosen=[part], **start)
    codes = {part: generation.wait(WHOLE_SECONDS) for part, (_, generation) in parts.items()}
    assert codes == {0: [0, 0], 1: [0], 2: [0], 3: [0]}, [gang.log() for gang in gangs]
    assert_every_block_counts_once(plan, lines.store)
    assert gangs[0].result().final_step == plan.steps
