"""Upload of the output folder of a gang to the store while it runs: every 30 s, and once more when its keeper ends.

It runs as a separate process, so that a slow store never delays a keeper. Failed writes are retried without limit.
Files of lines are cut after their last complete line; those that the runtime writes are sent in parts
(`storage.objects.growing_file`), so that a long training does not upload its old lines again.
"""

import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gangline.errors import StorageError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.gang_inputs import secret_environ, secret_values
from gangline.keeper.ipc.signals import FINISH_SIGNAL, die_with_parent
from gangline.keeper.logs.log_files import last_bytes
from gangline.sanitize import CONCEALED
from gangline.spec.output_limits import MOST_LOG_BYTES
from gangline.spec.plan import Plan
from gangline.storage.objects.growing_file import GrowingFileWriter
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

EVERY_SECONDS = 30.0
LAST_SECONDS = 60.0
"""Time for the last upload."""
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, FINISH_SIGNAL}
"""Blocked before this process starts, so that an early signal waits until it is handled, and SIGTERM is not."""
LOG_BYTES = MOST_LOG_BYTES - 64
"""Last bytes of each rank's log that are uploaded; the line that says how much is gone comes on top."""
_PART_BYTES = 16 << 20
_GROWS = re.compile(r"metrics\.jsonl|ranks/\d+\.jsonl")


class OutputMirror:
    """Uploads changed files of a folder."""

    def __init__(self, store: ObjectStore, folder: Path, prefix: str, *, skip: frozenset[str] = frozenset()) -> None:
        self._store, self._folder, self._prefix = store, folder, prefix
        self.skip = skip
        """Paths below the folder that another node uploads."""
        self._done: dict[str, tuple[int, int]] = {}
        self._growing: dict[str, GrowingFileWriter] = {}

    def sync(self) -> int:
        """Upload changed files; returns their number. Raises `StorageError`, and may be called again."""
        written = 0
        for path in sorted(self._folder.rglob("*")):
            name = path.relative_to(self._folder).as_posix()
            if path.name.startswith(".") or name in self.skip or not path.is_file() or path.is_symlink():
                continue
            status = path.stat()
            mark = (status.st_size, status.st_mtime_ns)
            if self._done.get(name) != mark:
                self._write(name, path)
                self._done[name] = mark
                written += 1
        return written

    def _write(self, name: str, path: Path) -> None:
        key = f"{self._prefix}/{name}"
        if _GROWS.fullmatch(name):
            self._growing.setdefault(name, GrowingFileWriter(self._store, key)).send(path)
        else:
            self._put(key, path)

    def _put(self, key: str, path: Path) -> None:
        size = _whole_lines(path) if path.suffix == ".jsonl" else path.stat().st_size
        with path.open("rb") as file:
            if size <= _PART_BYTES:
                self._store.put(key, file.read(size))
                return
            with self._store.upload(key) as upload:
                while size > 0:
                    data = file.read(min(size, _PART_BYTES))
                    upload.part(data)
                    size -= len(data)


def output_prefix(plan: Plan) -> str:
    """Prefix of the out folder of a gang in the store."""
    return plan.output_prefix


def log_key(prefix: str, rank: int) -> str:
    """Key of the end of a rank's log in the store, after its gang or its pod has ended."""
    return f"{prefix}/logs/{rank}.log"


def put_logs(store: ObjectStore, environment: KeeperEnvironment, prefix: str) -> None:
    """Upload the end of the log of each rank of this node. Raises `StorageError`, and may be called again."""
    others = _files_of_others(environment)
    secrets = secret_values(secret_environ(environment.key_file.parent))
    for path in sorted((environment.home / "logs").glob("*.log")):
        is_mine = path.stem.isdecimal() and f"ranks/{path.stem}.jsonl" not in others
        if is_mine and (data := last_bytes(path, LOG_BYTES)):
            for secret in secrets:
                data = data.replace(secret.encode(), CONCEALED.encode())
            store.put(log_key(prefix, int(path.stem)), data)


def main() -> int:
    """Run until FINISH_SIGNAL; returns 0 when everything is in the store, otherwise the exit code of `StorageError`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    die_with_parent(int(sys.argv[1]))
    environment = KeeperEnvironment.read()
    store = open_store(
        environment.store, credentials=environment.store_credentials_file, socket_folder=environment.store_socket
    )
    prefix = output_prefix(Plan.from_json(environment.plan.read_bytes()))
    mirror = OutputMirror(store, environment.out, prefix)

    def sync() -> None:
        mirror.skip = _files_of_others(environment)
        mirror.sync()

    while signal.sigtimedwait({FINISH_SIGNAL}, EVERY_SECONDS) is None:
        _try(sync)
    return _finish([sync, lambda: put_logs(store, environment, prefix)])


def _finish(steps: Sequence[Callable[[], object]]) -> int:
    """Retry each step until it succeeds, for at most LAST_SECONDS in all; returns the exit code."""
    deadline = time.monotonic() + LAST_SECONDS
    for step in steps:
        while not _try(step):
            if time.monotonic() > deadline:
                return StorageError.exit_code
            time.sleep(1.0)
    return 0


def _try(step: Callable[[], object]) -> bool:
    try:
        step()
    except StorageError as error:
        print(f"cannot upload, retrying later: {error}", file=sys.stderr, flush=True)  # noqa: T201  # its log
        return False
    return True


def _files_of_others(environment: KeeperEnvironment) -> frozenset[str]:
    """Files that keepers of other nodes upload: nodes of one machine share one folder.

    Each node uploads the files of its ranks, node 0 the rest as well. Every node uploads those of ranks whose node has
    no running keeper: an elastic gang gives such ranks to others.
    """
    local, node = environment.local_world_size, environment.node_rank
    others = {other for other in range(environment.num_nodes) if other != node and _has_keeper(environment.home, other)}
    files = {f"ranks/{rank}.jsonl" for rank in range(environment.world_size) if rank // local in others}
    return frozenset(files | ({"metrics.jsonl", "result.json"} if node else set()))


def _has_keeper(home: Path, node: int) -> bool:
    return (home / f"keeper-{node}.json").exists() and not (home / f"exit-{node}.json").exists()


def _whole_lines(path: Path) -> int:
    """Size up to the last complete line: a rank may be writing the next one."""
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(0, size - _PART_BYTES))
        tail = file.read(_PART_BYTES)
    return size - (len(tail) - tail.rfind(b"\n") - 1)


if __name__ == "__main__":
    sys.exit(main())
