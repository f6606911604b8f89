"""Diagnoses from what was measured: events and phases of ranks, times between servers, probes. Pure.

Each has its evidence, its cost in percent of a step, and an action as data. What was not measured is not diagnosed.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from gangline.fabric.probe.links import ProbedPath, cleared_parts, localise, parts_of_path
from gangline.fabric.probe.packets import ProbeResult
from gangline.fabric.probe.pair_times import Pair, SlowPairs, find_slow_pairs
from gangline.fabric.probe.preflight import PreflightResult
from gangline.fabric.reliability.shares import Split, split_by_speed
from gangline.fabric.reliability.step_times import WORK
from gangline.spec.measurements import Diagnosis, RankRow, Remedy
from gangline.spec.mesh import Mesh
from gangline.units import format_bytes

IMBALANCE = 0.05
"""Share of a step by which the slowest stage's work must exceed the mean of the stages."""


def diagnose_slow_ranks(
    events: Iterable[Mapping[str, Any]], *, mesh: Mesh, global_batch: int, nodes: Mapping[int, str],
    weighs_samples: bool = True,
) -> tuple[Diagnosis, ...]:  # fmt: skip
    """Ranks that are slow at the end of these events of rank 0, the costliest first.

    Args:
        events: `straggler` and `straggler_over` name a slow rank and take it back; others are ignored.
        mesh: Of the gang.
        global_batch: Samples of a step.
        nodes: Server by rank, as far as known.
        weighs_samples: Replicas are averaged by their samples, so that they may take unlike shares.
    """
    samples = global_batch if weighs_samples and mesh.pp == 1 else 0
    slow: dict[int, Mapping[str, Any]] = {}
    for event in events:
        rank = event.get("slow")
        if event.get("event") == "straggler" and isinstance(rank, int) and 0 <= rank < mesh.world_size:
            slow[rank] = event
        elif event.get("event") == "straggler_over" and isinstance(rank, int):
            slow.pop(rank, None)
    diagnoses = (_slow_rank(rank, event, mesh, samples, nodes) for rank, event in slow.items())
    return tuple(sorted(diagnoses, key=lambda diagnosis: -(diagnosis.cost_percent or 0.0)))


def _slow_rank(rank: int, event: Mapping[str, Any], mesh: Mesh, samples: int, nodes: Mapping[int, str]) -> Diagnosis:
    seconds, step_seconds = _number(event.get("seconds")), _number(event.get("step_seconds"))
    ratio, waits = _ratio(event), _number(event.get("wait_share"))
    node = nodes.get(rank, str(event.get("node"))[:20])
    node = f"node {node}" if node.isdecimal() else node
    phase = event.get("phase") if event.get("phase") in WORK else "an unknown phase"
    waited = "" if waits is None else f", and it waits least: {100 * waits:.0f} % of its step"
    return Diagnosis(
        kind="slow_rank",
        names=(f"rank {rank}",),
        evidence=f"since step {str(event.get('step'))[:20]} on {node}: its work takes {ratio:.2f} times as long as "
        f"that of its peers, most of it in {phase}{waited}",
        cost_percent=100 * seconds / step_seconds if seconds is not None and step_seconds else None,
        action=_remedy_of_rank(rank, event, node, mesh, samples),
    )


def _remedy_of_rank(rank: int, event: Mapping[str, Any], node: str, mesh: Mesh, samples: int) -> Remedy:
    """Replicas can take other shares of `samples` where these save enough; else the server is to be tested."""
    if mesh.dp_replicate > 1 and samples >= mesh.data_parallel:
        slow = mesh.coordinates(rank)["dp_replicate"]
        speeds = [1 / _ratio(event) if replica == slow else 1.0 for replica in range(mesh.dp_replicate)]
        split = split_by_speed(samples, speeds, least=mesh.dp_shard)
        if split.is_worth_it:
            saves, most = (_saved_percent(event, split, seconds) for seconds in (split.seconds, split.bound_seconds))
            return Remedy(kind="new_shares", shares=split.shares, saves_percent=saves, most_percent=most)
    return Remedy(kind="quarantine", names=(node,))


def _saved_percent(event: Mapping[str, Any], split: Split, seconds: float) -> float | None:
    """Share saved of a step whose slow replica would be done after `seconds` of the split's unit; None: not known."""
    longer, step_seconds, ratio = _number(event.get("seconds")), _number(event.get("step_seconds")), _ratio(event)
    if longer is None or not step_seconds or ratio == 1:
        return None
    work = longer * ratio / (ratio - 1)
    return 100 * work / step_seconds * (1 - seconds / split.even_seconds)


def _ratio(event: Mapping[str, Any]) -> float:
    return max(1.0, _number(event.get("ratio")) or 1.0)


def diagnose_stages(rows: Sequence[RankRow], *, mesh: Mesh) -> tuple[Diagnosis, ...]:
    """A pipeline whose slowest stage holds the others up: the plan's fault, for its servers are well."""
    stages: dict[int, list[float]] = {}
    for row in rows:
        whole = sum(row.phases.values())
        if whole and row.rank < mesh.world_size:
            share = sum(row.phases.get(phase, 0.0) for phase in WORK) / whole
            stages.setdefault(mesh.coordinates(row.rank)["pp"], []).append(share)
    if len(stages) < 2 or len(stages) < mesh.pp:
        return ()
    work = {stage: median(shares) for stage, shares in stages.items()}
    slowest = max(work, key=lambda stage: work[stage])
    excess = work[slowest] - fmean(work.values())
    if excess < IMBALANCE:
        return ()
    shown = ", ".join(f"stage {stage} {100 * work[stage]:.0f} %" for stage in sorted(work)[:8])
    return (
        Diagnosis(
            kind="stage_imbalance",
            names=(f"stage {slowest}",),
            evidence=f"work of a step by stage: {shown}; equal stages would take {100 * fmean(work.values()):.0f} %",
            cost_percent=100 * excess,
            action=Remedy(kind="new_plan"),
        ),
    )


def diagnose_pairs(seconds: Mapping[Pair, float], *, groups: Mapping[str, str]) -> tuple[Diagnosis, ...]:
    """Slow leaves, senders, receivers and paths in a table of times between servers."""
    return tuple(_slow_pairs(pair, groups) for pair in find_slow_pairs(seconds, groups=groups))


_OF_LINES = {
    "slow_leaf": "all its servers", "slow_sender": "most of what it sends", "slow_receiver": "most of what it receives",
    "slow_path": "this pair alone",
}  # fmt: skip


def _slow_pairs(found: SlowPairs, groups: Mapping[str, str]) -> Diagnosis:
    names = found.names
    if found.kind == "slow_leaf":
        action = Remedy(kind="replace", names=tuple(sorted(each for each, of in groups.items() if of == names[0])))
    elif found.kind == "slow_path":
        action = Remedy(kind="quarantine", names=(f"path {names[0]} to {names[1]}",))
    else:
        action = Remedy(kind="replace", names=names)
    return Diagnosis(
        kind=found.kind,
        names=names,
        evidence=f"{_OF_LINES[found.kind]}: {found.ratio:.2f} times the usual time between servers",
        cost_percent=None,
        action=action,
    )


def diagnose_probes(
    results: Mapping[Pair, ProbeResult], *, groups: Mapping[str, str], unreachable: Mapping[str, str]
) -> tuple[Diagnosis, ...]:
    """Lossy links and sick hosts in the probes between servers: what all lossy paths and no clean one crosses."""
    lossy = {pair: result for pair, result in results.items() if result.is_lossy}
    lost, sent = (sum(getattr(result, name) for result in lossy.values()) for name in ("lost", "sent"))
    others = ((_path(pair, groups), result.clean_in_a_row) for pair, result in results.items() if not result.is_lossy)
    suspects = localise(
        [_path(pair, groups) for pair in lossy], cleared_parts(others, loss=lost / sent if sent else 1.0)
    )
    diagnoses = []
    for suspect in suspects:
        pairs = [(path.source, path.target) for path in suspect.paths]
        losses = [lossy[pair].loss for pair in pairs]
        hosts = tuple(part.removeprefix("host ") for part in suspect.parts if part.startswith("host "))
        is_host = len(hosts) == 1 and (hosts[0] in unreachable or min(losses) >= 1)
        least, most = f"{100 * min(losses):.2f} %", f"{100 * max(losses):.2f} %"
        share = least if least == most else f"{least} to {most}"
        diagnoses.append(
            Diagnosis(
                kind="sick_host" if is_host else "lossy_link",
                names=hosts if is_host else suspect.parts,
                evidence=f"{len(pairs)} of {len(results)} paths lose {share} of their probes, and "
                f"{_PARTIAL if suspect.is_partial else 'no clean path crosses it'}: {_pair_list(pairs)}",
                cost_percent=None,
                action=Remedy(kind="replace" if is_host else "quarantine", names=hosts if is_host else suspect.parts),
            )
        )
    return tuple(diagnoses)


_PARTIAL = "clean paths cross it, too, as one of its links alone would have it"


def _path(pair: Pair, groups: Mapping[str, str]) -> ProbedPath:
    return ProbedPath(source=pair[0], target=pair[1], parts=parts_of_path(*pair, groups=groups))


def _pair_list(pairs: Sequence[Pair]) -> str:
    more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
    return ", ".join(f"{source} to {target}" for source, target in pairs[:3]) + more


def diagnose_preflight(result: PreflightResult) -> tuple[Diagnosis, ...]:
    """Servers that were slow with two partners; one that did not answer is sick."""
    usual = format_bytes(result.usual_bytes_per_second)
    diagnoses = []
    for name in result.culprits:
        best = max(speed for pair, speed in result.bytes_per_second.items() if name in pair)
        diagnoses.append(
            Diagnosis(
                kind="sick_host",
                names=(name,),
                evidence=f"slow with two partners: {format_bytes(best)}/s at best, usual are {usual}/s"
                if best
                else "no partner reached it",
                cost_percent=None,
                action=Remedy(kind="replace", names=(name,)),
            )
        )
    return tuple(diagnoses)


def _number(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None
    )
