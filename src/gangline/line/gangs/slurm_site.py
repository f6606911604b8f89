"""Slurm as `[slurm]` of a site describes it: the folder of its gangs, and the servers that a plan may count on.

What Slurm would refuse at the submission it refuses here, before a model is measured.
"""

import os
from pathlib import Path

from gangline.errors import ConfigError
from gangline.launch.slurm.batch_script import job_options
from gangline.launch.slurm.commands import ServersOfAKind, SlurmCommands
from gangline.spec.config.site import Site
from gangline.spec.devices import Devices, Inventory

_PROBED = "gangline-probe"
_WORKS = 'shared = "/shared/gangline" works, if that is a folder that this machine and all servers see'


def slurm_root(site: Site) -> Path:
    """Folder of this user's gangs on the folder that all servers of Slurm see.

    Raises:
        ConfigError: The site names no such folder, or this user may not write it.
    """
    if site.slurm.shared is None:
        raise ConfigError(f"slurm.shared: wanted the folder of gangs under Slurm, found nothing; {_WORKS}")
    shared = Path(site.slurm.shared)
    if not os.access(shared, os.W_OK | os.X_OK):
        raise ConfigError(f"slurm.shared: wanted a folder that this user may write, found {shared}; {_WORKS}")
    root = shared / f"gangs-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    return root


def slurm_inventory(site: Site) -> Inventory:
    """The most numerous kind of servers of the site's partition, GPUs first.

    Raises:
        ConfigError: Slurm would refuse every job of this site, in its own sentence, or the partition has no servers.
        CapacityError: Slurm takes no further job of this user or account.
        SlurmAway: Slurm does not answer.
    """
    slurm_root(site)
    slurm = SlurmCommands(site.slurm.via)
    slurm.test(job_options(site.slurm, name=_PROBED, num_nodes=1))
    found = slurm.servers(site.slurm.partition)
    if not found:
        raise ConfigError(
            f"slurm.partition: wanted servers that are up, found none in {site.slurm.partition or 'the default one'};"
            " sinfo lists the partitions"
        )
    kinds: dict[tuple[int, str], list[ServersOfAKind]] = {}
    for each in found:
        kinds.setdefault((each.gpus, each.gpu_name), []).append(each)
    (gpus, name), servers = max(kinds.items(), key=lambda kind: (kind[0][0] > 0, sum(each.count for each in kind[1])))
    return Inventory(
        num_nodes=sum(server.count for server in servers),
        cores=min(server.cores for server in servers),
        memory_bytes=min(server.memory_bytes for server in servers),
        devices=(_devices(site, name, gpus),) if gpus else (),
        origin="slurm",
    )


def _devices(site: Site, name: str, count: int) -> Devices:
    """GPUs of a server; sinfo knows their kind where an administrator named it, and never their memory."""
    known = name or (next(iter(site.gpu)) if len(site.gpu) == 1 else "")
    table = next((table for each, table in site.gpu.items() if each.lower() == known.lower()), None)
    return Devices(kind="cuda", name=known, memory_bytes=int(table.memory_bytes) if table else None, count=count)
