"""Promises of each drill beyond recovery and one lost interval; the broken ones, as sentences. Pure."""

from collections.abc import Callable, Iterator

from gangline.drill.availability import Availability
from gangline.drill.history import Aftermath, Injection
from gangline.errors import NonFiniteError, OutOfMemoryError
from gangline.units import format_seconds

SHORT_FREEZE_SECONDS = 10.0
"""A freeze shorter than the watchdog's limit must pass without a restart."""
WATCHDOG_SECONDS = 14.0
"""10 s beyond two steps, two polls, the collection of stacks, and 2 s for a busy machine."""
NAMED_SECONDS = 60.0
MOST_CHARGES = 2
"""Charged restarts for two kills; one if the second comes within a second."""
SLOWER, SLACK_SECONDS = 1.5, 0.1
"""Limit of a step during an outage: a multiple of the usual time, and seconds for a busy machine."""


def no_promises(injection: Injection, after: Aftermath) -> Iterator[str]:
    """Promise nothing further."""
    del injection, after
    yield from ()


def _freeze(injection: Injection, after: Aftermath) -> Iterator[str]:
    short = injection.seconds is not None and injection.seconds < SHORT_FREEZE_SECONDS
    if short and after.restarts:
        yield f"a stop of {format_seconds(injection.seconds or 0)} cost a restart"


def _hang(injection: Injection, after: Aftermath) -> Iterator[str]:
    if after.detect_seconds is None:
        yield "no watchdog noticed"
        return
    most = 2 * (after.usual_step or 0.0) + WATCHDOG_SECONDS
    if after.detect_seconds > most:
        yield f"found after {after.detect_seconds:.1f} s, promised within {most:.1f} s"
    if f"rank {injection.rank} " not in after.detected:
        yield f"rank {injection.rank} hung, detected was: {after.detected}"


def _twice(injection: Injection, after: Aftermath) -> Iterator[str]:
    del injection
    if after.charged > MOST_CHARGES:
        yield f"two kills cost {after.charged} restarts of the budget"


def _uncharged(injection: Injection, after: Aftermath) -> Iterator[str]:
    """Leaving together costs no step and no restart."""
    if after.charged:
        yield f"{after.charged} restarts were charged, promised none"
    if after.lost_steps:
        yield f"lost {after.lost_steps} steps, promised none: all ranks save before they leave"
    if injection.ranks and after.world_size not in (None, injection.ranks):
        yield f"continued with {after.world_size} ranks, {injection.ranks} were requested"


def _slow(injection: Injection, after: Aftermath) -> Iterator[str]:
    if after.detect_seconds is None:
        yield f"rank {injection.rank} was not reported as slow"
    elif after.detect_seconds > NAMED_SECONDS:
        yield f"reported after {after.detect_seconds:.1f} s, promised within {NAMED_SECONDS:g} s"
    if after.restarts:
        yield "a slow rank cost a restart"


def _poison(injection: Injection, after: Aftermath) -> Iterator[str]:
    """The step is detected at once, and nothing of it is saved."""
    if not after.answer:
        yield "no step was reported as not finite"
    elif f"step {injection.step + 1} " not in after.detected:
        yield f"step {injection.step + 1} was poisoned, detected was: {after.detected}"
    yield from _ends(injection, after)
    if after.charged:
        yield f"a bad batch cost {after.charged} restarts of the budget"


def _oom(injection: Injection, after: Aftermath) -> Iterator[str]:
    yield from _ends(injection, after)
    if after.restarts:
        yield f"{after.restarts} generations tried again with as much memory"


def _ends(injection: Injection, after: Aftermath) -> Iterator[str]:
    """The gang ends with the exit code of the fault, if it is expected to end."""
    names = {NonFiniteError.exit_code: "not finite", OutOfMemoryError.exit_code: "out of memory"}
    if injection.ends is not None and after.exit_code != injection.ends:
        found = "it continued" if after.exit_code is None else f"it ended with {after.exit_code}"
        yield f"promised exit {injection.ends}, {names.get(injection.ends, '')}; {found}"
    if after.bad_saves:
        yield f"step {after.bad_saves[0]} was saved after the fault"


def _lost_node(injection: Injection, after: Aftermath) -> Iterator[str]:
    del injection
    if after.detect_seconds is None:
        yield "no keeper noticed"
    if after.charged > 1:
        yield f"one lost node cost {after.charged} restarts of the budget"
    if not after.source:
        yield "nothing was opened again: neither a copy in memory nor the store had a checkpoint"


PROMISES: dict[str, Callable[[Injection, Aftermath], Iterator[str]]] = {
    "freeze-rank": _freeze,
    "hang-rank": _hang,
    "kill-twice": _twice,
    "slow-rank": _slow,
    "stop": _uncharged,
    "resize": _uncharged,
    "poison": _poison,
    "oom": _oom,
    "lose-node": _lost_node,
}


def store_promises(name: str, injection: Injection, after: Aftermath, effect: Availability) -> Iterator[str]:
    """Promises of an outage of the store, which must not cost the gang a step."""
    gives_up = name == "fill-disk" and (injection.seconds or 0.0) > injection.patience
    if after.restarts and not gives_up:
        yield f"an outage of the store cost {after.restarts} restarts"
    if not effect.steps and not effect.ended:
        yield "no step was finished during the outage"
    if effect.usual_step and effect.step_during and effect.step_during > SLOWER * effect.usual_step + SLACK_SECONDS:
        yield f"steps took {effect.step_during:.2f} s during the outage, before {effect.usual_step:.2f} s"
    if effect.durable_step is None:
        yield "nothing was saved after the outage"
    if name == "fill-disk":
        yield from _full(effect, gives_up=gives_up)


def _full(effect: Availability, *, gives_up: bool) -> Iterator[str]:
    if not effect.failed:
        yield "no save was reported as failed"
    elif "full" not in effect.said and "space" not in effect.said:
        yield f"the reason of the failure is not a full disk: {effect.said}"
    if effect.gave_up and not gives_up:
        yield "the ranks exited before train.checkpoint.max_unsaved_seconds"
    if gives_up and not effect.gave_up:
        yield "the ranks continued beyond train.checkpoint.max_unsaved_seconds without exit 40"
