"""Result of a gang on one node: exit code, evidence, and where the seconds of its ranks went."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gangline.keeper.coordination.restart_policy import RestartDecision
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ledger import ProcessSpan, excess_seconds, merge_ledgers
from gangline.keeper.logs.journal import utc_now
from gangline.keeper.logs.log_tail import final_exception
from gangline.keeper.logs.rank_files import last_ledger
from gangline.keeper.ranks.generation_result import GenerationResult
from gangline.keeper.ranks.rank_exit import RankExit, read_oom_kills
from gangline.spec.gang.status import GangEnd


def gang_end(
    verdict: RestartDecision,
    outcome: GenerationResult | None,
    *,
    environment: KeeperEnvironment,
    generation: int,
    restarts: int,
    spans: Sequence[ProcessSpan],
    wall: tuple[float, float],
    gathered: float | None = None,
) -> GangEnd:
    """All of it in one piece; `outcome` is the last generation's, `wall` the keeper's life by the monotonic clock.

    `gathered`: when the keepers of all nodes were there; None: there is one only.
    """
    slots = environment.local_world_size
    return GangEnd(
        exit_code=verdict.exit_code,
        retry=verdict.retry,
        reason=verdict.reason,
        culprit=verdict.culprit,
        generation=generation,
        step=outcome.step if outcome else None,
        restarts=restarts,
        time=utc_now(),
        evidence=_evidence(verdict, outcome, logs=environment.home / "logs"),
        ledger=merge_ledgers(
            spans, slots=slots, start=wall[0], end=wall[1], gathered=gathered, last_generation=generation
        ),
        allocated_seconds=slots * (wall[1] - wall[0]) + excess_seconds(spans, slots=slots),
    )


def process_spans(
    exits: Sequence[RankExit], started: Mapping[int, float], *, generation: int, events: Path, first: int,
    stalled: float = 0.0,
) -> list[ProcessSpan]:  # fmt: skip
    """Lives of ranks that ended in a generation, each with its own last ledger from its file below `events`.

    `first`: the lowest rank that this node has in it; `stalled`: seconds of silence before the watchdog ended it.
    """
    spans = []
    for each in exits:
        ledger = last_ledger(events / f"{each.rank}.jsonl", generation)
        span = ProcessSpan(
            slot=each.rank - first,
            generation=generation,
            started=started[each.rank],
            ended=each.mono,
            booked=ledger["seconds"] if ledger else {},
            booked_at=ledger["mono"] if ledger else None,
            stalled=stalled,
            clean=each.signal is None,
        )
        spans.append(span)
    return spans


def _evidence(verdict: RestartDecision, outcome: GenerationResult | None, *, logs: Path) -> dict[str, Any]:
    """What a person asks next; where all went well, a traceback that the log of a rank ends with nevertheless."""
    if outcome is None:
        return {}
    if verdict.exit_code == 0:
        found = ((each.rank, final_exception(logs / f"{each.rank}.log")) for each in outcome.exits)
        return next(({"traceback": {"rank": rank, "said": said}} for rank, said in found if said), {})
    exits = {str(each.rank): {"code": each.code, "signal": each.signal} for each in outcome.exits}
    evidence: dict[str, Any] = {"exits": exits, "oom_kills": read_oom_kills()}
    if verdict.culprit is not None:
        evidence["log"] = list(outcome.log)
    if outcome.stacks:
        evidence["stacks"] = outcome.stacks
    return evidence
