"""Result of a gang on one node: exit code, evidence, and the ledger of its ranks' seconds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gangline.keeper.coordination.restart_policy import RestartDecision
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.logs.rank_files import final_exception, last_ledger
from gangline.keeper.node_ledger import ProcessSpan, excess_seconds, sum_node_seconds
from gangline.keeper.ranks.generation_result import GenerationResult
from gangline.keeper.ranks.rank_exit import RankExit, read_oom_kills
from gangline.spec.codec import to_plain
from gangline.spec.gang.status import GangEnd
from gangline.units import now


def gang_end(
    decision: RestartDecision,
    outcome: GenerationResult | None,
    *,
    environment: KeeperEnvironment,
    generation: int,
    restarts: int,
    spans: Sequence[ProcessSpan],
    wall: tuple[float, float],
    gathered: float | None = None,
) -> GangEnd:
    """Exit file of the node.

    Args:
        decision: How the gang ended.
        outcome: Of the last generation.
        environment: Of the keeper.
        generation: Number of the last generation.
        restarts: Of the gang.
        spans: Start and end of all processes of ranks.
        wall: Start and end of the keeper, monotonic.
        gathered: When the keepers of all nodes were connected; None: there is only one.
    """
    slots = environment.local_world_size
    return GangEnd(
        exit_code=decision.exit_code,
        retry=decision.retry,
        reason=decision.reason,
        culprit=decision.culprit,
        generation=generation,
        step=outcome.step if outcome else None,
        saved_step=outcome.saved_step if outcome else None,
        restarts=restarts,
        time=now(),
        evidence=_evidence(decision, outcome, logs=environment.home / "logs"),
        ledger=sum_node_seconds(
            spans, slots=slots, start=wall[0], end=wall[1], gathered=gathered, last_generation=generation
        ),
        allocated_seconds=slots * (wall[1] - wall[0]) + excess_seconds(spans, slots=slots),
    )


def process_spans(
    exits: Sequence[RankExit], started: Mapping[int, float], *, generation: int, events: Path, first: int,
    stalled: float = 0.0,
) -> list[ProcessSpan]:  # fmt: skip
    """Start and end of ranks that ended in a generation, each with its last ledger from its file below `events`.

    `first`: lowest rank of this node in it; `stalled`: seconds of silence before the watchdog ended it.
    """
    spans = []
    for rank_exit in exits:
        ledger = last_ledger(events / f"{rank_exit.rank}.jsonl", generation)
        span = ProcessSpan(
            slot=rank_exit.rank - first,
            generation=generation,
            started=started[rank_exit.rank],
            ended=rank_exit.mono,
            booked=ledger["seconds"] if ledger else {},
            booked_at=ledger["mono"] if ledger else None,
            stalled=stalled,
            clean=rank_exit.signal is None,
        )
        spans.append(span)
    return spans


def _evidence(decision: RestartDecision, outcome: GenerationResult | None, *, logs: Path) -> dict[str, Any]:
    """What explains the exit code; after success a traceback that ends a rank's log, and processes that ranks left."""
    if outcome is None:
        return {}
    evidence: dict[str, Any] = {"processes": to_plain(outcome.processes)} if outcome.processes else {}
    if decision.exit_code == 0:
        found = ((rank_exit.rank, final_exception(logs / f"{rank_exit.rank}.log")) for rank_exit in outcome.exits)
        traceback = next(({"traceback": {"rank": rank, "said": said}} for rank, said in found if said), {})
        return evidence | traceback | ({"leftovers": list(outcome.leftovers)} if outcome.leftovers else {})
    exits = {str(rank_exit.rank): {"code": rank_exit.code, "signal": rank_exit.signal} for rank_exit in outcome.exits}
    evidence |= {"exits": exits, "oom_kills": read_oom_kills()}
    if decision.culprit is not None:
        evidence["log"] = list(outcome.log)
    if outcome.stacks:
        evidence["stacks"] = outcome.stacks
    return evidence
