"""Events of ranks as drivers take them: a program may write anything into its file, and drivers compute with it.

An event whose figures are none is left out before anybody sees it. Pure.
"""

from collections.abc import Mapping
from typing import Any

LARGEST = float(1 << 53)
"""Largest figure of an event other than a loss, which may diverge."""
MOST_RANKS = 1 << 20
_FIGURES: Mapping[str, tuple[str, ...]] = {
    "step": ("seconds", "tokens", "mfu"),
    "round": ("seconds",),
    "merged": ("num_dropped", "num_refused", "age_mean", "silent_seconds"),
    "straggler": ("ratio", "seconds"),
    "worker_silent": ("seconds",),
    "worker_back": ("seconds", "without_store"),
    "worker_slow": ("ratio",),
    "busy": ("step",),
    "resumed": ("step",),
    "job_started": ("jobs", "index", "steps"),
}
"""Figures of each event that drivers compute with; each may be missing."""
_STEPS = ("step", "round")
"""Events that need a step, and have a loss."""


def is_usable(event: Mapping[str, Any]) -> bool:
    """Whether what drivers compute with are numbers that they can be."""
    name, rank = event.get("event"), event.get("rank", 0)
    if not (isinstance(rank, int) and 0 <= rank < MOST_RANKS):
        return False
    if not isinstance(name, str) or name not in _FIGURES:
        return True
    figures = [event.get(each) for each in _FIGURES[name]]
    if name in _STEPS:
        phases = event.get("phases") or {}
        if event.get("step") is None or not isinstance(phases, dict):
            return False
        figures += [event["step"], *phases.values()]
    return all(figure is None or _is_figure(figure) for figure in figures) and _is_loss(event.get("loss"))


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_loss(value: object) -> bool:
    return value is None or isinstance(value, float) or _is_figure(value)
