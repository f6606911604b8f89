"""The folder of a stack: its files, its state between two `up` commands, its lock."""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gangline.errors import CapacityError, ConfigError, storage_errors
from gangline.storage.site_paths import home


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A process that we started: its pid alone could be somebody else's by now."""

    pid: int
    started: int
    """Clock ticks from boot, as in `procfs.start_time`."""
    asked: str
    """Digest of the words, variables and files that it was started with: if they changed, it is restarted."""


@dataclass
class StackState:
    """What `up` knows of its last call."""

    ports: dict[str, int] = field(default_factory=dict)
    running: dict[str, RunningServer] = field(default_factory=dict)
    """Servers in the order in which they were started."""
    s3: str = ""
    """Kind of the S3 server whose data lie here."""


@dataclass(frozen=True, slots=True)
class StackHome:
    """Folder of one stack, closed to others."""

    folder: Path
    repo: Path

    @classmethod
    def of(cls, repo: Path) -> "StackHome":
        """The stack of a model repository."""
        return cls(repo / ".gangline" / "up", repo)

    @property
    def site(self) -> Path:
        """The site file that names the servers."""
        return self.folder / "site.toml"

    @property
    def targets(self) -> Path:
        """Where gangs and drivers of this site say what may be scraped."""
        return self.folder / "targets"

    @property
    def boards(self) -> Path:
        """Folder of Grafana's boards."""
        return self.folder / "boards"

    def data(self, member: str) -> Path:
        """Data folder of a server."""
        return self.folder / "data" / member

    def log(self, member: str) -> Path:
        """File that gets the output of a server."""
        return self.folder / f"{member}.log"

    def make(self) -> None:
        """The folder: git ignores it, others of this machine may not look inside."""
        with storage_errors(home(self.repo)):
            self.folder.mkdir(exist_ok=True)
            self.folder.chmod(0o700)

    def secret(self, name: str, make: str | None = None) -> Path:
        """File of a secret, made at first use: `make`, or 32 random characters."""
        path = self.folder / name
        if not path.exists():
            write_private(path, make or secrets.token_hex(16))
        return path

    def read(self) -> StackState:
        """Raises ConfigError where the file is no state of ours; what to do is said."""
        path = self.folder / "state.json"
        if not path.exists():
            return StackState()
        try:
            plain = json.loads(path.read_text("utf-8"))
            running = {name: RunningServer(**each) for name, each in plain["running"].items()}
            ports = {name: int(port) for name, port in plain["ports"].items()}
            return StackState(ports, running, str(plain["s3"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"wanted the state of a local stack, found something else in {path} ({error}); "
                "stop its servers by hand, then gangline down --forget removes the folder"
            ) from error

    def write(self, state: StackState) -> None:
        write_private(self.folder / "state.json", json.dumps(asdict(state), indent=2))

    @contextmanager
    def held(self) -> Iterator[None]:
        """The block is the only one that changes this stack.

        Raises:
            CapacityError: Another `up` or `down` is at it.
        """
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CapacityError(
                    f"another gangline up or down works on {self.folder}; wait until it has ended, then ask again"
                ) from error
            yield


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and readable by this user alone from its first byte on."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
