"""Plans and gangs of a run with a parameter server, on one folder store."""

import time
from dataclasses import replace
from functools import partial

from tests.train.gang import KEY, Generation, tiny_plan

from gangline.planner.plans import server_plan, worker_plans
from gangline.spec.compression import Compression
from gangline.spec.parameter_server import ParameterPlan, ParameterServer
from gangline.storage.open import open_store
from gangline.train.parameters.layout import BlockPush, Head, ParameterKeys, ParameterStore, RowLayout

MODEL = {"width": 8, "layers": 2}


def run_plan(*, steps=8, block_steps=4, outer_lr=0.7, momentum=0.9, kind="none", ratio=0.01, strategy="none", mesh=None,
             model=MODEL, workers=2, **table):  # fmt: skip
    """The plan of a run with workers of batches of 4."""
    plan = tiny_plan("ddp", model=model, steps=steps, global_batch=4 * workers, micro_batch=2)
    given = {"workers": workers, "grace_seconds": 5.0, "shard_bytes": 2**20}
    compression = Compression(
        kind=kind, ratio=ratio, outer_steps=block_steps, outer_lr=outer_lr, outer_momentum=momentum
    )  # fmt: skip
    parameters = ParameterPlan(table=ParameterServer(**given | table), compression=compression)
    return replace(plan, strategy=strategy, mesh=mesh or replace(plan.mesh, dp_replicate=1), parameters=parameters)


def launch_parts(make_gang, plan, *, chosen=None, gangs=None, extra=None, store=None):
    """Gangs and generations of the servers, number 0, and of the workers; `store` is another one than their folder."""
    gangs = gangs or [make_gang() for _ in range(plan.num_workers + 1)]
    for gang in gangs:
        gang.store_url, gang.store = gangs[0].store_url, store or open_store(gangs[0].store_url)
    plans = [server_plan(plan), *worker_plans(plan)]
    ended = vars(gangs[0]).setdefault("ended_parts", {})
    return {
        number: (
            gangs[number],
            Generation(
                gangs[number], plans[number], {"GANGLINE_GANG": f"part-{number}"} | (extra or {}).get(number, {}),
                start=partial(start_apart, gangs[number].warm, number, ended),
            ),
        )
        for number in (chosen if chosen is not None else range(len(plans)))
    }  # fmt: skip


def until(condition, seconds=60.0):
    """Wait until `condition` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def pushes_of(plan, store):
    """All pushes of a run."""
    found = ParameterStore(store, ParameterKeys.of(plan), plan.run, KEY)
    return [found.read(BlockPush, entry.key)[0] for entry in store.list(found.keys.pushes)]


def heads_of(plan, store):
    """Heads of all shards of a run."""
    found = ParameterStore(store, ParameterKeys.of(plan), plan.run, KEY)
    shards = found.read(RowLayout, found.keys.layout)[0].shards()
    return [found.read(Head, found.keys.head(each.number))[0] for each in shards]


def start_apart(warm, number, ended, ranks):
    """Start the ranks of one of several gangs of a warm parent, which knows ranks by number alone."""
    for rank in ranks:
        ended.pop(1000 * number + rank.rank, None)
    warm.start([replace(each, rank=1000 * number + each.rank) for each in ranks])

    def codes():
        ended.update({each.rank: each.code for each in warm.exits()})
        return {rank % 1000: code for rank, code in ended.items() if rank // 1000 == number}

    return codes
