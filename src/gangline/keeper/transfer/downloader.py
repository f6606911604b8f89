"""Download of what a pod needs before its keeper starts: plan, code, and files of an earlier pod of this node.

It runs as a separate process (`python -m gangline.keeper.transfer.downloader`). Plan and code are verified by digest
before they are opened. In a pod GANGLINE_PLAN and GANGLINE_CODE are keys of blobs, not paths.
"""

import json
import shutil
import sys
from pathlib import Path

import stamina

from gangline.checkpoint.format.commit import read_latest
from gangline.errors import GanglineError, StorageError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.gang_inputs import code_path, plan_path
from gangline.keeper.ipc.signals import die_with_parent
from gangline.keeper.transfer.uploader import log_key, output_prefix
from gangline.spec.gang.status import FIRST_GENERATION
from gangline.spec.output_limits import MOST_LOG_BYTES
from gangline.spec.plan import Plan
from gangline.storage.folder.durable_files import replace_file
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.code_layer import fetch_layer
from gangline.storage.objects.growing_file import read_growing_file
from gangline.storage.objects.placed_files import place_files
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

MOST_LINES_BYTES = 1 << 30
"""Largest file of lines of an earlier pod that is restored; a driver reads no more of it either."""


def fetch(environment: KeeperEnvironment) -> None:
    """Download everything, with retries for `environment.fetch_seconds`.

    Raises:
        StorageError: The store keeps failing, or lacks a blob.
        IntegrityError: A blob does not match its digest, or is not a plan or a code layer.
        ConfigError: The URL or credentials of the store are not valid.
    """
    for attempt in stamina.retry_context(
        on=StorageError, attempts=None, timeout=environment.fetch_seconds, wait_max=10.0
    ):
        with attempt:
            store = open_store(
                environment.store,
                credentials=environment.store_credentials_file,
                socket_folder=environment.store_socket,
            )
            data = get_blob(store, str(environment.plan))
            plan = Plan.from_json(data)
            replace_file(plan_path(environment), data, durable=False)
            _fetch_code(store, environment, plan)
            restore(store, environment, plan)
            _write_first_generation(store, environment, plan)


def restore(store: ObjectStore, environment: KeeperEnvironment, plan: Plan) -> None:
    """Restore events, logs and metrics of an earlier pod of this node and gang, which this one appends to."""
    prefix = output_prefix(plan)
    for rank in environment.ranks:
        events = read_growing_file(store, f"{prefix}/ranks/{rank}.jsonl", most_bytes=MOST_LINES_BYTES)
        if events is None or not _is_of_gang(events, environment.gang):
            continue
        _write(environment.out / "ranks" / f"{rank}.jsonl", events)
        log = store.get(log_key(prefix, rank), 0, MOST_LOG_BYTES)
        _write(environment.home / "logs" / f"{rank}.log", log.data if log else None)
        if rank == 0:
            metrics = read_growing_file(store, f"{prefix}/metrics.jsonl", most_bytes=MOST_LINES_BYTES)
            _write(environment.out / "metrics.jsonl", metrics)


def _write_first_generation(store: ObjectStore, environment: KeeperEnvironment, plan: Plan) -> None:
    """Write down the generation after the last one that saved: if all pods were replaced, no keeper knows it."""
    latest = None if plan.jobs else read_latest(store, f"{plan.own_prefix}/checkpoints")
    if latest is not None:
        replace_file(environment.home / FIRST_GENERATION, str(latest.generation + 1).encode(), durable=False)


def _fetch_code(store: ObjectStore, environment: KeeperEnvironment, plan: Plan) -> None:
    folder = code_path(environment)
    draft = folder.with_name(f".{folder.name}")
    for path in (draft, folder):
        shutil.rmtree(path, ignore_errors=True)
    fetch_layer(store, str(environment.code), draft)
    place_files(store, plan.data.tracked, draft)
    draft.rename(folder)


def _is_of_gang(events: bytes, gang: str) -> bool:
    """The first event of a rank names its gang."""
    try:
        first = json.loads(events.partition(b"\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and first.get("gang") == gang


def _write(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, durable=False)


def main() -> int:
    """Run the download; returns 0 or an exit code, with the error in the last line of stderr."""
    die_with_parent(int(sys.argv[1]))
    try:
        fetch(KeeperEnvironment.read())
    except GanglineError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the parent reads it
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
