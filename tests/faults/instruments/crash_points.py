"""Crash-point enumerator: kill a program before and after each durable effect, restart it, compare what it leaves.

A *durable effect* is a call that outlives the process: an object put, a part, a delete, a gang created. Effects pass a
few Protocols, so the points come from the code, not from a list: wrap what the program uses,

    plan = CrashPlan.from_environment()
    store = CountingStore(open_store(url), plan)
    launcher = Counting(LocalLauncher(...), plan, submit=lambda podset: podset.name, cancel=lambda name, **_: name)
    with plan.effect("fsync", "outbox"): ...                 # anything without a Protocol

and let `enumerate_crashes` run it as often as it has effects:

    found = enumerate_crashes(
        lambda folder: [sys.executable, str(PROGRAM), str(folder)],
        digest=lambda folder: digest_of(FolderStore(folder / "store")),
        keys=lambda folder: keys_of(FolderStore(folder / "store")),
        check=my_invariants,                                 # optional: raise AssertionError
        scratch=tmp_path,
    )
    assert found.num_effects == 17                           # a new effect is seen in review

The unbroken pass counts K effects and fails if the store holds a key that no effect wrote: something bypassed the
wrapper. Then for every k a fresh folder and a fresh process, that SIGKILLs itself *before* effect k, or *after* it and
before its answer is used; the restart, with the same command, must end with exit code 0 and the digest of the unbroken
run. `recoveries` adds pairs: a second kill at a random effect of the restart, drawn by `seed`.

A digest must leave out what may differ between runs: times, random words, process ids.
"""

import hashlib
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from gangline.storage.objects.protocol import Blob, Entry, Etag, ObjectStore, OpenUpload, Upload, list_all

When = Literal["before", "after"]
_VARIABLE = "GANGLINE_TEST_CRASH"


@dataclass
class CrashPlan:
    """Counts effects into `log`, one line each as it begins, and kills the own process at the one it was told."""

    log: Path
    at: int | None = None
    """Number of the fatal effect, from 1; None: only count."""
    when: When = "before"
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    @staticmethod
    def from_environment() -> "CrashPlan":
        when, at, log = os.environ[_VARIABLE].split(":", 2)
        return CrashPlan(Path(log), int(at) or None, "after" if when == "after" else "before")

    def environment(self) -> dict[str, str]:
        return {**os.environ, _VARIABLE: f"{self.when}:{self.at or 0}:{self.log}"}

    @contextmanager
    def effect(self, kind: str, name: str) -> Iterator[None]:
        """The block is one durable effect on `name`."""
        with self._lock:
            number = next(self._numbers)
            with self.log.open("a") as log:
                log.write(f"{kind} {name}\n")
        self._kill_at(number, "before")
        yield
        self._kill_at(number, "after")

    def _kill_at(self, number: int, when: When) -> None:
        if self.at == number and self.when == when:
            os.kill(os.getpid(), signal.SIGKILL)


class Counting:
    """Any object, with some of its methods counted: `Counting(launcher, plan, submit=lambda podset: podset.name)`.

    Each keyword names a method and says, from its arguments, what the effect touches.
    """

    def __init__(self, target: Any, plan: CrashPlan, **effects: Callable[..., str]) -> None:
        self._target, self._plan, self._effects = target, plan, effects

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name not in self._effects:
            return method

        def counted(*arguments: Any, **options: Any) -> Any:
            with self._plan.effect(name, self._effects[name](*arguments, **options)):
                return method(*arguments, **options)

        return counted


class CountingStore:
    """An ObjectStore whose every write is an effect of `plan`."""

    def __init__(self, store: ObjectStore, plan: CrashPlan) -> None:
        self._store, self._plan, self.url = store, plan, store.url

    def get(self, key: str, start: int = 0, size: int | None = None) -> Blob | None:
        return self._store.get(key, start, size)

    def head(self, key: str) -> Entry | None:
        return self._store.head(key)

    def put(self, key: str, data: bytes) -> Etag:
        with self._plan.effect("put", key):
            return self._store.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> Etag | None:
        with self._plan.effect("put_if_absent", key):
            return self._store.put_if_absent(key, data)

    def compare_and_set(self, key: str, data: bytes, expected: Etag) -> Etag | None:
        with self._plan.effect("compare_and_set", key):
            return self._store.compare_and_set(key, data, expected)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Entry]:
        return self._store.list(prefix, after, limit)

    def delete(self, key: str) -> None:
        with self._plan.effect("delete", key):
            self._store.delete(key)

    @contextmanager
    def upload(self, key: str) -> Iterator[Upload]:
        with self._plan.effect("upload", key):
            block = self._store.upload(key)
            upload = block.__enter__()
        counted = _CountingUpload(upload, self._plan, key)
        try:
            yield counted
        except BaseException as error:
            with self._plan.effect("abort", key):
                block.__exit__(type(error), error, error.__traceback__)
            raise
        counted.complete()
        block.__exit__(None, None, None)

    def open_uploads(self, prefix: str = "") -> Sequence[OpenUpload]:
        return self._store.open_uploads(prefix)

    def abort_upload(self, upload: OpenUpload) -> None:
        with self._plan.effect("abort", upload.key):
            self._store.abort_upload(upload)

    def presign(self, key: str, seconds: float) -> str:
        return self._store.presign(key, seconds)


class _CountingUpload:
    def __init__(self, upload: Upload, plan: CrashPlan, key: str) -> None:
        self._upload, self._plan, self._key, self._etag = upload, plan, key, ""
        self.upload_id = upload.upload_id

    def part(self, data: bytes) -> None:
        with self._plan.effect("part", self._key):
            self._upload.part(data)

    def complete(self) -> Etag:
        if not self._etag:
            with self._plan.effect("complete", self._key):
                self._etag = self._upload.complete()
        return self._etag

    def abort(self) -> None:
        with self._plan.effect("abort", self._key):
            self._upload.abort()


@dataclass(frozen=True)
class Enumeration:
    num_effects: int
    """K of the unbroken run."""
    num_crashes: int
    effects: tuple[str, ...]
    """`<kind> <name>` in order."""


class CrashFound(AssertionError):
    """A crash point after which the program does not come back to what the unbroken run leaves."""


def enumerate_crashes(
    command: Callable[[Path], Sequence[str]],
    *,
    digest: Callable[[Path], str],
    scratch: Path,
    keys: Callable[[Path], set[str]] = lambda _: set(),
    check: Callable[[Path], None] = lambda _: None,
    points: Sequence[int | str] | None = None,
    recoveries: int = 0,
    seed: int = 0,
    timeout_seconds: float = 120,
) -> Enumeration:
    """Run `command(folder)` unbroken, then once for each crash point; raise CrashFound at the first that is wrong.

    Args:
        command: Program that works in the folder; run again in it, it must finish what was begun.
        digest: Of what the program leaves in the folder, without times and random words.
        keys: What the store in the folder holds; each must have been named by an effect.
        check: Invariants, after every restart.
        points: Only these effects, to replay a failure or to take a sample: by number, or by how they begin, as
            `submit `, which is the first such effect wherever it stands.
        recoveries: Number of pairs with a second kill, in the restart.
    """
    run = _Runner(command, scratch, timeout_seconds)
    folder, effects = run.unbroken("unbroken")
    wanted = digest(folder)
    check(folder)
    if bypassed := keys(folder) - {effect.partition(" ")[2] for effect in effects}:
        raise CrashFound(f"written past the wrapper, so no crash point covers it: {sorted(bypassed)}")
    numbers = range(1, len(effects) + 1) if points is None else [_number(each, effects) for each in points]
    single = [(k, when, None) for k in numbers for when in ("before", "after")]
    pairs = _pairs(len(effects), recoveries, random.Random(seed))
    for k, when, again in [*single, *pairs]:
        where = f"killed {when} effect {k} of {len(effects)} ({effects[k - 1]})"
        where += f" and again at effect {again} of the restart (seed {seed})" if again else ""
        folder = run.crashed(f"{k}-{when}-{again or 0}", k, when, again, where)
        check(folder)
        if (found := digest(folder)) != wanted:
            raise CrashFound(f"{where}: the restart left {found}, the unbroken run {wanted}; look into {folder}")
    print(f"crash points: K = {len(effects)} effects, {len(single)} single kills, {len(pairs)} kills in recovery")
    return Enumeration(len(effects), len(single) + len(pairs), tuple(effects))


def digest_of(store: ObjectStore, *, ignore: Callable[[str], bool] = lambda _: False) -> str:
    """Digest of every key and its bytes, but those that `ignore` names."""
    total = hashlib.sha256()
    for entry in list_all(store, ""):
        if not ignore(entry.key) and (blob := store.get(entry.key)) is not None:
            total.update(f"{entry.key} {hashlib.sha256(blob.data).hexdigest()}\n".encode())
    return total.hexdigest()


def keys_of(store: ObjectStore) -> set[str]:
    return {entry.key for entry in list_all(store, "")}


def _number(point: int | str, effects: Sequence[str]) -> int:
    if isinstance(point, int):
        return point
    found = next((number for number, effect in enumerate(effects, 1) if effect.startswith(point)), None)
    if found is None:
        raise CrashFound(f"no effect begins with {point!r}; there are {sorted({each.split()[0] for each in effects})}")
    return found


def _pairs(num_effects: int, recoveries: int, draw: random.Random) -> list[tuple[int, When, int | None]]:
    whens: tuple[When, When] = ("before", "after")
    return [(draw.randint(1, num_effects), draw.choice(whens), draw.randint(1, num_effects)) for _ in range(recoveries)]


class _Runner:
    def __init__(self, command: Callable[[Path], Sequence[str]], scratch: Path, timeout_seconds: float) -> None:
        self._command, self._scratch, self._timeout_seconds = command, scratch, timeout_seconds

    def unbroken(self, name: str) -> tuple[Path, list[str]]:
        folder = self._folder(name)
        plan = CrashPlan(self._scratch / f"{name}.log")
        self._finish(folder, plan, "without any crash")
        effects = plan.log.read_text().splitlines() if plan.log.exists() else []
        if not effects:
            raise CrashFound("no effect was counted: is the program's store wrapped in a CountingStore?")
        return folder, effects

    def crashed(self, name: str, k: int, when: When, again: int | None, where: str) -> Path:
        folder = self._folder(name)
        if self._run(folder, CrashPlan(self._scratch / f"{name}.log", k, when)).returncode != -signal.SIGKILL:
            raise CrashFound(f"not {where}: the program ended first; its effects differ from run to run")
        if again is not None:  # a restart with fewer effects than that ends by itself, which is as good
            self._run(folder, CrashPlan(self._scratch / f"{name}.again.log", again))
        self._finish(folder, CrashPlan(self._scratch / f"{name}.restart.log"), where)
        return folder

    def _finish(self, folder: Path, plan: CrashPlan, where: str) -> None:
        ended = self._run(folder, plan)
        if ended.returncode != 0:
            raise CrashFound(f"{where}: the run ended with code {ended.returncode}:\n{ended.stdout[-3000:]}")

    def _run(self, folder: Path, plan: CrashPlan) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._command(folder),
            env=plan.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self._timeout_seconds,
            check=False,
        )

    def _folder(self, name: str) -> Path:
        folder = self._scratch / name
        folder.mkdir()
        return folder
