"""`gangline fabric slurm`: the files by which Slurm starts a gang on servers in our order."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.options import HERE, FabricOption, RepoOption, SiteOption
from gangline.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from gangline.line.gangs.podsets import PlannedNodes

_NAME = "gangline"
"""Name of a job that belongs to no run."""


def slurm(
    launcher: Annotated[
        list[str], typer.Argument(help="Program that runs once on each server, after `--`.", show_default=False)
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files, which all servers see.")],
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="Number of servers.", show_default="of the run's plan")
    ] = None,
    per_node: Annotated[int, typer.Option("--per-node", min=1, help="Ranks of a server, with --nodes.")] = 8,
    tile: Annotated[
        int, typer.Option("--tile", min=1, help="Consecutive servers that share a group, with --nodes.")
    ] = 1,
    run: Annotated[
        str | None,
        typer.Option("--run", help="Run whose plan is taken, without --nodes.", show_default="the newest run"),
    ] = None,
    among: Annotated[
        str | None,
        typer.Option("--among", metavar="SERVERS", help="Servers that are free: a[001-008],b7.", show_default="all"),
    ] = None,
    fabric: FabricOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Write a batch script and its rank file: a gang on servers of fabric.toml, its node ranks in our order.

    Nothing is submitted: sbatch FOLDER/job.sbatch does, with the options of your cluster before it.
    """
    from gangline.cli.output import print_or_write
    from gangline.cli.workspace import stated_fabric
    from gangline.fabric.traffic.paths import path_environment
    from gangline.launch.slurm.batch_script import SCRIPT, SlurmGang, batch_script, choose_servers, rank_file

    stated = stated_fabric(fabric)
    if stated is None or not stated.groups:
        raise ConfigError("wanted a fabric.toml whose groups name the servers, found none; --fabric FILE names it")
    name, shape = _planned(repo, site, run) if nodes is None else (_NAME, _asked(nodes, per_node, tile))
    gang = SlurmGang(
        name=name,
        servers=choose_servers(stated, shape.num_nodes, shape.placement, among=_expanded(among)),
        procs_per_node=shape.procs_per_node,
        launcher=tuple(launcher),
        folder=out.resolve(),
        environment=path_environment(stated.path_policy, connections=stated.connections),
    )
    print_or_write(rank_file(gang), Path(gang.ranks))
    print_or_write(batch_script(gang), Path(gang.folder / SCRIPT))


def _planned(repo: Path, site: Path | None, run: str | None) -> "tuple[str, PlannedNodes]":
    from gangline.cli.workspace import open_workspace
    from gangline.line.gangs.podsets import gang_shape
    from gangline.spec.plan import Plan
    from gangline.storage.objects.blobs import get_blob

    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    if record.plan is None:
        raise UsageError(f"{record.run.id} has no plan yet; gangline run --until plan makes one, or give --nodes")
    shape = gang_shape(Plan.from_json(get_blob(workspace.store, record.plan.key)), record)
    if shape.placement.kinds:
        raise ConfigError(
            f"{record.run.id}: wanted a plan for one kind of GPU, found one for two, which fabric.toml does not "
            "tell apart; a cluster starts it, and --nodes N writes files without its plan"
        )
    return record.run.id, shape


def _asked(nodes: int, per_node: int, tile: int) -> "PlannedNodes":
    from gangline.line.gangs.podsets import PlannedNodes
    from gangline.spec.gang.podset import Placement

    if nodes % tile:
        raise UsageError(f"--tile: wanted a number that divides {nodes} servers, found {tile}")
    return PlannedNodes(num_nodes=nodes, procs_per_node=per_node, placement=Placement(tile=tile))


def _expanded(among: str | None) -> tuple[str, ...] | None:
    from gangline.spec.config.server_ranges import expand_servers

    try:
        return None if among is None else expand_servers(among)
    except ValueError as error:
        raise UsageError(f"--among: wanted {error}") from error
