"""Lease of a run's driver: `lease.json` with holder, token and expiry, renewed by a thread of the driver.

The lease only keeps two drivers from working at the same time; safety comes from its token, which `record.store` checks
at every write. A killed driver of this machine is recognized by its process and replaced at once; the lease of one on
another machine has to expire.
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
from gangline.errors import CapacityError, GanglineError
from gangline.line.run.sigterm import exit_on_sigterm
from gangline.spec.codec import canonical, from_json
from gangline.storage.objects.protocol import ObjectStore, get_bounded

LEASE_SECONDS = 90.0
RENEW_SECONDS = 30.0
MOST_BYTES = 4096
_HOLDER = re.compile(r".*:(?P<space>[^:]*):(?P<pid>[0-9]{1,10}):(?P<start>[0-9]{1,20}):[^:]*")


class HeldError(CapacityError):
    """Another process drives this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The driver of a run and when its lease expires; the token fences off earlier drivers."""

    holder: str
    """`host:space:pid:start:random`; empty once released."""
    token: int
    """Grows by one with every holder."""
    expires: float
    """Seconds since the epoch, by the holder's clock; once released, the time of the release."""


def this_process() -> str:
    """This process as a holder; a name from which processes of this machine can tell whether it is alive."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{_process_space()}:{pid}:{procfs.start_time(pid) or 0}:{secrets.token_hex(3)}"


def read_lease(store: ObjectStore, prefix: str) -> Lease | None:
    """The lease of the run at `prefix`; raises IntegrityError if the object is not one."""
    blob = get_bounded(store, f"{prefix}/lease.json", most_bytes=MOST_BYTES)
    return None if blob is None else from_json(Lease, blob.data)


def is_held(lease: Lease | None, *, now: float) -> bool:
    """Whether a driver holds the lease: it is not expired and not that of a dead process of this machine."""
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
        at_least: Token in the record; the new one is larger.

    Raises:
        HeldError: Another process drives the run, or was faster.
    """
    key = f"{prefix}/lease.json"
    blob = store.get(key)
    existing = None if blob is None else from_json(Lease, blob.data)
    now = time.time()
    if existing is not None and is_held(existing, now=now):
        raise HeldError(_held_message(prefix, existing, now))
    token = max(existing.token if existing else 0, at_least) + 1
    lease = Lease(holder=holder, token=token, expires=now + LEASE_SECONDS)
    data = canonical(lease)
    won = store.put_if_absent(key, data) if blob is None else store.compare_and_set(key, data, blob.etag)
    if won is None:
        other = read_lease(store, prefix) or lease
        raise HeldError(_held_message(prefix, other, now))
    return lease


def renew_lease(store: ObjectStore, prefix: str, lease: Lease) -> bool:
    """Extend `lease`; False if another driver holds it now."""
    return _rewrite(store, prefix, lease, replace(lease, expires=time.time() + LEASE_SECONDS))


def release_lease(store: ObjectStore, prefix: str, lease: Lease) -> None:
    """Release `lease`, unless another driver holds it; the token stays, so that it keeps growing.

    `expires` becomes the time of the release: a sweep measures from it how long gangs have had no driver.
    """
    _rewrite(store, prefix, lease, replace(lease, holder="", expires=time.time()))


@contextmanager
def renewed_lease(
    store: ObjectStore, prefix: str, lease: Lease, *, on_problem: Callable[[str], None]
) -> Iterator[None]:
    """Renew the lease in the background while the block runs, then release it.

    SIGTERM releases it before the block is left (ADR 89). A failing store is reported to `on_problem` (from the
    renewing thread) and tried again; the block continues.
    """
    over = threading.Event()
    thread = threading.Thread(
        target=_renew_and_release, args=(over, store, prefix, lease, on_problem), name="lease", daemon=True
    )
    thread.start()
    try:
        with exit_on_sigterm(over.set):
            yield
    finally:
        over.set()
        thread.join()


def _renew_and_release(
    over: threading.Event, store: ObjectStore, prefix: str, lease: Lease, on_problem: Callable[[str], None]
) -> None:
    """Renew the lease until `over`, then release it, at once: the main thread may still be leaving its blocks."""
    while not over.wait(RENEW_SECONDS):
        try:
            if not renew_lease(store, prefix, lease):
                on_problem("another driver holds the lease now; this one stops at its next write")
                return
        except GanglineError as error:
            on_problem(f"the lease could not be renewed, trying again: {error}")
    try:
        release_lease(store, prefix, lease)
    except GanglineError as error:
        on_problem(f"the lease could not be released, it expires in {LEASE_SECONDS:.0f} s: {error}")


def _rewrite(store: ObjectStore, prefix: str, old: Lease, new: Lease) -> bool:
    key = f"{prefix}/lease.json"
    blob = store.get(key)
    if blob is None:
        return False
    stored = from_json(Lease, blob.data)
    if (stored.holder, stored.token) != (old.holder, old.token):
        return False
    return store.compare_and_set(key, canonical(new), blob.etag) is not None


def _held_message(prefix: str, lease: Lease, now: float) -> str:
    run = prefix.rsplit("/", 1)[-1]
    host, _, pid, *_ = lease.holder.split(":") if lease.holder else ("another machine", "", "unknown")
    seconds = max(0.0, lease.expires - now)
    return (
        f"{run} is driven by process {pid} on {host}; watch it: gangline follow {run}."
        f" If that process is dead, its lease expires in {seconds:.0f} s: run again then"
    )


def _process_space() -> str:
    """Eight hex digits for this boot and process namespace, inside which a process id is unique."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return "unknown"
    return sha256(f"{boot} {namespace}".encode()).hexdigest()[:8]
