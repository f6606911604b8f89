"""`gangline fabric`: the network, how it changes speed and cost of a training, and what is slow or lossy in it."""

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from gangline.cli.options import HERE, FabricOption, JsonOption, RepoOption, SiteOption, command_group
from gangline.cli.output import answer, print_json, print_or_write
from gangline.cli.terminal import say, spinner
from gangline.errors import ConfigError, GateError, UsageError
from gangline.spec.bounds import BYTES_PER_SECOND, FLOPS_PER_SECOND, SECONDS_LOST, Bound

if TYPE_CHECKING:
    from gangline.fabric.placement.training import Order
    from gangline.fabric.topology.inventory import Fabric
    from gangline.line.gangs.podsets import PlannedNodes

_LONGEST_LINE = 1 << 20
"""Characters of a log that are read at once; no ring of NCCL is as long."""
_COUNTS = Bound(least=1.0, most=1e24)
"""Parameters and tokens."""
_EXAMPLE = "of an example network, not of yours: no fabric.toml was found; --fabric names one"
_NAME = "gangline"
"""Name of a job of Slurm that belongs to no run."""
app = command_group("Show the network, explain how it changes a training's speed, days and cost, and probe it.")


@app.command()
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


@app.command()
def show(
    *,
    fabric: FabricOption = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Take the groups from the node labels of the site's cluster.")
    ] = False,
    site: SiteOption = None,
    radix: Annotated[
        int | None,
        typer.Option("--radix", help="Count the switches with so many ports that would join these NICs at full rate."),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", "-w", metavar="FILE", help="Write fabric.toml; - is stdout.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print groups, servers, leaves and cables, and how often interruptions are to be expected."""
    from gangline.cli.view.fabric_view import counts_lines, fabric_document
    from gangline.cli.workspace import stated_fabric
    from gangline.fabric.topology.fabric_file import fabric_text

    found = stated_fabric(fabric)
    if cluster:
        found = _with_groups_of_cluster(found, site)
    if found is None:
        raise ConfigError(
            "wanted a fabric.toml, found none by --fabric, GANGLINE_FABRIC, ~/.config/gangline or /etc/gangline; "
            "docs/guides/network.md shows one, and --cluster reads the groups of a cluster"
        )
    if write is not None:
        print_or_write(fabric_text(found), write)
    elif json:
        print_json(fabric_document(found, radix=radix))
    else:
        say("\n".join(counts_lines(found, radix=radix)))


@app.command()
def explain(
    *,
    order: Annotated[str, typer.Option("--order", help="Orders of servers: plan, random.")] = "plan,random",
    connections: Annotated[
        str, typer.Option("--connections", metavar="N,N", help="Connections that each flow is split over.")
    ] = "1,4",
    parameters: Annotated[float, typer.Option("--parameters", help="Parameters of the model.")] = 175e9,
    tokens: Annotated[float, typer.Option("--tokens", help="Tokens to train on.")] = 1.73e12,
    flops: Annotated[float, typer.Option("--flops", help="Delivered FLOP/s of one GPU.")] = 140e12,
    traffic: Annotated[
        float, typer.Option("--traffic", help="Bytes that a GPU all-reduces for each second that it computes.")
    ] = 2.182e9,
    overlap: Annotated[float, typer.Option("--overlap", help="Share of each second that hides traffic.")] = 0.0,
    measured: Annotated[
        str | None,
        typer.Option(
            "--measured",
            metavar="RATE:SHARE,...",
            help="Use measured pairs, not --traffic and --overlap: bytes/s of all-reduces, and the speed-up.",
        ),
    ] = None,
    write_seconds: Annotated[float, typer.Option("--write-seconds", help="Seconds that a checkpoint takes.")] = 7.0,
    restart_seconds: Annotated[float, typer.Option("--restart-seconds", help="Seconds that a restart takes.")] = 180.0,
    fabric: FabricOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Compare orders of servers on one ring over all of them: bandwidth, speed-up, days, GPU-hours.

    Without a fabric.toml: on a network of 16,384 GPUs in 32 groups, the reference case of the defaults.
    """
    from gangline.cli.view.fabric_view import forecast_lines
    from gangline.fabric.placement.training import REFERENCE_FABRIC, TrainingCase, order_forecasts

    if measured is not None:
        traffic, overlap = _fitted(measured)
    if not 0 <= overlap < 1:
        raise UsageError(f"wanted --overlap of 0 or more below 1, found {overlap:g}")
    options = (
        ("parameters", parameters, _COUNTS), ("tokens", tokens, _COUNTS), ("flops", flops, FLOPS_PER_SECOND),
        ("traffic", traffic, Bound(least=0.0, most=BYTES_PER_SECOND.most)),
        ("write-seconds", write_seconds, SECONDS_LOST), ("restart-seconds", restart_seconds, SECONDS_LOST),
    )  # fmt: skip
    for name, value, bound in options:
        if not bound.holds(value):
            raise UsageError(f"wanted --{name} {bound.wanted.removeprefix('a number ')}, found {value:g}")
    network, links = _with_measured_links(fabric, repo, site) or (REFERENCE_FABRIC, _EXAMPLE)
    training = TrainingCase(
        parameters=parameters, tokens=tokens, flops_per_second=flops, traffic_bytes_per_second=traffic, overlap=overlap,
        write_seconds=write_seconds, restart_seconds=restart_seconds,
    )  # fmt: skip
    forecasts = order_forecasts(network, training, orders=_orders(order), connections=_counts(connections))
    lines = [*forecast_lines(network, forecasts), f"links     {links}"]
    plain = {"fabric": network.digest, "links": links, "training": training, "orders": forecasts}
    answer(plain, "\n".join(lines), json=json)


@app.command()
def probe(
    servers: Annotated[
        list[str] | None,
        typer.Argument(help="Listeners: host, or host:port; default port 4719.", show_default="of fabric.toml"),
    ] = None,
    *,
    preflight: Annotated[
        bool, typer.Option("--preflight", help="Measure bandwidth in pairs; slow servers once more with fast ones.")
    ] = False,
    bandwidth: Annotated[bool, typer.Option("--bandwidth", help="Measure bandwidth of all pairs, both ways.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Pairings of a preflight before slow ones.")] = 1,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.1, max=600, help="Seconds of probing, or of bandwidth.", show_default="30; 1"),
    ] = None,
    flows: Annotated[
        int, typer.Option("--flows", min=1, max=64, help="Source ports that take turns; switches hash them to paths.")
    ] = 8,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", help="File of the listeners' secret; none for this machine.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the result of --bandwidth in the site's store, where plans read it.")
    ] = False,
    fabric: FabricOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Let listeners on servers probe each other; name lossy links, slow and sick servers.

    Each server needs a listener: `python -m gangline.fabric.probe`. Exits 0 when all is well, 60 when something was
    named or did not answer, 20 when no listener answers.
    """
    from gangline.cli.fabric_probe import bandwidth_in_pairs, listeners_of, measure_bandwidth, probe_losses
    from gangline.cli.workspace import open_workspace, stated_fabric
    from gangline.fabric.probe.listener import read_secret
    from gangline.line.gangs.stated_network import keep_measurement

    _check_measurement(preflight=preflight, bandwidth=bandwidth, keep=keep)
    store = open_workspace(repo, site).store if keep else None
    stated = stated_fabric(fabric)
    listeners = listeners_of(servers or (stated.servers if stated else ()), read_secret(secret_file))
    groups = {server: group.name for server, group in stated.by_server.items()} if stated else {}
    with spinner(f"{len(listeners.addresses)} servers"):
        if preflight:
            report = bandwidth_in_pairs(listeners, rounds=rounds, seconds=seconds or 1.0)
        elif bandwidth:
            report = measure_bandwidth(listeners, seconds=seconds or 1.0, groups=groups, own=keep)
        else:
            report = probe_losses(listeners, seconds=seconds or 30.0, flows=flows, groups=groups)
    kept = None if store is None or report.links is None else keep_measurement(store, report.links)
    lines = [*report.text(), *([f"kept      {kept}"] if kept else [])]
    answer({**report.document(), "kept": kept}, "\n".join(lines), json=json)
    if not report.is_well:
        raise typer.Exit(GateError.exit_code)


@app.command()
def rings(
    log: Annotated[Path, typer.Argument(help="Log of rank 0, with NCCL_DEBUG=INFO; - is stdin.", show_default=False)],
    *,
    ranks: Annotated[int, typer.Option("--ranks", min=2, help="Number of ranks of the gang.", show_default=False)],
    per_node: Annotated[int, typer.Option("--per-node", min=1, help="Ranks of a server.")] = 8,
    json: JsonOption = False,
) -> None:
    """Compare the rings that NCCL printed with the order of servers in the plan, which is that of ranks.

    Exits 60 if a ring visits servers in another order, or a server twice.
    """
    from gangline.cli.view.fabric_view import ring_lines
    from gangline.fabric.traffic.rings import read_rings

    try:
        with nullcontext(sys.stdin) if str(log) == "-" else log.open(encoding="utf-8", errors="replace") as lines:
            nccl_rings = read_rings(iter(partial(lines.readline, _LONGEST_LINE), ""), num_ranks=ranks)
    except OSError as error:
        raise UsageError(f"{log}: wanted a log to read, found {error.strerror or error}") from error
    if not nccl_rings:
        raise UsageError(
            f"{log}: wanted rings of {ranks} ranks, found none; rank 0 prints them with NCCL_DEBUG=INFO and "
            "NCCL_DEBUG_SUBSYS=INIT,GRAPH"
        )
    follow = [ring.follows_plan(ranks_per_node=per_node) for ring in nccl_rings]
    rings = [{"ring": ring, "follows_plan": how} for ring, how in zip(nccl_rings, follow, strict=True)]
    answer({"rings": rings}, "\n".join(ring_lines(nccl_rings, ranks_per_node=per_node)), json=json)
    if False in follow:
        raise typer.Exit(GateError.exit_code)


def _check_measurement(*, preflight: bool, bandwidth: bool, keep: bool) -> None:
    if preflight and bandwidth:
        raise UsageError("--preflight and --bandwidth measure different pairs; give one of them")
    if keep and not bandwidth:
        raise UsageError("--keep: plans read speeds between servers; give --bandwidth, too")


def _with_measured_links(file: Path | None, repo: Path, site: Path | None) -> "tuple[Fabric, str] | None":
    """The stated fabric with what the site's store has of its speeds, and how they are known; None: none is stated."""
    from gangline.cli.workspace import open_workspace, stated_fabric
    from gangline.fabric.probe.measured_links import links_words
    from gangline.line.gangs.stated_network import planned_network

    stated = stated_fabric(file)
    if stated is None:
        return None
    try:
        network = planned_network(stated, open_workspace(repo, site).store)
    except ConfigError:  # no repository, in which the site keeps its store
        network = None
    return (stated, links_words(stated, None)) if network is None else (network.fabric, network.links)


def _with_groups_of_cluster(stated: "Fabric | None", site: Path | None) -> "Fabric":
    """The groups by the labels of the cluster's nodes, speeds and all else as stated."""
    from gangline.fabric.topology.inventory import Fabric
    from gangline.launch.kubernetes.placement.servers import read_fabric_groups
    from gangline.line.gangs.launchers import open_cluster
    from gangline.spec.config.load import load_site

    environ = os.environ
    api = open_cluster(load_site(site, environ=environ), environ)
    return replace(stated or Fabric(), groups=read_fabric_groups(api))


def _fitted(text: str) -> tuple[float, float]:
    """Traffic and overlap that explain measured points best; traffic that nothing hides has no overlap."""
    from gangline.fabric.traffic.collectives import fit_speed_up

    try:
        points = [(float(rate), float(share)) for rate, share in (part.split(":") for part in text.split(","))]
        fit = fit_speed_up(points)
    except (ValueError, ConfigError) as error:
        raise UsageError(f"wanted --measured RATE:SHARE,..., 5e9:0.70,20e9:0.90 works; found {text!r}") from error
    if fit.traffic_bytes_per_second <= 0:
        raise UsageError(f"--measured: wanted larger shares at larger rates, found {text!r}")
    return fit.traffic_bytes_per_second, max(0.0, fit.overlap)


def _orders(text: str) -> list["Order"]:
    from gangline.fabric.placement.training import Order

    names = text.split(",")
    if wrong := [name for name in names if name not in get_args(Order)]:
        raise UsageError(f"wanted --order with some of {', '.join(get_args(Order))}, found {', '.join(wrong)}")
    return [cast("Order", name) for name in names]


def _counts(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.isdecimal() and 0 < int(count) <= 1024 for count in counts):
        raise UsageError(f"wanted --connections with numbers from 1 to 1024, 1,4 works; found {text!r}")
    return [int(count) for count in counts]


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
