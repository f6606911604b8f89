"""Profiles of a run in the store: request one, wait for it, list all."""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice

from gangline.errors import StillRunning, UsageError
from gangline.line.record.store import RecordStore
from gangline.spec.gang.profiling import MOST_RANKS, ProfileRequest, ProfileSummary, folder_key, request_key
from gangline.spec.output_limits import MOST_PROFILES, MOST_SUMMARY_BYTES, MOST_TRACE_BYTES
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.protocol import Entry, ObjectStore, get_bounded, list_all
from gangline.units import format_bytes

POLL_SECONDS = 1.0
_WINDOW = re.compile(r"\d{1,15}-\d{1,15}")
_TRACE, _SUMMARY = ".trace.json.gz", ".json"
_MEDIA = {_TRACE: "application/gzip", _SUMMARY: "application/json"}
_MOST_BYTES = {_TRACE: MOST_TRACE_BYTES, _SUMMARY: MOST_SUMMARY_BYTES}
_BLOCK_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One window of steps, with the summaries that ranks have written."""

    name: str
    """`10-12`."""
    prefix: str
    summaries: tuple[ProfileSummary, ...]
    """Summaries by rank."""


def request_profile(
    store: ObjectStore, record: Record, *, first: int, last: int, ranks: Sequence[int]
) -> ProfileRequest:
    """Store a request for the gang of a run; its ranks see it within seconds.

    Raises:
        UsageError: The run has ended, has no such rank or step, or does not train any more.
    """
    if _is_over(record):
        raise UsageError(
            f"{record.run.id} does not train any more; gangline run --again --profile A:B requests it at the start"
        )
    if record.plan is None:
        raise UsageError(f"{record.run.id} has no plan yet, so it has no ranks; try again when it trains")
    size, steps = record.plan.world_size, record.plan.steps
    if wrong := sorted(rank for rank in ranks if not 0 <= rank < size):
        raise UsageError(f"--rank {wrong[0]}: the gang has {size} ranks, 0 to {size - 1}")
    if len(set(ranks)) > MOST_RANKS:
        raise UsageError(f"wanted at most {MOST_RANKS} ranks, found {len(set(ranks))}; a few are enough")
    if first > steps:
        raise UsageError(f"--steps {first}:{last}: the run has {steps} steps")
    return write_profile_request(store, record, first=first, last=last, ranks=ranks)


def write_profile_request(
    store: ObjectStore, record: Record, *, first: int, last: int, ranks: Sequence[int]
) -> ProfileRequest:
    """Store what `request_profile` does, without checks, for a run that has no plan yet."""
    request = ProfileRequest(first=first, last=last, ranks=tuple(sorted(set(ranks))), word=secrets.token_hex(4))
    store.put(request_key(record.gang_prefix), request.to_json())
    return request


def wait_for_profile(
    store: ObjectStore,
    record: Record,
    request: ProfileRequest,
    *,
    seconds: float,
    on_progress: Callable[[int, int], None],
) -> Profile:
    """The answers to `request`, once all its ranks have written one, or the training is over.

    Args:
        store: Store of the run.
        record: Of the run.
        request: As it was stored.
        seconds: Wait at most so long.
        on_progress: Called with the number of answers and of ranks, when the first changes.

    Raises:
        UsageError: The training ended before the window.
        StillRunning: Not all answers came in time; they are written later.
    """
    deadline = time.monotonic() + seconds
    num_answers = -1
    while True:
        over = _is_over(RecordStore.of(store, record).read() or record)
        profile = _read(store, record, request.name)
        profile = replace(
            profile, summaries=tuple(summary for summary in profile.summaries if summary.word == request.word)
        )
        if len(profile.summaries) != num_answers:
            num_answers = len(profile.summaries)
            on_progress(num_answers, len(request.ranks))
        if num_answers == len(request.ranks) or (over and num_answers):
            return profile
        if over:
            raise UsageError(
                f"the training of {record.run.id} ended before the window; request it earlier, or run --again"
            )
        if time.monotonic() > deadline:
            raise StillRunning(f"no answer within {seconds:.0f} s; gangline profile {record.run.id} shows it later")
        time.sleep(POLL_SECONDS)


def read_profiles(store: ObjectStore, record: Record) -> tuple[Profile, ...]:
    """Every window that ranks have answered, in order of its first step."""
    names = sorted(
        {
            name
            for entry in list_all(store, f"{folder_key(record.gang_prefix)}/")
            if _is_summary(entry.key) and _WINDOW.fullmatch(name := entry.key.split("/")[-2])
        },
        key=lambda name: [int(part) for part in name.split("-")],
    )
    return tuple(_read(store, record, name) for name in names)


def profile_artifacts(store: ObjectStore, run_prefix: str) -> tuple[tuple[Artifact, ...], tuple[str, ...]]:
    """Summaries and traces as artifacts of a record; and the reasons why others are left out."""
    artifacts: list[Artifact] = []
    left_out: list[str] = []
    for entry in list_all(store, f"{folder_key(run_prefix)}/"):
        kind = next((end for end in (_TRACE, _SUMMARY) if entry.key.endswith(end)), None)
        if kind is None or entry.key == request_key(run_prefix):
            continue
        if len(artifacts) == MOST_PROFILES:
            left_out.append(f"a run keeps at most {MOST_PROFILES}")
            break
        if entry.size_bytes > _MOST_BYTES[kind]:
            wanted, size = format_bytes(_MOST_BYTES[kind]), format_bytes(entry.size_bytes)
            left_out.append(f"{entry.key}: wanted at most {wanted}, found {size}")
            continue
        digest, size_bytes = _digest(store, entry)
        artifacts.append(
            Artifact(kind="profile", key=entry.key, media_type=_MEDIA[kind], size_bytes=size_bytes, sha256=digest)
        )
    return tuple(artifacts), tuple(left_out)


def _digest(store: ObjectStore, entry: Entry) -> tuple[str, int]:
    """SHA-256 and size of the object, up to the size in the listing."""
    digest, size = sha256(), 0
    for start in range(0, entry.size_bytes, _BLOCK_BYTES):
        blob = store.get(entry.key, start, min(_BLOCK_BYTES, entry.size_bytes - start))
        if blob is None:
            break
        digest.update(blob.data)
        size += len(blob.data)
    return digest.hexdigest(), size


def trace_key(profile: Profile, summary: ProfileSummary) -> str | None:
    """Key of the trace of one rank; None if it was too large to keep."""
    return f"{profile.prefix}/{summary.trace}" if summary.trace else None


def _read(store: ObjectStore, record: Record, name: str) -> Profile:
    prefix = f"{folder_key(record.gang_prefix)}/{name}"
    keys = (entry.key for entry in list_all(store, f"{prefix}/") if _is_summary(entry.key))
    blobs = (get_bounded(store, key, most_bytes=MOST_SUMMARY_BYTES) for key in islice(keys, MOST_RANKS))
    summaries = [ProfileSummary.from_json(blob.data) for blob in blobs if blob is not None]
    return Profile(name=name, prefix=prefix, summaries=tuple(sorted(summaries, key=lambda summary: summary.rank)))


def _is_summary(key: str) -> bool:
    name = key.rsplit("/", 1)[-1]
    return name.startswith("rank-") and name.endswith(_SUMMARY) and not name.endswith(_TRACE)


def _is_over(record: Record) -> bool:
    train = record.stages.get("train")
    return record.run.state == "ended" or (train is not None and train.state not in {"waiting", "running"})
