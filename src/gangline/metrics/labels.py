"""Values that labels may take, and how many there may be of those that are not known beforehand."""

from typing import get_args

from gangline.spec.federated import RefusedReason
from gangline.spec.forecast import PARTS
from gangline.spec.measurements import LEDGER_CAUSES, PHASES, Answer
from gangline.spec.record import STAGES, StageState, Verdict

STATISTICS = ("minimum", "median", "maximum")
"""Statistics over the ranks of a gang."""
PHASE_STATISTICS = ("median", "maximum")
"""Statistics of a phase over some steps: its least says nothing."""
STAGE_STATES = get_args(StageState)
RANK_STATES = ("wanted", "joined")
SAVE_PARTS = ("blocking", "whole")
FORECAST_PARTS = ("memory", "step", "wall", "money", "wire", *PARTS)
VERDICTS = get_args(Verdict)
ANSWERS = get_args(Answer)
GATES = ("budget", "base", "reproducible", "processes", "weights", "privacy", "quality", "parity", "other")
"""The part of a gate's name before its colon."""
EXITS = (
    "1", "2", "10", "20", "30", "31", "32", "33", "34", "35", "40", "50", "60", "70", "75", "137", "143", "other",
)  # fmt: skip
"""Every code of `errors`, and death by signal."""
EVENTS = ("push", "pull_request", "other")
DELIVERY_OUTCOMES = ("accepted", "repeated", "ignored", "forged", "malformed", "oversize", "unknown", "failed")
CALL_OUTCOMES = ("ok", "away", "refused", "failed")
STORE_OUTCOMES = ("ok", "conflict", "failed")
STORE_OPERATIONS = ("get", "head", "put", "put_if_absent", "compare_and_set", "list", "delete", "upload")
ORDER_STATES = ("queued", "driving", "parked", "done", "dropped", "quarantined")
REFUSED_REASONS = get_args(RefusedReason)
MEMBER_STATES = ("roster", "accepted", "answered")
BLOCK_OUTCOMES = ("merged", "dropped", "refused")
DIRECTIONS = ("up", "down")
"""Directions of bytes, seen from a member or a worker."""
DROP_REASONS = ("cap", "not_finite", "undeclared")

CLOSED_OF: dict[tuple[str, str], tuple[str, ...]] = {
    ("run_stage", "state"): STAGE_STATES,
    ("gang_ranks", "state"): RANK_STATES,
    ("federated_members", "state"): MEMBER_STATES,
    ("federated_refused_total", "reason"): REFUSED_REASONS,
    ("series_dropped_total", "reason"): DROP_REASONS,
    ("queue_items", "state"): ORDER_STATES,
    ("checkpoint_duration_seconds", "part"): SAVE_PARTS,
    ("plan_forecast_ratio", "part"): FORECAST_PARTS,
    ("train_step_phase_seconds", "statistic"): PHASE_STATISTICS,
    ("runs_total", "verdict"): VERDICTS,
    ("run_verdict", "verdict"): VERDICTS,
    ("gate_verdicts_total", "verdict"): ANSWERS,
    ("run_gate", "gate"): GATES[:-1],
    ("gate_verdicts_total", "gate"): GATES,
    ("webhook_requests_total", "outcome"): DELIVERY_OUTCOMES,
    ("forge_requests_total", "outcome"): CALL_OUTCOMES,
    ("store_requests_total", "outcome"): STORE_OUTCOMES,
    ("ps_blocks_total", "outcome"): BLOCK_OUTCOMES,
}
"""(series without prefix, label) where one word means different things in different series."""
CLOSED: dict[str, tuple[str, ...]] = {
    **{label: () for _, label in CLOSED_OF},
    "stage": STAGES,
    "cause": LEDGER_CAUSES,
    "phase": PHASES,
    "statistic": STATISTICS,
    "direction": DIRECTIONS,
    "exit": EXITS,
    "event": EVENTS,
    "operation": STORE_OPERATIONS,
}
"""Labels whose values are known; the empty value means "not set", as in Prometheus."""

MAX_RANKS = 256
"""Gangs with more ranks have minimum, median and maximum instead of a series for each rank."""
COUNTED: dict[str, int] = {
    "run": 1,
    "project": 1,
    "rank": MAX_RANKS,
    "metric": 15,
    "model": 1,
    "currency": 1,
    "forge": 8,
    "tracker": 8,
}
"""Labels with few values that are not known beforehand, and how many of them one run or project may have."""
CUT = ("commit", "branch", "line", "plan", "target")
"""Text, only on `run_info`."""
MAX_TEXT = 80
SERIES_OF_STAGE = len(STAGE_STATES) + 1
"""Series of a stage of a run: one for each state, and its seconds."""
MAX_SERIES_PER_RUN = 965 + SERIES_OF_STAGE * len(STAGES)
"""Limit of one run, of one project, and of what belongs to neither; it grows with the list of stages."""
MAX_SERIES = 50_000
"""Limit of a whole book, however many runs it holds."""


def values_of(series: str, label: str) -> tuple[str, ...] | None:
    """Values that `label` can take in `series` (without prefix); None where they are not known beforehand."""
    return CLOSED_OF.get((series, label), CLOSED.get(label))


def exit_label(code: int) -> str:
    """The exit code, or `other` for a code of the user's program."""
    return str(code) if str(code) in EXITS else "other"


def gate_label(name: str) -> str:
    """`quality:eval_loss` is `quality`."""
    kind = name.partition(":")[0]
    return kind if kind in GATES else "other"
