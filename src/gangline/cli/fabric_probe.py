"""What `gangline fabric probe` measures between servers, and how it is shown."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gangline.cli.output import columns
from gangline.errors import CapacityError, UsageError
from gangline.fabric.probe.client import Listeners
from gangline.fabric.probe.links import loss_ruled_out
from gangline.fabric.probe.listener import PORT
from gangline.fabric.probe.measured_links import LinkMeasurement, link_measurement
from gangline.fabric.probe.packets import ProbeResult, parse_address
from gangline.fabric.probe.pair_times import Pair, group_matrix
from gangline.fabric.probe.preflight import preflight, tournament
from gangline.fabric.probe.telemetry import diagnose_pairs, diagnose_preflight, diagnose_probes
from gangline.report.diagnoses import diagnosis_text
from gangline.spec.measurements import Diagnosis
from gangline.units import format_bytes, now

SHOWN_PATHS = 30
NONE_ANSWERED = "no pair of listeners answered; start one on each server with python -m gangline.fabric.probe"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeReport:
    """One measurement of the network."""

    measured: Mapping[str, Any]
    """The measurement, for programs."""
    lines: Sequence[str]
    """The same, for people."""
    diagnoses: Sequence[Diagnosis]
    unreachable: Mapping[str, str]
    """Why, by server."""
    links: LinkMeasurement | None = None
    """Measured links, for plans; None: not measured."""

    @property
    def is_well(self) -> bool:
        """Nothing was named, and every server answered."""
        return not self.diagnoses and not self.unreachable

    def document(self) -> dict[str, Any]:
        """The report for JSON."""
        return {**self.measured, "diagnoses": self.diagnoses, "unreachable": self.unreachable}

    def text(self) -> list[str]:
        """Lines of a terminal."""
        away = [f"{name}: {why}" for name, why in self.unreachable.items()]
        return [*self.lines, *away, *map(diagnosis_text, self.diagnoses)]


def listeners_of(servers: Sequence[str], secret: bytes) -> Listeners:
    """Listeners by server; by host and port where a host has several.

    Raises:
        UsageError: None are given, or one twice.
    """
    addresses = [parse_address(server, port=PORT) for server in servers]
    hosts = Counter(host for host, _ in addresses)
    names = [host if hosts[host] == 1 else text for (host, _), text in zip(addresses, servers, strict=True)]
    if not servers or len(set(addresses)) < len(servers):
        found = ", ".join(servers) or "none, and no fabric.toml"
        raise UsageError(f"wanted servers to probe, each once, found {found}")
    return Listeners(dict(zip(names, addresses, strict=True)), secret)


def probe_losses(listeners: Listeners, *, seconds: float, flows: int, groups: Mapping[str, str]) -> ProbeReport:
    """Every server probes every other; the worst paths are shown."""
    results = listeners.probe_all(seconds=seconds, flows=flows)
    worst = sorted(results.items(), key=lambda item: (-item[1].loss, -(item[1].p99_seconds or 0.0)))
    rows: list[tuple[str, ...]] = [("FROM", "TO", "SENT", "LOST", "THERE", "BACK", "MEDIAN", "P99", "VERDICT")]
    rows += [_row(pair, result) for pair, result in worst[:SHOWN_PATHS]]
    more = [f"{len(worst) - SHOWN_PATHS} more paths, none worse"] if len(worst) > SHOWN_PATHS else []
    sent, lost = (sum(getattr(result, name) for result in results.values()) for name in ("sent", "lost"))
    return ProbeReport(
        measured={
            "paths": [{"source": source, **asdict(result), "target": to} for (source, to), result in results.items()]
        },
        lines=[columns(rows), *more, f"{len(results)} paths, {sent} probes, {lost} lost"],
        diagnoses=diagnose_probes(results, groups=groups, unreachable=listeners.unreachable),
        unreachable=listeners.unreachable,
    )


def _row(pair: Pair, each: ProbeResult) -> tuple[str, ...]:
    when = f" after {each.decided_seconds:.1f} s" if each.decided_seconds is not None else ""
    lossless = (
        f"none lost: below {100 * loss_ruled_out(each.sent):.2f} %" if each.sent and not each.lost else "undecided"
    )
    verdict = f"lossy, {100 * each.loss:.2f} %{when}" if each.is_lossy else lossless
    counts = (each.sent, each.lost, each.lost_there, each.lost_back)
    return (*pair, *map(str, counts), _milliseconds(each.median_seconds), _milliseconds(each.p99_seconds), verdict)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f} ms"


def measure_bandwidth(
    listeners: Listeners, *, seconds: float, groups: Mapping[str, str], own: bool = False
) -> ProbeReport:
    """Every ordered pair, in rounds of disjoint pairs; with `own` also what each server sends to itself, for plans.

    Raises:
        CapacityError: No pair answered.
    """
    speeds: dict[Pair, float] = {}
    for pairs in tournament(list(listeners.addresses)):
        for way in (pairs, [pair[::-1] for pair in pairs]):
            speeds |= listeners.bytes_per_second(way, seconds=seconds)
    answered = {pair: 1 / speed for pair, speed in speeds.items() if speed}
    if not answered:
        raise CapacityError(NONE_ANSWERED)
    links = None
    if own:
        alone = listeners.bytes_per_second([(name, name) for name in listeners.addresses], seconds=seconds)
        links = link_measurement(speeds, alone, groups=groups, date=now(), seconds=seconds)
    reached = {name for pair in answered for name in pair}
    matrix = group_matrix(speeds, groups=groups)
    return ProbeReport(
        measured={"bytes_per_second": _documents(speeds), "groups": _documents(matrix)},
        lines=[*_speed_lines(speeds), *_matrix_lines(matrix)],
        links=links,
        diagnoses=diagnose_pairs(answered, groups=groups),
        unreachable={name: "no other server reached it" for name in listeners.addresses if name not in reached},
    )


def _matrix_lines(matrix: Mapping[Pair, float]) -> list[str]:
    """Median speed from group to group; nothing of a single group."""
    names = sorted({name for pair in matrix for name in pair})
    if len(names) < 2:
        return []
    rows = [(f"from {one}", *(_speed(matrix.get((one, other))) for other in names)) for one in names]
    return ["", columns([("GROUP", *(f"to {name}" for name in names)), *rows])]


def _speed(bytes_per_second: float | None) -> str:
    return "-" if bytes_per_second is None else f"{format_bytes(bytes_per_second)}/s"


def bandwidth_in_pairs(listeners: Listeners, *, rounds: int, seconds: float) -> ProbeReport:
    """Disjoint pairs, the slower of both ways; then slow servers with fast ones.

    Raises:
        CapacityError: Hardly any pair answered.
    """

    def measure(pairs: Sequence[Pair]) -> Mapping[Pair, float]:
        there = listeners.bytes_per_second(pairs, seconds=seconds)
        back = listeners.bytes_per_second([pair[::-1] for pair in pairs], seconds=seconds)
        return {pair: min(there[pair], back[pair[::-1]]) for pair in pairs}

    result = preflight(list(listeners.addresses), measure, rounds=rounds)
    if not result.usual_bytes_per_second:
        raise CapacityError(NONE_ANSWERED)
    return ProbeReport(
        measured={"bytes_per_second": _documents(result.bytes_per_second), "unsure": result.unsure},
        lines=_speed_lines(result.bytes_per_second),
        diagnoses=diagnose_preflight(result),
        unreachable=dict.fromkeys(result.unsure, "slow once, and no fast server was left to test it with"),
    )


def _documents(speeds: Mapping[Pair, float]) -> list[dict[str, Any]]:
    return [{"source": pair[0], "target": pair[1], "bytes_per_second": speed} for pair, speed in speeds.items()]


def _speed_lines(speeds: Mapping[Pair, float]) -> list[str]:
    slowest = sorted(speeds.items(), key=lambda item: item[1])
    rows = [(*pair, f"{format_bytes(speed)}/s") for pair, speed in slowest[:SHOWN_PATHS]]
    more = [f"{len(slowest) - SHOWN_PATHS} more pairs, all faster"] if len(slowest) > SHOWN_PATHS else []
    return [columns([("FROM", "TO", "SPEED"), *rows]), *more]
