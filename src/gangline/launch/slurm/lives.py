"""Files of a gang's job, next to those of a local gang, and the start of each of its lives on the first server.

    job.sbatch  start.json  life.json  lives/<n>/exit-<node>.json

A job that Slurm puts back into the queue begins another life in the same folder: ends and states of the keepers before
it are set aside, generations count on, and the deadline counts what was used.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError, GanglineError
from gangline.fabric.placement.order import order_servers
from gangline.fabric.topology.inventory import Group
from gangline.launch.local.folder import GangFolder, write_file
from gangline.launch.sandbox.engines import SandboxCommand
from gangline.spec.codec import Document, from_json
from gangline.spec.config.server_ranges import expand_servers
from gangline.spec.gang.podset import PlacedServer, PodSet
from gangline.spec.gang.status import FIRST_GENERATION, GangEnd
from gangline.storage.folder.safe_paths import read_below

START, LIFE = "start.json", "life.json"
MASTER, DEADLINE, DEVICES = "@MASTER_ADDR@", "@GANGLINE_DEADLINE_SECONDS@", "@CUDA_VISIBLE_DEVICES@"
"""Words in the commands of keepers for what is known when the job has its servers."""
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperCommand:
    """How the keeper of a node is started on its server."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: str
    reports_pid: bool = False

    @staticmethod
    def of(command: SandboxCommand) -> "KeeperCommand":
        """The same as data."""
        return KeeperCommand(
            argv=command.argv, environ=dict(command.environ), cwd=str(command.cwd), reports_pid=command.reports_pid
        )

    def filled(self, values: Mapping[str, str | None]) -> "KeeperCommand":
        """The command with each word of `values` replaced; an assignment of a word without a value is left out."""

        def fill(text: str) -> str | None:
            for word, value in values.items():
                if text == word or text.endswith(f"={word}"):
                    return None if value is None else text.replace(word, value)
            return text

        argv = tuple(word for each in self.argv if (word := fill(each)) is not None)
        environ = {name: value for name, each in self.environ.items() if (value := fill(each)) is not None}
        return KeeperCommand(argv=argv, environ=environ, cwd=self.cwd, reports_pid=self.reports_pid)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmStart(Document):
    """What the servers of a job need to start its keepers; it holds no secret."""

    commands: tuple[KeeperCommand, ...]
    """Commands by node rank."""
    groups: tuple[Group, ...] = ()
    """Groups of the stated network; empty: none is stated, and node ranks follow Slurm's order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmLife(Document):
    """One start of a job."""

    life: int
    """Number of the start, from 1."""
    job: str
    began: float
    """Seconds since the epoch."""
    placed: tuple[PlacedServer, ...]
    """Servers in node-rank order."""
    spent_seconds: float = 0.0
    """Time of the lives before, which the deadline of the gang includes."""
    generation: int = 0
    """First generation of its ranks."""
    said: str = ""
    """Why the life before ended; empty: this is the first."""
    saved_step: int | None = None
    """What the life before had saved; None: not known."""

    @property
    def servers(self) -> tuple[str, ...]:
        """Names in node-rank order."""
        return tuple(server.name for server in self.placed)


def read_life(folder: GangFolder) -> SlurmLife | None:
    """The current or last life of the job; None: it has not started yet."""
    try:
        return SlurmLife.from_json((folder.home / LIFE).read_bytes())
    except FileNotFoundError:
        return None


def read_start(folder: GangFolder) -> SlurmStart:
    """How its keepers are started."""
    return SlurmStart.from_json((folder.home / START).read_bytes())


def earlier_ends(folder: GangFolder) -> list[list[GangEnd]]:
    """Ends of the keepers in each life before the last one."""
    lives = sorted((folder.inside / "lives").glob("*"), key=lambda path: int(path.name) if path.name.isdecimal() else 0)
    return [list(_ends_in(folder, path)) for path in lives]


def _ends_in(folder: GangFolder, path: Path) -> Iterator[GangEnd]:
    for file in sorted(path.glob("exit-*.json")):
        with suppress(GanglineError):  # a gang in a sandbox may write what it likes there
            if data := read_below(folder.inside, file):
                yield from_json(GangEnd, data)


def begin_life(folder: GangFolder, *, job: str, servers: tuple[str, ...], now: float) -> SlurmLife:
    """Set aside what the life before left, and write the servers of this one in node-rank order."""
    podset, former = folder.podset(), read_life(folder)
    if len(servers) != podset.num_nodes:
        raise ConfigError(f"job {job}: wanted {podset.num_nodes} servers, found {len(servers)}: {','.join(servers)}")
    ends: list[GangEnd] = []
    generation = 0
    if former is not None:
        ends, generation = _set_aside(folder, podset, former.life)
    speaker = next((end for end in ends if end.reason), None)
    spent_seconds = max((end.allocated_seconds for end in ends), default=0.0) / podset.procs_per_node
    pipeline = podset.placement.pipeline if podset.placement else None
    life = SlurmLife(
        life=former.life + 1 if former else 1,
        job=job,
        began=now,
        placed=order_servers(servers, read_start(folder).groups, tile=podset.tile, pipeline=pipeline),
        spent_seconds=former.spent_seconds + spent_seconds if former else 0.0,
        generation=generation,
        said=speaker.reason if speaker else "it was started again" if former else "",
        saved_step=next((end.saved_step for end in ends if end.saved_step is not None), None),
    )
    folder.write(LIFE, life)
    return life


def _set_aside(folder: GangFolder, podset: PodSet, life: int) -> tuple[list[GangEnd], int]:
    """Move the ends of the keepers away and count generations on; returns both."""
    kept = folder.inside / "lives" / str(life)
    kept.mkdir(parents=True, exist_ok=True)
    former = folder.read_inside(folder.inside / FIRST_GENERATION) or b""
    ends, generation = [], int(former) if former.strip().isdigit() else 0
    for node in range(podset.num_nodes):
        end, status = folder.end(node), folder.keeper(node)
        ends += [end] if end else []
        generation = max([generation, *(each.generation + 1 for each in (end, status) if each is not None)])
        with suppress(FileNotFoundError):
            (folder.inside / f"exit-{node}.json").rename(kept / f"exit-{node}.json")
        (folder.inside / f"keeper-{node}.json").unlink(missing_ok=True)
    (folder.inside / "control-port").unlink(missing_ok=True)
    write_file(folder.inside / FIRST_GENERATION, str(generation).encode(), mode=0o644)
    return ends, generation


def values_of(life: SlurmLife, podset: PodSet, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Values of the words in commands of keepers, on the server of this process."""
    left = max(_LEAST_SECONDS, (podset.deadline_seconds or 0.0) - life.spent_seconds)
    return {
        MASTER: life.servers[0],
        DEADLINE: f"{left:g}" if podset.deadline_seconds is not None else None,
        DEVICES: environ.get("CUDA_VISIBLE_DEVICES"),
    }


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Begin a life of the gang in the folder that is named; returns the exit code of the script."""
    try:
        servers = expand_servers(environ["SLURM_JOB_NODELIST"])
        begin_life(GangFolder(Path(words[1])), job=environ["SLURM_JOB_ID"], servers=servers, now=time.time())
    except (GanglineError, OSError, ValueError) as error:
        sys.stderr.write(f"gangline: {error}\n")
        return error.exit_code if isinstance(error, GanglineError) else ConfigError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv, os.environ))
