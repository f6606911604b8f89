"""Effective line of a commit, read in a separate process with limits, because its content is not trusted.

That process has a share of memory and of time, and runs nothing of the commit. It answers in one JSON text, which is
read in bounds as well.
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError, GanglineError
from gangline.git.bounded_process import ProcessLimits, run_bounded
from gangline.git.repository import Repository
from gangline.line.request.run_request import CommitOrigin, resolve_request
from gangline.sanitize import clean
from gangline.serve.database.types import Order
from gangline.spec import identity
from gangline.spec.codec import Document, canonical
from gangline.spec.config.line import Line
from gangline.spec.config.load import line_digest, load_line_text
from gangline.spec.config.toml_text import MOST_BYTES
from gangline.spec.record import CommitInfo
from gangline.units import format_bytes

READ_SECONDS = 180.0
CPU_SECONDS = 20
MEMORY_BYTES = 800_000_000
MAX_ANSWER_BYTES = 4 << 20
_PASSED = ("PATH", "HOME", "TMPDIR", "PYTHONPATH")
"""Variables that the child inherits: no key, no token."""
_LIMIT_SIGNALS = {-signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGABRT}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunIdentity(Document):
    """Run id without the attempt, shared by equal requests."""

    project: str
    commit: CommitInfo
    line: str
    """Digest of the effective line."""

    def run_id(self, attempt: int) -> str:
        return identity.run_id(self.project, self.commit, line=self.line, attempt=attempt)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitContent(Document):
    """What an order is about."""

    line: Line | None
    """None: the commit has no line.toml, or one that does not hold."""
    identity: RunIdentity | None
    """None: nothing can be run."""
    problem: str = ""
    """Why there is no line or no valid request."""
    age_seconds: float = 0.0
    """Time since the commit was made, by its own date."""

    def require_line(self) -> Line | None:
        """None where the commit has none; raises ConfigError where it does not hold."""
        if self.line is None and self.problem:
            raise ConfigError(self.problem)
        return self.line

    def require_identity(self) -> RunIdentity:
        """Raises ConfigError where nothing can be run."""
        if self.identity is None:
            raise ConfigError(self.problem)
        return self.identity


def read_commit(
    place: Path,
    commit: str,
    order: Order,
    *,
    environ: Mapping[str, str],
    is_over: Callable[[], bool] = lambda: False,
) -> CommitContent:
    """Read what `order` runs of `commit`, which is checked out at `place`, in a process with limits.

    Args:
        environ: Of the service; the process gets `PATH` and the like, and no key.

    Raises:
        ConfigError: Reading it takes more time or memory than the limits allow.
        GanglineError: It could not be read now.
        ProcessStopped: `is_over`.
    """
    request = canonical({"overrides": order.overrides, **_origin(order)}).decode()
    command = [sys.executable, "-P", "-m", __name__, str(place), commit, request]
    passed = {name: environ[name] for name in _PASSED if name in environ}
    bounds = ProcessLimits(
        seconds=READ_SECONDS, most_bytes=MAX_ANSWER_BYTES, memory_bytes=MEMORY_BYTES, cpu_seconds=CPU_SECONDS,
        file_bytes=0, is_over=is_over,
    )  # fmt: skip
    done = run_bounded(command, name="reading the line", folder=Path("/"), environ=passed, bounds=bounds)
    if done.returncode in _LIMIT_SIGNALS:
        raise ConfigError(_limit_message(commit))
    if done.returncode:
        message = clean(done.stderr.decode(errors="replace")[-300:], limit=300)
        raise GanglineError(f"commit {commit[:12]} could not be read: {message or f'exit {done.returncode}'}")
    return CommitContent.from_json(done.stdout)


def read_line(place: Path, commit: str, overrides: tuple[str, ...] = ()) -> Line | None:
    """The effective line of a commit; None where it has no line.toml.

    Raises:
        ConfigError: It has one that does not hold.
    """
    repository = Repository.at(place)
    tree = repository.tree(commit)
    data = repository.file(tree, "line.toml", most_bytes=MOST_BYTES)
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("line.toml: wanted UTF-8 text, found other bytes; save the file as UTF-8") from error
    return load_line_text(text, file="line.toml", overrides=overrides, reader=lambda path: repository.file(tree, path))


def _origin(order: Order) -> dict[str, object]:
    return {"branch": order.branch, "pull_request": order.pull_request, "trust": order.trust}


def _limit_message(commit: str) -> str:
    return (
        f"commit {commit[:12]}: line.toml and the module of its task were not read within {CPU_SECONDS} s and"
        f" {format_bytes(MEMORY_BYTES)}; write less in them"
    )


def _read(place: Path, commit: str, request: dict[str, object]) -> CommitContent:
    """Read a commit; runs in the process of its own."""
    listed = request.pop("overrides")
    overrides = tuple(map(str, listed)) if isinstance(listed, list) else ()
    age_seconds = Repository.at(place).age_seconds(commit)
    line: Line | None = None
    try:
        line = read_line(place, commit, overrides)
        origin = CommitOrigin(**request)  # type: ignore[arg-type]  # as `_origin` wrote it
        if line is None:
            return CommitContent(line=None, identity=None, age_seconds=age_seconds)
        run_request = resolve_request(place, commit=commit, overrides=overrides, strategy=None, origin=origin)
    except ConfigError as error:
        return CommitContent(line=line, identity=None, problem=str(error)[:8000], age_seconds=age_seconds)
    except MemoryError:
        return CommitContent(line=None, identity=None, problem=_limit_message(commit), age_seconds=age_seconds)
    own = RunIdentity(
        project=run_request.line.project.name, commit=run_request.commit_identity, line=line_digest(run_request.line)
    )
    return CommitContent(line=line, identity=own, age_seconds=age_seconds)


def main() -> int:
    """Arguments: the folder, the commit, what is asked of it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the git that it asks ends with it
    place, commit, request = sys.argv[1:]
    try:
        answer = _read(Path(place), commit, json.loads(request))
    except GanglineError as error:
        sys.stderr.write(str(error))
        return error.exit_code
    sys.stdout.buffer.write(answer.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
