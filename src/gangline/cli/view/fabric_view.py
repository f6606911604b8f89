"""A fabric and forecasts on it as lines of a terminal, and as a document."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gangline.cli.output import columns, dash
from gangline.fabric.placement.training import OrderForecast, fabric_rate
from gangline.fabric.probe.links import (
    PROBES_PER_SECOND,
    probe_bits_per_second,
    probes_to_cover,
    probes_to_cover_surely,
    probes_to_find,
)
from gangline.fabric.reliability.failures import PRESETS, longest_loss_seconds, mean_hours_between
from gangline.fabric.topology.clos import clos_counts, counts_of
from gangline.fabric.topology.inventory import Fabric, scale_of
from gangline.fabric.traffic.paths import path_environment
from gangline.fabric.traffic.rings import NcclRing
from gangline.spec.config.server_ranges import compress_servers
from gangline.units import counted, format_seconds


def fabric_document(fabric: Fabric, *, radix: int | None) -> dict[str, Any]:
    """All that `counts_lines` says, for a program."""
    return {
        "digest": fabric.digest,
        "fabric": fabric,
        "scale": scale_of(fabric.num_gpus),
        "counts": counts_of(fabric),
        "environment": path_environment(fabric.path_policy, connections=fabric.connections),
        "interruptions_per_hour": fabric_rate(fabric, servers=len(fabric.servers)),
        "clos": clos_counts(fabric.num_gpus, radix=radix) if radix else None,
    }


def counts_lines(fabric: Fabric, *, radix: int | None) -> list[str]:
    """What there is, then a line for each group."""
    counts, gpus = counts_of(fabric), fabric.num_gpus
    between = 3600 * mean_hours_between(fabric_rate(fabric, servers=counts.servers))
    preset = fabric.failures if isinstance(fabric.failures, str) else "rates as given"
    bus, inside = _gigabytes(fabric.nic_bytes_per_second), _gigabytes(fabric.intra_bus_bytes_per_second)
    speeds = f"NIC {bus} line rate, {fabric.nic_bus_efficiency:.0%} of it as bus · inside a server {inside} bus"
    size = f"{counts.servers:,} servers x {fabric.rails} GPUs = {gpus:,}, {scale_of(gpus)}"
    each = "one for each rail and home of a group" if fabric.dual_homed else "one for each rail of a group"
    lines = [
        f"fabric    {fabric.digest[:8]}: {size}, in {counted(len(fabric.groups), 'group')}",
        f"speeds    {speeds}{_waits(fabric)}",
        f"leaves    {counts.leaves:,}, {each} · {counts.nic_cables:,} cables to NICs, {_uplinks(fabric)}",
        f"paths     {fabric.path_policy}, {counted(fabric.connections, 'connection')} a flow",
    ]
    if variables := path_environment(fabric.path_policy, connections=fabric.connections):
        words = " ".join(f"{name}={value}" for name, value in variables.items())
        lines.append(f"ranks     {words} of gangs on GPUs make NCCL use it so; [train.env] of a line wins")
    lines += [_LOSSES, f"probes    {_probes(fabric)}"]
    if not counts.servers:
        return [*lines, "groups    none are stated"]
    lines.append(f"failures  {preset}: {_interruptions(between)} on all of them; {_range_of_presets(fabric)}")
    if radix:
        clos = clos_counts(gpus, radix=radix)
        lines.append(
            f"full rate {clos.switches:,} switches of {radix} ports ({clos.leaves:,} leaves, {clos.spines:,} spines, "
            f"{clos.cores:,} cores), {clos.cables:,} cables, {clos.optics:,} optics"
        )
    groups = [
        (group.name, f"{len(group.servers):,}", dash(group.block), compress_servers(group.servers))
        for group in fabric.groups
    ]
    return [*lines, "", columns([("GROUP", "SERVERS", "BLOCK", "NAMES"), *groups])]


def _gigabytes(bytes_per_second: float | None) -> str:
    return "not known" if bytes_per_second is None else f"{bytes_per_second / 1e9:.4g} GB/s"


def _waits(fabric: Fabric) -> str:
    """What messages wait whatever their size; empty: it is not stated."""
    stated = {"": fabric.nic_latency_seconds, " inside": fabric.intra_latency_seconds}
    words = [f"{1e6 * value:.3g} us{where}" for where, value in stated.items() if value is not None]
    return f" · a message waits {', '.join(words)}" if words else ""


def _uplinks(fabric: Fabric) -> str:
    counts = counts_of(fabric)
    if counts.uplinks is None or counts.oversubscription is None:
        return "uplinks not known"
    return f"{counts.uplinks:,} uplinks · ports down to up {counts.oversubscription:.3g} : 1"


_LOSSES = (
    f"losses    a path may be lost for {longest_loss_seconds(20):.3g} s (NCCL_IB_TIMEOUT=20, NCCL_IB_RETRY_CNT=7, the "
    f"defaults); {longest_loss_seconds(18):.3g} s at 18, {longest_loss_seconds(22):.3g} s at 22"
)


def _probes(fabric: Fabric) -> str:
    """How long it takes until a loss is called one, and how many ports reach every uplink."""
    found, links = probes_to_find(0.01), fabric.leaf_uplinks
    kilobits = probe_bits_per_second() / 1000
    words = f"a loss of 1 % shows after {found} ({found / PROBES_PER_SECOND:.0f} s, {kilobits:.0f} kbit/s a path)"
    if links is None:
        return words
    return (
        f"{words}; {probes_to_cover(links):,.0f} source ports reach all {links} uplinks of a leaf on average, "
        f"{probes_to_cover_surely(links):,} with 99.9 %"
    )


def _interruptions(seconds: float) -> str:
    return "none counted" if seconds == float("inf") else f"one every {format_seconds(seconds)}"


def _range_of_presets(fabric: Fabric) -> str:
    """What the presets that count whole GPUs or servers say of this fabric."""
    whole = [name for name, rates in PRESETS.items() if rates.gpu_hours or rates.server_hours]
    rates = [fabric_rate(replace(fabric, failures=name), servers=len(fabric.servers)) for name in whole]
    least, most = (format_seconds(3600 * mean_hours_between(rate)) for rate in (max(rates), min(rates)))
    return f"presets of whole servers: {least} to {most}"


def forecast_lines(fabric: Fabric, forecasts: Sequence[OrderForecast]) -> list[str]:
    """The network in a line, then a row for each forecast."""
    several = len({forecast.policy for forecast in forecasts}) > 1
    uplinks = f"{dash(fabric.leaf_uplinks)} uplinks a leaf, paths {fabric.path_policy}"
    heading = f"one ring of {len(fabric.servers):,} servers, {counted(len(fabric.groups), 'group')}, {uplinks}"
    names = ("order", "connections", "crossings", "busiest", "efficiency", "all-reduce", "speed-up", "net days",
             "wall days", "GPU-h")  # fmt: skip
    rows = [
        (forecast.order, f"{forecast.connections}", f"{forecast.crossings:,.0f}", f"{forecast.busiest_flows:.1f}",
         f"{forecast.efficiency:.2f}", f"{forecast.algorithm_bytes_per_second / 1e9:.1f} GB/s alg",
         f"{100 * forecast.speed_up:.1f} %", f"{forecast.net_days:.1f}", f"{forecast.wall_days:.1f}",
         _hours(forecast.gpu_hours),
         *([forecast.policy] if several else []))
        for forecast in forecasts
    ]  # fmt: skip
    return [heading, *columns([(*names, *(["paths"] if several else [])), *rows]).split("\n")]


def _hours(hours: float) -> str:
    return f"{hours / 1e6:.2f} M" if hours >= 1e5 else f"{hours:,.0f}"


def ring_lines(rings: Sequence[NcclRing], *, ranks_per_node: int) -> list[str]:
    """A row for each distinct order of servers, how many channels have it, and whether it is the plan's."""
    words = {True: "as planned", False: "NOT AS PLANNED", None: "not known: the line was cut"}
    kinds = Counter((ring.node_order(ranks_per_node=ranks_per_node), ring.follows_plan(ranks_per_node=ranks_per_node))
                    for ring in rings)  # fmt: skip
    rows = [
        f"{count:8}  {words[follows]:27}  {textwrap.shorten(' '.join(map(str, order)), 60, placeholder=' ...')}"
        for (order, follows), count in kinds.items()
    ]
    return [f"{'channels':8}  {'order':27}  servers by node rank", *rows]
