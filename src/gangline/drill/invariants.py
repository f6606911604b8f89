"""Invariants that hold after any fault, as far as a drill can check them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from gangline import procfs
from gangline.drill.evaluate import InvariantResult
from gangline.drill.history import DrillHistory, steps_backwards
from gangline.errors import GanglineError, IntegrityError
from gangline.line.run import lease
from gangline.registry.promote import verify_alias
from gangline.registry.versions import Alias, list_versions, read_version, version_digest
from gangline.signing.keys import PublicKey
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore, list_all

_PIECE_BYTES = 1 << 20


def invariants(
    record: Record,
    *,
    home: Path,
    store: ObjectStore,
    model: str,
    keys: Mapping[str, PublicKey],
    secrets: Iterable[bytes],
    now: float,
) -> tuple[InvariantResult, ...]:
    """Check I1 to I6 of a drilled run; I3 is about git hooks, which a drill does not see.

    Args:
        record: The current record.
        home: Folder of the gang.
        store: Of the run.
        model: Name of the published model.
        keys: Trusted keys by id.
        secrets: Values that must not appear in record or files.
        now: Seconds since the epoch.
    """
    return (
        _held("I1", lambda: _unpublished(store, model, record.run.id)),
        _held("I2", lambda: _promoted_whole(store, model, keys)),
        InvariantResult(name="I3", state="-", text="no hook here"),
        _released(record, home, store, now),
        _held("I5", lambda: _never_back(home)),
        _held("I6", lambda: _no_secret(home, record, secrets)),
    )


def _held(name: str, look: Callable[[], None]) -> InvariantResult:
    try:
        look()
    except GanglineError as error:
        return InvariantResult(name=name, state="broken", text=str(error))
    return InvariantResult(name=name, state="held")


def _unpublished(store: ObjectStore, model: str, run: str) -> None:
    made = [version.version for version in list_versions(store, model) if version.run == run]
    if made:
        raise IntegrityError(f"the drilled run became {model} {made[0]}")


def _promoted_whole(store: ObjectStore, model: str, keys: Mapping[str, PublicKey]) -> None:
    for entry in list_all(store, f"models/{model}/aliases/"):
        blob = store.get(entry.key)
        if blob is None:
            continue
        alias = Alias.from_json(blob.data)
        verify_alias(alias, keys)
        version = read_version(store, model, alias.version)
        if version is None or version_digest(version) != alias.version_digest:
            raise IntegrityError(f"{entry.key} points at {model} {alias.version}, which is not what was promoted")


def _released(record: Record, home: Path, store: ObjectStore, now: float) -> InvariantResult:
    """Invariant I4: after its end a run has no processes, no driver and no open uploads."""
    if record.run.state != "ended":
        return InvariantResult(name="I4", state="pending", text="the run is still open")
    left = [f"process {pid}" for pid in procfs.with_variable("GANGLINE_HOME", str(home))]
    left += [f"upload of {upload.key}" for upload in store.open_uploads(f"{record.prefix}/")]
    if lease.is_held(lease.read_lease(store, record.prefix), now=now):
        left.append("the lease")
    return InvariantResult(name="I4", state="broken" if left else "held", text=", ".join(left))


def _never_back(home: Path) -> None:
    if found := steps_backwards(DrillHistory.read(home)):
        raise IntegrityError(found[0])


def _no_secret(home: Path, record: Record, secrets: Iterable[bytes]) -> None:
    wanted = [each for value in secrets for each in spellings(value)]
    if any(each in record.to_json() for each in wanted):
        raise IntegrityError("a secret is in the record")
    for path in _written(home):
        if _holds(path, wanted):
            raise IntegrityError(f"a secret is in {path.relative_to(home)}")


def spellings(value: bytes) -> Iterator[bytes]:
    """Encodings of `value` to search for: raw, hex, base64; none of a value under 8 bytes."""
    import base64

    if len(value) >= 8:
        yield from (value, value.hex().encode(), base64.b64encode(value), base64.urlsafe_b64encode(value))


def _written(home: Path) -> Iterator[Path]:
    """Files of ranks, keepers and launcher, without the folder for secrets."""
    for path in sorted(home.rglob("*")):
        inside = path.relative_to(home).parts
        if path.is_file() and not path.is_symlink() and inside[0] not in {"secrets", "code", "data", "tmp", "home"}:
            yield path


def _holds(path: Path, wanted: list[bytes]) -> bool:
    """Whether one of `wanted` is in the file, read in pieces that overlap by the longest value."""
    overlap = max(map(len, wanted), default=1) - 1
    tail = b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            text = tail + piece
            if any(each in text for each in wanted):
                return True
            tail = text[-overlap:] if overlap else b""
    return False
