"""Data sets of a program: all their shards as files, before its first step. No torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gangline.data.versions import read_dataset
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.spec.gang.driver_orders import ShardAccess
from gangline.spec.plan import Plan
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.account.event_log import EventLog
from gangline.train.runtime.datasets import put_shards
from gangline.train.runtime.shard_files import shard_files


@dataclass(kw_only=True)
class ProgramShards:
    """What a program knows of shards: it does not fork workers that read them."""

    events: EventLog
    data_folder: Path
    store: ObjectStore | None
    shards: ShardAccess
    secrets: Path | None
    open_store: Callable[[], ObjectStore] | None = None


def put_datasets(plan: Plan, env: RankEnvironment, store: ObjectStore, events: EventLog, folder: Path) -> list[str]:
    """Put the shards of all data sets of `plan` below `folder`; their paths, sorted."""
    own = ProgramShards(
        events=events, data_folder=folder, store=store, shards=env.shards, secrets=env.key_file.parent
    )  # fmt: skip
    documents = [read_dataset(store, use) for use in plan.data.sets]
    return put_shards(documents, shard_files(own), folder / "datasets")
