"""Diagnosis of a hang: stacks of the ranks, and the lagging rank according to torch's flight records.

A rank writes its stacks on SIGUSR1 and its flight record on SIGUSR2, from a thread, even while its other threads wait.
A rank whose interpreter lock is held cannot answer; its stacks are reported as missing.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.keeper.ipc.signals import FLIGHT_SIGNAL, STACKS_SIGNAL, flight_record_path
from gangline.procfs import catches, state

_STACKS_SECONDS = 1.0
_RECORDS_SECONDS = 1.5
_LIMIT_BYTES = 4096


def collect_stacks(ranks: Mapping[int, tuple[int, Path]]) -> dict[str, str]:
    """Stacks of each rank, given as pid and log, or the reason why there are none. Takes a second at most."""
    asked: dict[int, int] = {}
    found: dict[str, str] = {}
    for rank, (pid, log) in ranks.items():
        if state(pid) == "T":
            found[str(rank)] = "stopped by a signal (SIGSTOP): no stacks"
        elif catches(pid, STACKS_SIGNAL):
            asked[rank] = log.stat().st_size
            with suppress(ProcessLookupError):  # the rank ended meanwhile
                os.kill(pid, STACKS_SIGNAL)
        else:
            found[str(rank)] = "a program that does not handle SIGUSR1: no stacks"
    if asked:
        time.sleep(_STACKS_SECONDS / 2)
    deadline = time.monotonic() + _STACKS_SECONDS / 2
    for rank, size in asked.items():
        found[str(rank)] = _new_output(ranks[rank][1], size, deadline) or "it did not answer SIGUSR1"
    return found


def _new_output(log: Path, start: int, deadline: float) -> str:
    while log.stat().st_size == start and time.monotonic() < deadline:
        time.sleep(0.02)
    with log.open("rb") as file:
        file.seek(start)
        return file.read(_LIMIT_BYTES).decode(errors="replace")


_SHOWN = 6
_PAIR = "a pair in "
"""Prefix of the name of a point-to-point group: each pair of ranks counts its own messages."""

Dump = Mapping[str, Any]
"""Flight record as torch writes it: `entries`, one per collective, oldest first."""


def describe_lagging_rank(heartbeats: Path, pids: Mapping[int, int]) -> str:
    """Sentence that names the lagging rank among the living ranks `pids`, from their flight records; empty: unknown.

    Takes two seconds at most.
    """
    asked = [rank for rank, pid in pids.items() if _request_record(heartbeats / str(rank), pid)]
    deadline = time.monotonic() + _RECORDS_SECONDS
    dumps: dict[int, Dump] = {}
    while len(dumps) < len(asked) and time.monotonic() < deadline:
        time.sleep(0.05)
        dumps |= {rank: found for rank in asked if rank not in dumps and (found := _read(heartbeats / str(rank)))}
    return lagging_rank(dumps)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective, by group and sequence number."""

    group: str
    number: int
    name: str


def lagging_rank(dumps: Mapping[int, Dump]) -> str:
    """Sentence that names the rank that delays the others; empty: no rank waits, or all wait alike. Pure."""
    waiting = {rank: places for rank, dump in dumps.items() if (places := _waits(dump))}
    entered = {rank: _entered(dump) for rank, dump in dumps.items()}
    if mismatch := _mismatch(entered, waiting):
        return mismatch
    unfinished = {call for places in waiting.values() for call in places if not call.group.startswith(_PAIR)}
    late = [
        (rank, place)
        for place in sorted(unfinished, key=lambda call: call.number)
        for rank in dumps
        if _is_member(dumps, place.group, rank) and max(entered[rank].get(place.group, {0: ""})) < place.number
    ]
    culprits = [(rank, place) for rank, place in late if rank not in waiting] or late
    if culprits:
        rank, place = culprits[0]
        others = [each for each, places in waiting.items() if place in places]
        return f"rank {rank} never entered {place.name} {place.number}{_of(place.group)}; {_wait(others)} in it"
    idle = [rank for rank in dumps if rank not in waiting]
    if waiting and idle:
        return f"{_wait([*waiting])} in a collective, {_are(idle)} in none"
    return ""


def _waits(dump: Dump) -> list[CollectiveCall]:
    """Collectives that a rank has entered and not left."""
    return [_call(each) for each in dump.get("entries", ()) if not each.get("retired", True)]


def _call(entry: Mapping[str, Any]) -> CollectiveCall:
    group = entry.get("process_group") or ["0"]
    number = entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"]
    name = str(entry.get("profiling_name", "")).rpartition(":")[2]
    return CollectiveCall(f"{_PAIR}{group[0]}" if entry.get("is_p2p") else str(group[0]), int(number), name)


def _entered(dump: Dump) -> dict[str, dict[int, str]]:
    """Names of the collectives that a rank entered, by group and number."""
    found: dict[str, dict[int, str]] = {}
    for call in map(_call, dump.get("entries", ())):
        found.setdefault(call.group, {})[call.number] = call.name
    return found


def _is_member(dumps: Mapping[int, Dump], group: str, rank: int) -> bool:
    """Whether a rank belongs to a group: it entered a collective of it, or it is the group of all ranks."""
    return group == "0" or group in _entered(dumps[rank])


def _mismatch(entered: Mapping[int, dict[str, dict[int, str]]], waiting: Mapping[int, Sequence[CollectiveCall]]) -> str:
    """Sentence about two ranks that entered different collectives at the same place; empty: none did."""
    for rank, places in waiting.items():
        for place in places:
            for other, groups in entered.items():
                name = groups.get(place.group, {}).get(place.number, place.name)
                if name != place.name and not place.group.startswith(_PAIR):
                    where = f"{place.name} {place.number}{_of(place.group)}"
                    return f"rank {rank} entered {where} where rank {other} entered {name}: the collectives differ"
    return ""


def _of(group: str) -> str:
    return "" if group == "0" else f" of group {group}"


def _wait(ranks: Sequence[int]) -> str:
    """`rank 0 waits`, `ranks 0, 2 wait`."""
    return f"{_names(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def _names(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(ranks)[:_SHOWN])) + (f" and {len(ranks) - _SHOWN} more" * (len(ranks) > _SHOWN))
    return f"rank{'s' * (len(ranks) > 1)} {shown}"


def _are(ranks: Sequence[int]) -> str:
    """`rank 0 is`, `ranks 0, 2 are`."""
    return f"{_names(ranks)} {'is' if len(ranks) == 1 else 'are'}"


def _request_record(heartbeat: Path, pid: int) -> bool:
    """Request a flight record; False: this process does not handle the signal."""
    flight_record_path(heartbeat).unlink(missing_ok=True)
    if not catches(pid, FLIGHT_SIGNAL):
        return False
    with suppress(ProcessLookupError):  # the rank ended meanwhile
        os.kill(pid, FLIGHT_SIGNAL)
    return True


def _read(heartbeat: Path) -> Dump | None:
    """None: it is not complete yet."""
    try:
        found = json.loads(flight_record_path(heartbeat).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
