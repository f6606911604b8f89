"""Who drives a run: `lease.json` with holder, token and expiry, renewed by a thread while the driver lives.

The lease is a hint that keeps two drivers from working at once; safety is the token, which `record_store` checks at
every write. A holder on this machine is asked for by its process, so a killed driver is replaced at once; one on
another machine is waited for until its lease has expired.
"""

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from gangline import procfs
from gangline.errors import CapacityError, GanglineError, StorageError
from gangline.spec.codec import canonical, from_json
from gangline.storage.objects.protocol import ObjectStore, get_bounded

LEASE_SECONDS = 90.0
RENEW_SECONDS = 30.0
MOST_BYTES = 4096
_HOLDER = re.compile(r".*:(?P<space>[^:]*):(?P<pid>[0-9]{1,10}):(?P<start>[0-9]{1,20}):[^:]*")


class HeldError(CapacityError):
    """Somebody drives this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Who drives a run, until when; the token fences off whoever held it before."""

    holder: str
    """`host:space:pid:start:word`; empty once released."""
    token: int
    """Grows by one with every holder."""
    expires: float
    """Seconds since the epoch, by the holder's clock; of one that is released, when it was."""


def this_process() -> str:
    """A holder's name that tells, on this machine, whether it still lives."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{_process_space()}:{pid}:{procfs.start_time(pid) or 0}:{secrets.token_hex(3)}"


def read_lease(store: ObjectStore, prefix: str) -> Lease | None:
    """Who drives the run at `prefix`; raises IntegrityError where the object is no lease."""
    blob = get_bounded(store, f"{prefix}/lease.json", most_bytes=MOST_BYTES)
    return None if blob is None else from_json(Lease, blob.data)


def is_held(lease: Lease | None, *, now: float) -> bool:
    """Does somebody drive? A dead process of this machine does not, whatever the lease says."""
    if lease is None or not lease.holder or lease.expires <= now:
        return False
    match = _HOLDER.fullmatch(lease.holder)
    is_here = match is not None and match["space"] == _process_space()
    return match is None or not is_here or procfs.is_alive(int(match["pid"]), int(match["start"]))


def acquire_lease(store: ObjectStore, prefix: str, *, holder: str, at_least: int) -> Lease:
    """Become the driver, with a token above every earlier one.

    Args:
        store: Where the run lies.
        prefix: Of the run.
        holder: Name from `this_process`.
        at_least: Token that stands in the record; the new one is larger.

    Raises:
        HeldError: Somebody drives, or was faster just now.
    """
    key = f"{prefix}/lease.json"
    blob = store.get(key)
    standing = None if blob is None else from_json(Lease, blob.data)
    now = time.time()
    if standing is not None and is_held(standing, now=now):
        raise HeldError(_busy(prefix, standing, now))
    token = max(standing.token if standing else 0, at_least) + 1
    lease = Lease(holder=holder, token=token, expires=now + LEASE_SECONDS)
    data = canonical(lease)
    won = store.put_if_absent(key, data) if blob is None else store.compare_and_set(key, data, blob.etag)
    if won is None:
        other = read_lease(store, prefix) or lease
        raise HeldError(_busy(prefix, other, now))
    return lease


def renew_lease(store: ObjectStore, prefix: str, lease: Lease) -> bool:
    """Prolong `lease`; False when another holds it by now."""
    return _rewrite(store, prefix, lease, replace(lease, expires=time.time() + LEASE_SECONDS))


def release_lease(store: ObjectStore, prefix: str, lease: Lease) -> None:
    """Let go, unless another has it already; the token stays, so that it keeps growing.

    The time stays, too: sweepers count from it how long nobody has followed the gangs of a run.
    """
    _rewrite(store, prefix, lease, replace(lease, holder="", expires=time.time()))


@contextmanager
def renewed_lease(
    store: ObjectStore, prefix: str, lease: Lease, *, on_trouble: Callable[[str], None]
) -> Iterator[None]:
    """Renew in the background while the block runs, then release.

    A store that fails meanwhile is told to `on_trouble` (from the renewing thread) and tried again: work goes on.
    """
    over = threading.Event()
    thread = threading.Thread(
        target=_renew_until, args=(over, store, prefix, lease, on_trouble), name="lease", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        try:
            release_lease(store, prefix, lease)
        except StorageError as error:
            on_trouble(f"the lease could not be released, it expires in {LEASE_SECONDS:.0f} s: {error}")


def _renew_until(
    over: threading.Event, store: ObjectStore, prefix: str, lease: Lease, on_trouble: Callable[[str], None]
) -> None:
    while not over.wait(RENEW_SECONDS):
        try:
            if not renew_lease(store, prefix, lease):
                on_trouble("another driver holds the lease by now; this one stops at its next write")
                return
        except GanglineError as error:
            on_trouble(f"the lease could not be renewed, trying again: {error}")


def _rewrite(store: ObjectStore, prefix: str, mine: Lease, wanted: Lease) -> bool:
    key = f"{prefix}/lease.json"
    blob = store.get(key)
    if blob is None:
        return False
    standing = from_json(Lease, blob.data)
    if (standing.holder, standing.token) != (mine.holder, mine.token):
        return False
    return store.compare_and_set(key, canonical(wanted), blob.etag) is not None


def _busy(prefix: str, lease: Lease, now: float) -> str:
    run = prefix.rsplit("/", 1)[-1]
    host, _, pid, *_ = lease.holder.split(":") if lease.holder else ("somebody", "", "")
    left = max(0.0, lease.expires - now)
    return (
        f"{run} is driven by process {pid} on {host}; watch it: gangline follow {run}."
        f" If that one is dead, its lease ends in {left:.0f} s: run again then"
    )


def _process_space() -> str:
    """Eight letters for this boot and process namespace: only inside them does a process id mean a process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return "unknown"
    return sha256(f"{boot} {namespace}".encode()).hexdigest()[:8]
