"""Promises of each drill beyond recovery and one lost interval; the broken ones, as sentences. Pure."""

from collections.abc import Callable, Iterator

from gangline.drill.availability import Availability
from gangline.drill.history import Aftermath, Injection
from gangline.errors import NonFiniteError, OutOfMemoryError
from gangline.units import format_seconds

SHORT_FREEZE_SECONDS = 10.0
"""A stop shorter than the watchdog's patience must pass without a restart."""
WATCHDOG_SECONDS = 14.0
"""Its 10 s beyond two steps, two looks, the stacks that it collects before it speaks, and a busy machine's 2 s."""
NAMED_SECONDS = 60.0
MOST_CHARGES = 2
"""Of two kills: one where the second comes within a second."""
SLOWER, SLACK_SECONDS = 1.5, 0.1
"""What a step may take while the store is away: a share of the usual, and what a busy machine adds."""


def nothing_more(strike: Injection, after: Aftermath) -> Iterator[str]:
    del strike, after
    yield from ()


def _freeze(strike: Injection, after: Aftermath) -> Iterator[str]:
    short = strike.seconds is not None and strike.seconds < SHORT_FREEZE_SECONDS
    if short and after.restarts:
        yield f"a stop of {format_seconds(strike.seconds or 0)} cost a restart"


def _hang(strike: Injection, after: Aftermath) -> Iterator[str]:
    if after.detect_seconds is None:
        yield "no watchdog noticed"
        return
    most = 2 * (after.usual_step or 0.0) + WATCHDOG_SECONDS
    if after.detect_seconds > most:
        yield f"found after {after.detect_seconds:.1f} s, promised within {most:.1f} s"
    if f"rank {strike.rank} " not in after.detected:
        yield f"rank {strike.rank} hung, said was: {after.detected}"


def _twice(strike: Injection, after: Aftermath) -> Iterator[str]:
    del strike
    if after.charged > MOST_CHARGES:
        yield f"two kills cost {after.charged} restarts of the budget"


def _uncharged(strike: Injection, after: Aftermath) -> Iterator[str]:
    """Leaving together costs neither a step nor the budget."""
    if after.charged:
        yield f"{after.charged} restarts were charged, promised none"
    if after.lost_steps:
        yield f"lost {after.lost_steps} steps, promised none: all save before they leave"
    if strike.ranks and after.world_size not in (None, strike.ranks):
        yield f"went on with {after.world_size} ranks, {strike.ranks} were asked for"


def _slow(strike: Injection, after: Aftermath) -> Iterator[str]:
    if after.detect_seconds is None:
        yield f"nobody named rank {strike.rank} as slow"
    elif after.detect_seconds > NAMED_SECONDS:
        yield f"named after {after.detect_seconds:.1f} s, promised within {NAMED_SECONDS:g} s"
    if after.restarts:
        yield "a slow rank cost a restart"


def _poison(strike: Injection, after: Aftermath) -> Iterator[str]:
    """Judged in that very step, nothing of it saved."""
    if not after.answer:
        yield "nobody saw a step that was not finite"
    elif f"step {strike.step + 1} " not in after.detected:
        yield f"step {strike.step + 1} was poisoned, said was: {after.detected}"
    yield from _ends(strike, after)
    if after.charged:
        yield f"a bad batch cost {after.charged} restarts of the budget"


def _oom(strike: Injection, after: Aftermath) -> Iterator[str]:
    yield from _ends(strike, after)
    if after.restarts:
        yield f"{after.restarts} generations tried again with as much memory"


def _ends(strike: Injection, after: Aftermath) -> Iterator[str]:
    """With the class that the fault has, if the gang is to end of it."""
    names = {NonFiniteError.exit_code: "not finite", OutOfMemoryError.exit_code: "out of memory"}
    if strike.ends is not None and after.exit_code != strike.ends:
        found = "it went on" if after.exit_code is None else f"it ended with {after.exit_code}"
        yield f"promised exit {strike.ends}, {names.get(strike.ends, '')}; {found}"
    if after.bad_saves:
        yield f"step {after.bad_saves[0]} was saved, and came after the fault"


def _lost_node(strike: Injection, after: Aftermath) -> Iterator[str]:
    del strike
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


def store_promises(name: str, strike: Injection, after: Aftermath, felt: Availability) -> Iterator[str]:
    """Of a store that was away, full or slow: an outage beside the gang costs it no step."""
    gives_up = name == "fill-disk" and (strike.seconds or 0.0) > strike.patience
    if after.restarts and not gives_up:
        yield f"an outage of the store cost {after.restarts} restarts"
    if not felt.steps and not felt.ended:
        yield "no step was finished while it lasted"
    if felt.usual_step and felt.step_during and felt.step_during > SLOWER * felt.usual_step + SLACK_SECONDS:
        yield f"steps took {felt.step_during:.2f} s while it lasted, before {felt.usual_step:.2f} s"
    if felt.durable_step is None:
        yield "nothing was saved once it was over"
    if name == "fill-disk":
        yield from _full(felt, gives_up=gives_up)


def _full(felt: Availability, *, gives_up: bool) -> Iterator[str]:
    if not felt.failed:
        yield "no save was reported as failed"
    elif "full" not in felt.said and "space" not in felt.said:
        yield f"the alarm does not say that there is no room: {felt.said}"
    if felt.gave_up and not gives_up:
        yield "the ranks gave up before train.checkpoint.max_unsaved_seconds"
    if gives_up and not felt.gave_up:
        yield "the ranks went on beyond train.checkpoint.max_unsaved_seconds without exit 40"
