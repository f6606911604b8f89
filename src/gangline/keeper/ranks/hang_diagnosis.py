"""Diagnosis of a hang: stacks of the ranks, and from torch's flight records which rank is behind.

A rank writes its stacks on SIGUSR1 and its flight record on SIGUSR2, from a thread, even while everything else in it
waits. A rank whose interpreter lock is held cannot answer, which is reported as such.
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
_LIMIT_BYTES = 4096


def collect_stacks(ranks: Mapping[int, tuple[int, Path]]) -> dict[str, str]:
    """Words about each rank, given as pid and log: its stacks, or why there are none. Takes a second at most."""
    asked: dict[int, int] = {}
    found: dict[str, str] = {}
    for rank, (pid, log) in ranks.items():
        if state(pid) == "T":
            found[str(rank)] = "stopped by a signal (SIGSTOP); it cannot say where it is"
        elif catches(pid, STACKS_SIGNAL):
            asked[rank] = log.stat().st_size
            with suppress(ProcessLookupError):  # it ended on its own meanwhile
                os.kill(pid, STACKS_SIGNAL)
        else:
            found[str(rank)] = "a program that does not answer SIGUSR1"
    if asked:
        time.sleep(_STACKS_SECONDS / 2)
    patience = time.monotonic() + _STACKS_SECONDS / 2
    for rank, size in asked.items():
        found[str(rank)] = _new_output(ranks[rank][1], size, patience) or "it did not answer SIGUSR1"
    return found


def _new_output(log: Path, start: int, patience: float) -> str:
    while log.stat().st_size == start and time.monotonic() < patience:
        time.sleep(0.02)
    with log.open("rb") as file:
        file.seek(start)
        return file.read(_LIMIT_BYTES).decode(errors="replace")


_RECORDS_SECONDS = 1.5
_SHOWN = 6
_PAIR = "a pair in "
"""Head of the name of a group whose messages go from one rank to another: each counts its own."""

Dump = Mapping[str, Any]
"""What torch writes: `entries`, one a collective, oldest first."""


def describe_lagging_rank(heartbeats: Path, pids: Mapping[int, int]) -> str:
    """A sentence about the living ranks `pids`, from what they recorded; empty: it tells nobody apart.

    Takes a second or two at most.
    """
    asked = [rank for rank, pid in pids.items() if _ask(heartbeats / str(rank), pid)]
    patience = time.monotonic() + _RECORDS_SECONDS
    dumps: dict[int, Dump] = {}
    while len(dumps) < len(asked) and time.monotonic() < patience:
        time.sleep(0.05)
        dumps |= {rank: found for rank in asked if rank not in dumps and (found := _read(heartbeats / str(rank)))}
    return lagging_rank(dumps)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective that somebody has entered and not left."""

    group: str
    number: int
    name: str


def lagging_rank(dumps: Mapping[int, Dump]) -> str:
    """Who holds the others up by their records, in a sentence; empty: nobody waits, or all wait alike. Pure."""
    waiting = {rank: places for rank, dump in dumps.items() if (places := _waits(dump))}
    entered = {rank: _entered(dump) for rank, dump in dumps.items()}
    if words := _mixed_up(entered, waiting):
        return words
    unfinished = {each for places in waiting.values() for each in places if not each.group.startswith(_PAIR)}
    late = [
        (rank, place)
        for place in sorted(unfinished, key=lambda each: each.number)
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
        return f"{_wait([*waiting])} for others, {_wait(idle)} for nobody"
    return ""


def _waits(dump: Dump) -> list[CollectiveCall]:
    """What a rank has entered and not left."""
    return [_call(each) for each in dump.get("entries", ()) if not each.get("retired", True)]


def _call(entry: Mapping[str, Any]) -> CollectiveCall:
    group = entry.get("process_group") or ["0"]
    number = entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"]
    name = str(entry.get("profiling_name", "")).rpartition(":")[2]
    return CollectiveCall(f"{_PAIR}{group[0]}" if entry.get("is_p2p") else str(group[0]), int(number), name)


def _entered(dump: Dump) -> dict[str, dict[int, str]]:
    """Names of the collectives that a rank entered, by group and number."""
    found: dict[str, dict[int, str]] = {}
    for each in map(_call, dump.get("entries", ())):
        found.setdefault(each.group, {})[each.number] = each.name
    return found


def _is_member(dumps: Mapping[int, Dump], group: str, rank: int) -> bool:
    """Whether a rank belongs to a group: it was seen in it, or the group is that of all."""
    return group == "0" or group in _entered(dumps[rank])


def _mixed_up(entered: Mapping[int, dict[str, dict[int, str]]], waiting: Mapping[int, Sequence[CollectiveCall]]) -> str:
    """Ranks that meet in different collectives wait for ever."""
    for rank, places in waiting.items():
        for place in places:
            for other, groups in entered.items():
                name = groups.get(place.group, {}).get(place.number, place.name)
                if name != place.name and not place.group.startswith(_PAIR):
                    where = f"{place.name} {place.number}{_of(place.group)}"
                    return f"rank {rank} entered {where} where rank {other} entered {name}: they do different things"
    return ""


def _of(group: str) -> str:
    return "" if group == "0" else f" of group {group}"


def _wait(ranks: Sequence[int]) -> str:
    """`rank 0 waits`, `ranks 0, 2 wait`."""
    shown = ", ".join(map(str, sorted(ranks)[:_SHOWN])) + (f" and {len(ranks) - _SHOWN} more" * (len(ranks) > _SHOWN))
    return f"rank {shown} waits" if len(ranks) == 1 else f"ranks {shown} wait"


def _ask(heartbeat: Path, pid: int) -> bool:
    """False: this process does not answer such signals."""
    flight_record_path(heartbeat).unlink(missing_ok=True)
    if not catches(pid, FLIGHT_SIGNAL):
        return False
    with suppress(ProcessLookupError):  # it ended on its own meanwhile
        os.kill(pid, FLIGHT_SIGNAL)
    return True


def _read(heartbeat: Path) -> Dump | None:
    """None: it is not there yet."""
    try:
        found = json.loads(flight_record_path(heartbeat).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
