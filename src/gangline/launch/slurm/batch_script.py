"""Batch script, rank file and servers of a gang under Slurm: one launcher a server, whose node rank is ours. Pure.

Slurm sorts a list of nodes and numbers tasks by its own order, so the rank file says which server has which node rank;
each launcher looks its own up by SLURMD_NODENAME. The rendezvous is static: node rank 0 is a server with a name. The
servers may be chosen from a stated network; a gang has each of them whole.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from gangline.errors import CapacityError, ConfigError, UsageError
from gangline.fabric.placement.order import pipeline_order
from gangline.fabric.placement.selection import FreeGroup, select_servers
from gangline.fabric.topology.inventory import Fabric, natural_key
from gangline.spec.config.server_ranges import compress_servers
from gangline.spec.config.site_tables import SlurmTable
from gangline.spec.gang.podset import PlacedServer, Placement

SCRIPT = "job.sbatch"
RENDEZVOUS_PORT = 29_500
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_CHECK = """\
if ! diff <(scontrol show hostnames | sort) <(cut -d " " -f 1 "$ranks" | sort) >&2; then
  echo "gangline: wanted the servers of $ranks, found others: < is in the job alone, > in the file alone" >&2
  echo "gangline: submit without options that choose servers, or emit both files again" >&2
  exit 10
fi
"""
"""Check before anything starts: a rank without a server, or a server without a rank, would let the others wait for
it."""
_STEP = """\
  while read -r server node_rank; do
    if [ "$server" = "$SLURMD_NODENAME" ]; then export NODE_RANK="$node_rank" PET_NODE_RANK="$node_rank"; fi
  done <"$1"
  log=$2-$SLURMD_NODENAME.log
  shift 2
  exec "$@" >>"$log" 2>&1
"""
"""What runs on each server; its arguments are the rank file, where its log goes, and the launcher."""
_SRUN = """\
srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=0 --export=ALL \\
  ${SLURM_GPUS_ON_NODE:+--gpus-per-node="$SLURM_GPUS_ON_NODE"} \\
"""
"""A step of an exclusive job has all cores, but no GPU unless it asks for them.

A launcher that fails ends all others, by SIGTERM; one that ends well ends none, whatever WaitTime of slurm.conf is.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmGang:
    """A gang on servers that are chosen.

    Raises:
        ConfigError: A server has no name that a host can have, or is named twice.
        UsageError: Name, launcher or folder are none.
    """

    name: str
    servers: tuple[PlacedServer, ...]
    """Servers in node-rank order; Slurm's names of nodes, by which they reach each other."""
    procs_per_node: int
    launcher: tuple[str, ...]
    """Words of the command that runs once on each server."""
    folder: PurePath
    """Folder of the rank file: an absolute path, which all servers see."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that tell ranks the network as it was declared; a variable that the job has wins."""

    def __post_init__(self) -> None:
        names = [server.name for server in self.servers]
        for name in names:
            if not _HOST.fullmatch(name):
                raise ConfigError(f"server: wanted a host name of letters, digits, - and ., found {name!r}")
        if not names or len(set(names)) < len(names):
            raise ConfigError("servers: wanted one or more, each once, as a gang has each of them whole")
        if not _JOB_NAME.fullmatch(self.name):
            raise UsageError(f"name of the job: wanted letters, digits, ., _ and -, found {self.name!r}")
        if not self.launcher or any("\0" in word for word in self.launcher):
            raise UsageError("launcher: wanted a command, as `-- torchrun train.py`, found none")
        if not self.folder.is_absolute():
            raise UsageError(f"folder: wanted an absolute path that all servers see, found {str(self.folder)!r}")

    @property
    def ranks(self) -> PurePath:
        """Path of the rank file, named by its content: a job that waits keeps its own when another one is written."""
        return self.folder / f"ranks-{hashlib.sha256(rank_file(self).encode()).hexdigest()[:12]}.txt"


def rank_file(gang: SlurmGang) -> str:
    """A line `server node_rank` for each server."""
    return "".join(f"{server.name} {node_rank}\n" for node_rank, server in enumerate(gang.servers))


def batch_script(gang: SlurmGang) -> str:
    """The script for `sbatch`; options of its command line, as partition and time, go before those of the script."""
    launcher = shlex.join(gang.launcher)
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{option}" for option in _options(gang)),
        "set -eu",
        *(f"export {name}={shlex.quote(value)}" for name, value in _variables(gang).items()),
        *(f"export {name}=${{{name}:-{shlex.quote(value)}}}" for name, value in gang.environment.items()),
        f"ranks={shlex.quote(str(gang.ranks))}",
        f"logs={shlex.quote(str(gang.folder))}/$SLURM_JOB_ID",
        _CHECK + 'echo "gangline: what each server prints is in $logs-*.log"',
        "# srun numbers launchers in an order of Slurm's; the rank file says who is who",
        _SRUN + f'  bash -euc \'\n{_STEP}\' launcher "$ranks" "$logs" {launcher}',
    ]
    return "\n".join(lines) + "\n"


def _options(gang: SlurmGang) -> list[str]:
    names = sorted((server.name for server in gang.servers), key=natural_key)
    return [
        f"job-name={gang.name}",
        f"nodes={len(names)}",
        f"ntasks={len(names)}",
        "ntasks-per-node=1",
        f"nodelist={compress_servers(names)}",
        "exclusive",
        "mem=0",
        "export=NONE",
        "open-mode=append",
    ]


def _variables(gang: SlurmGang) -> dict[str, str]:
    """The rendezvous, as in a pod of a gang; PET_* are read by torchrun."""
    master, nodes, procs = gang.servers[0].name, len(gang.servers), gang.procs_per_node
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(RENDEZVOUS_PORT),
        "WORLD_SIZE": str(nodes * procs),
        "LOCAL_WORLD_SIZE": str(procs),
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(procs),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": str(RENDEZVOUS_PORT),
    }


_LIFE = """\
cd -- {folder} || exit 10
run() {{ {python} -P -m "$@"; }}
trap : TERM  # a timer or a preemption asks keepers; a script that passed it on to srun would have them killed
run gangline.launch.slurm.lives {folder} || exit $?
code=0
srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 --export=ALL \\
  ${{SLURM_GPUS_ON_NODE:+--gpus-per-node="$SLURM_GPUS_ON_NODE"}} \\
  {python} -P -m gangline.launch.slurm.node {folder} || code=$?
if [ "$code" = 143 ] && [ ! -e cancel.json ]; then
  run gangline.launch.slurm.put_back {folder} {lives} {seconds} && sleep 60
fi
exit "$code"
"""
"""A stop that has saved goes back into the queue while it has lives left; whatever else ends a keeper ends the job.

A keeper that fails ends no other: the keepers agree on an end, and each of them uploads what its ranks wrote.
"""


def life_script(site: SlurmTable, *, folder: PurePath, python: str) -> str:
    """The script of a gang whose keepers are started by `srun`; the folder tells the rest, and no secret is in it."""
    words = {"folder": shlex.quote(str(folder)), "python": shlex.quote(python)}
    return "#!/bin/bash\n" + _LIFE.format(**words, lives=site.lives, seconds=site.margin_seconds)


def job_options(site: SlurmTable, *, name: str, num_nodes: int) -> tuple[str, ...]:
    """Options of `sbatch` for a gang that Slurm chooses servers for; those of the site come last, and win."""
    stated = {
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "time": None if site.time_seconds is None else f"{-(-site.time_seconds // 60)}",
    }
    return (
        f"--job-name={name}",
        f"--nodes={num_nodes}",
        f"--ntasks={num_nodes}",  # both: -N9 -n1 warns, and takes one node
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        "--export=NONE",
        "--open-mode=append",
        "--requeue",
        f"--signal=TERM@{site.margin_seconds}",  # without B: it reaches the keepers, not the script
        *(f"--{option}={value}" for option, value in stated.items() if value is not None),
        *site.options,
    )


def choose_servers(
    fabric: Fabric, num_nodes: int, placement: Placement, *, among: Sequence[str] | None = None
) -> tuple[PlacedServer, ...]:
    """Fewest blocks, then fewest groups, as the placer chooses; pipelines are ordered by what they send.

    Args:
        fabric: Its groups name the servers.
        num_nodes: Servers wanted.
        placement: Tile of the gang, and traffic of its pipeline.
        among: Servers that are free; None: all of `fabric`.

    Raises:
        UsageError: `among` names a server that is in no group.
        CapacityError: The servers do not hold the gang.
    """
    free = set(fabric.servers if among is None else among)
    if unknown := sorted(free - set(fabric.servers)):
        raise UsageError(f"wanted servers of the groups of fabric.toml, found {', '.join(unknown[:5])} in none of them")
    groups = [
        FreeGroup(name=group.name, block=group.block, servers={name: 1 for name in group.servers if name in free})
        for group in fabric.groups
    ]
    servers = select_servers(groups, num_nodes, tile=placement.tile)
    if not servers:
        fits = sum(group.places // placement.tile * placement.tile for group in groups)
        tiles = f", each {placement.tile} consecutive ones in one group" if placement.tile > 1 else ""
        raise CapacityError(
            f"wanted {num_nodes} servers{tiles}, found {fits} among {len(free)}; name more of them, or plan for {fits}"
        )
    if placement.pipeline is None:
        return servers
    return pipeline_order(servers, placement.pipeline, tile=placement.tile)
