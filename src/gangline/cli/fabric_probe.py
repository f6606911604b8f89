"""`gangline fabric probe`: loss, round trips and bandwidth between servers, and which of them is to blame."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.cli.options import JsonOption
from gangline.cli.output import columns, print_json
from gangline.cli.terminal import say, spinner
from gangline.errors import CapacityError, GateError, UsageError
from gangline.fabric.pair_times import Pair
from gangline.fabric.preflight import PreflightResult, preflight, tournament
from gangline.fabric.probe import PORT, read_secret
from gangline.fabric.probe_packets import MOST_SECONDS, ProbeResult, parse_address
from gangline.fabric.survey import Listeners
from gangline.fabric.telemetry import diagnose_pairs, diagnose_preflight, diagnose_probes
from gangline.report.diagnoses import diagnosis_text
from gangline.spec.measurements import Diagnosis
from gangline.units import format_bytes

SHOWN_PATHS = 30
PAIR_SECONDS = 1.0
"""Of one bandwidth test, unless --seconds says another time."""
SecondsOption = Annotated[
    float | None,
    typer.Option(
        "--seconds", min=0.1, max=MOST_SECONDS, help="Of probing; of each bandwidth test.", show_default="30; 1"
    ),
]


def probe(
    servers: Annotated[list[str], typer.Argument(help=f"Where listeners run: host, or host:port; port {PORT} else.")],
    *,
    preflight_: Annotated[
        bool, typer.Option("--preflight", help="Bandwidth in pairs; slow servers once more with fast ones.")
    ] = False,
    bandwidth: Annotated[bool, typer.Option("--bandwidth", help="Bandwidth between all pairs, both ways.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Pairings of a preflight before slow ones.")] = 1,
    seconds: SecondsOption = None,
    flows: Annotated[
        int, typer.Option("--flows", min=1, max=64, help="Source ports that take turns; switches hash them to paths.")
    ] = 8,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", help="The listeners' secret; none for those of this machine.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Let listeners on servers probe each other; name lossy links, slow and sick servers.

    A listener is started on each server by `python -m gangline.fabric.probe`. Exits 0 when all is well, 60 when
    something was named or did not answer, 20 when no listener answers.
    """
    listeners = Listeners({each: parse_address(each, port=PORT) for each in servers}, read_secret(secret_file))
    if len(listeners.addresses) < len(servers):
        raise UsageError(f"wanted each server once, found {', '.join(servers)}")
    groups: Mapping[str, str] = {}
    with spinner(f"{len(servers)} servers"):
        if preflight_:
            document, lines, found = _preflight(listeners, rounds, seconds or PAIR_SECONDS)
        elif bandwidth:
            document, lines, found = _bandwidth(listeners, seconds or PAIR_SECONDS, groups)
        else:
            document, lines, found = _probes(listeners, seconds or 30.0, flows, groups)
    if json:
        print_json({**document, "diagnoses": found, "unreachable": listeners.unreachable})
    else:
        problems = [f"{name}: {why}" for name, why in listeners.unreachable.items()]
        say("\n".join([*lines, *problems, *map(diagnosis_text, found)]))
    if found or listeners.unreachable:
        raise typer.Exit(GateError.exit_code)


Report = tuple[dict[str, Any], list[str], tuple[Diagnosis, ...]]
"""JSON document, lines of the table, what was found."""


def _probes(listeners: Listeners, seconds: float, flows: int, groups: Mapping[str, str]) -> Report:
    results = listeners.probe_all(seconds=seconds, flows=flows)
    found = diagnose_probes(results, groups=groups, unreachable=listeners.unreachable)
    document = {"paths": [{"source": source, **_plain(each)} for (source, _), each in results.items()]}
    worst = sorted(results.items(), key=lambda item: (-item[1].loss, -(item[1].p99_seconds or 0.0)))
    rows: list[tuple[str, ...]] = [("FROM", "TO", "SENT", "LOST", "THERE", "BACK", "MEDIAN", "P99", "VERDICT")]
    rows += [_row(pair, each) for pair, each in worst[:SHOWN_PATHS]]
    more = [f"{len(worst) - SHOWN_PATHS} more paths, none worse"] if len(worst) > SHOWN_PATHS else []
    lost = sum(each.lost for each in results.values())
    total = f"{len(results)} paths, {sum(each.sent for each in results.values())} probes, {lost} lost"
    return document, [columns(rows), *more, total], found


def _row(pair: Pair, each: ProbeResult) -> tuple[str, ...]:
    when = f" after {each.decided_seconds:.1f} s" if each.decided_seconds is not None else ""
    verdict = f"lossy, {each.loss:.2%}{when}" if each.is_lossy else "clean" if not each.lost else "not lossy"
    times = (_milliseconds(each.median_seconds), _milliseconds(each.p99_seconds))
    counts = (each.sent, each.lost, each.lost_there, each.lost_back)
    return (*pair, *map(str, counts), *times, verdict)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f} ms"


def _plain(each: ProbeResult) -> dict[str, Any]:
    return {name: getattr(each, name) for name in (*ProbeResult.__dataclass_fields__, "loss")}


def _bandwidth(listeners: Listeners, seconds: float, groups: Mapping[str, str]) -> Report:
    speeds: dict[Pair, float] = {}
    for pairs in tournament(list(listeners.addresses)):
        for way in (pairs, [pair[::-1] for pair in pairs]):
            speeds |= listeners.bytes_per_second(way, seconds=seconds)
    answered = {pair: 1 / speed for pair, speed in speeds.items() if speed}
    if not answered:
        raise CapacityError("no pair of listeners answered; start them with python -m gangline.fabric.probe")
    silent = tuple(name for name in listeners.addresses if not any(name in pair for pair in answered))
    listeners.unreachable |= dict.fromkeys(silent, "no partner reached its listener")
    return {"bytes_per_second": _pairs(speeds)}, _speeds(speeds), diagnose_pairs(answered, groups=groups)


def _preflight(listeners: Listeners, rounds: int, seconds: float) -> Report:
    def measure(pairs: Sequence[Pair]) -> Mapping[Pair, float]:
        there = listeners.bytes_per_second(pairs, seconds=seconds)
        back = listeners.bytes_per_second([pair[::-1] for pair in pairs], seconds=seconds)
        return {pair: min(there[pair], back[pair[::-1]]) for pair in pairs}

    result = preflight(list(listeners.addresses), measure, rounds=rounds)
    if not result.usual_bytes_per_second:
        raise CapacityError("hardly any pair of listeners answered; start them with python -m gangline.fabric.probe")
    document = {"bytes_per_second": _pairs(result.bytes_per_second), "unsure": list(result.unsure)}
    return document, [*_speeds(result.bytes_per_second), *_unsure(result)], diagnose_preflight(result)


def _unsure(result: PreflightResult) -> list[str]:
    names = ", ".join(result.unsure)
    return [f"slow once, and no fast server was left to test them with: {names}"] if names else []


def _pairs(speeds: Mapping[Pair, float]) -> list[dict[str, Any]]:
    return [{"source": pair[0], "target": pair[1], "bytes_per_second": speed} for pair, speed in speeds.items()]


def _speeds(speeds: Mapping[Pair, float]) -> list[str]:
    slowest = sorted(speeds.items(), key=lambda item: item[1])
    rows = [(*pair, f"{format_bytes(speed)}/s") for pair, speed in slowest[:SHOWN_PATHS]]
    more = [f"{len(slowest) - SHOWN_PATHS} more pairs, all faster"] if len(slowest) > SHOWN_PATHS else []
    return [columns([("FROM", "TO", "SPEED"), *rows]), *more]
