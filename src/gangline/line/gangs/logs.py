"""Logs of a run's gangs: the gang of a role, the value of `--since`, log lines that a pod stored."""

import io
import re
from collections.abc import Iterator, Sequence

from gangline.errors import UsageError
from gangline.launch.protocol import LogLine
from gangline.spec.identity import ROLES, gang_name, seed_gangs, worker_gang, worker_gangs
from gangline.spec.output_limits import MOST_LOG_BYTES
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SEED, _WORKER = "seed-", "worker-"
"""Prefixes of roles: of a program with another seed, and of a worker of a parameter server."""


def gang_of_role(record: Record, role: str, *, joined: Sequence[int] = ()) -> str:
    """Gang of a run's role; `joined` are numbers of workers that the run did not start.

    Raises:
        UsageError: Unknown role, or the run has started no gang.
    """
    own = next((each for each in ROLES if each == role), None)
    own_workers = worker_gangs(record)
    others = {f"{_WORKER}{worker}": gang for worker, gang in own_workers.items()}
    others |= {f"{_WORKER}{worker}": worker_gang(record.run.id, worker) for worker in joined if own_workers}
    others |= {f"{_SEED}{seed}": gang for seed, gang in seed_gangs(record).items()}
    if own is None and role not in others:
        wanted = ", ".join(["train", *others]) if others else "train, evaluate or prove"
        raise UsageError(f"wanted {wanted}, found --role {role}")
    if record.gang is None:
        trained = stage(record, "train").taken_from
        if trained is not None:
            raise UsageError(f"{record.run.id} took its training from {trained}: gangline logs {trained}")
        raise UsageError(f"{record.run.id} has started no gang yet; gangline show {record.run.id} shows its stages")
    if own is None:
        return others[role]
    return record.gang.name if own == "train" else gang_name(record.run.id, own)


def parse_since(text: str | None) -> float | None:
    """Seconds of `90s`, `5m`, `2h` or `1d`; raises UsageError for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text, re.ASCII)
    if match is None:
        raise UsageError(f"wanted a duration such as 90s, 5m, 2h or 1d, found --since {text}")
    return float(match[1]) * _UNITS[match[2]]


def lines_left(store: ObjectStore, record: Record, role: str, *, ranks: Sequence[int] | None) -> Iterator[LogLine]:
    """What the pods of a role left in the store, of some ranks or of all: a gang that was swept has nothing else."""
    for rank in range(record.plan.world_size if record.plan else 0) if ranks is None else ranks:
        for text in stored_lines(store, record.gang_prefix, role, rank):
            yield LogLine(rank=rank, text=text, source="store")


def _log_folder(prefix: str, role: str) -> str:
    if role.startswith(_SEED):
        return f"{prefix}/seeds/{role.removeprefix(_SEED)}"
    if role.startswith(_WORKER):
        return f"{prefix}/workers/{role.removeprefix(_WORKER)}"
    return prefix if role == "train" else f"{prefix}/{role}"


def stored_lines(store: ObjectStore, prefix: str, role: str, rank: int) -> Iterator[str]:
    """Lines of a rank's log that its pod stored below a run's gang prefix; none if it stored none.

    A larger log is cut after MOST_LOG_BYTES, and a last line says so.
    """
    key = f"{_log_folder(prefix, role)}/logs/{rank}.log"
    blob = store.get(key, 0, MOST_LOG_BYTES)
    if blob is None:
        return
    for line in io.StringIO(blob.data.decode(errors="replace")):
        yield line.rstrip("\r\n")
    if blob.size_bytes > MOST_LOG_BYTES:
        wanted, found = format_bytes(MOST_LOG_BYTES), format_bytes(blob.size_bytes)
        yield f"[gangline: {key} has {found}, shown are its first {wanted}]"
