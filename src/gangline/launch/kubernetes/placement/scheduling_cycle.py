"""One pass over the marked gangs of one pool, from what was read to what is written.

    the root is      the ledger has      then
    gone, ended      a promise           drop it, once no pod of it can be bound any more
    suspended        nothing             its turn? choose servers, promise them, unsuspend
    suspended        a promise           never unsuspended under it: unsuspend
                                         else it was suspended again: drop it, once its pods are gone
    runs             nothing             promise anew what its root says it has; else suspend it
    runs             a promise           `tend`: all pods there, open their gates; not in time, suspend it
    runs             a whole promise     `tend`: a gated pod is a replacement, its old server or the nearest

A promise comes before the unsuspending, the suspending before the drop: whoever dies in between leaves a line of this
table, which the next pass completes. And nobody who is slow can open a gate of a promise that was dropped, as there is
no gate left.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from gangline.errors import CapacityError
from gangline.launch.kubernetes.client.api import ApiConflict, ApiRejected, Object
from gangline.launch.kubernetes.objects.labels import GANG, MANAGED_BY, SERVERS, WAITS
from gangline.launch.kubernetes.placement.cycle_context import CycleContext
from gangline.launch.kubernetes.placement.gang_pods import is_bound
from gangline.launch.kubernetes.placement.ledger import Reservation
from gangline.launch.kubernetes.placement.queued_gangs import PLACED, QueuedGang, QueueOrder
from gangline.launch.kubernetes.placement.release import advance_release
from gangline.launch.kubernetes.placement.server_selection import NoPlacement, ServerSelector
from gangline.launch.kubernetes.state.pods import is_living, list_pods, pods_path

TURN_SECONDS = 600.0
"""Gangs that fit overtake one that does not, until it has waited this long."""
NAMED_HOLDERS = 3


def run_scheduling_cycle(turn: CycleContext, gangs: Sequence[QueuedGang], choose: ServerSelector) -> None:
    """Place `gangs`, which are those of the pool of `turn` in their order, read after its ledger.

    Raises:
        Conflict: Another placer was first: what it did is seen at the next step.
    """
    _drop_the_gone(turn, gangs)
    running = [gang for gang in gangs if not gang.root.is_suspended]
    unsettled = {gang.name for gang in running if _is_unsettled(turn, gang)}
    pending = _with_pending_pods(turn) if len(unsettled) < len(running) else set()
    for gang in running:
        if gang.name in unsettled | pending:
            with _alone(turn, gang):
                advance_release(turn, gang)
    _start(turn, gangs, choose)


@contextmanager
def _alone(turn: CycleContext, gang: QueuedGang) -> Iterator[None]:
    """What the server refuses to one gang, or finds no room in the ledger, stops no other."""
    try:
        yield
    except ApiConflict:
        raise
    except (ApiRejected, CapacityError) as error:
        turn.say(gang, str(error))


def _drop_the_gone(turn: CycleContext, gangs: Iterable[QueuedGang]) -> None:
    living = {gang.name: gang.root.uid for gang in gangs}
    gone = [name for name, promise in turn.ledger.promises.items() if living.get(name) != promise.uid]
    turn.drop([name for name in gone if not any(_may_be_bound(pod) for pod in list_pods(turn.api, name))])


def _may_be_bound(pod: Object) -> bool:
    """A slow placer may still open its gate; what is bound counts by its requests."""
    return is_living(pod) and not is_bound(pod)


def _is_unsettled(turn: CycleContext, gang: QueuedGang) -> bool:
    promise = turn.ledger.promises.get(gang.name)
    return promise is None or not promise.whole or bool(promise.leaving)


def _with_pending_pods(turn: CycleContext) -> set[str]:
    """Replacements of whole gangs wait behind their gates, and gated pods are pending."""
    labels = f"{MANAGED_BY}=gangline"
    pending = turn.api.items(pods_path(turn.api), labels=labels, fields="status.phase=Pending", bare=True)
    return {(pod["metadata"].get("labels") or {}).get(GANG, "") for pod in pending[0]}


def _is_due(turn: CycleContext, gang: QueuedGang) -> bool:
    return gang.refusal is None or turn.age(gang.refusal.until) >= 0


def _start(turn: CycleContext, gangs: Sequence[QueuedGang], choose: ServerSelector) -> None:
    holds_back = ""
    holding = [gang for gang in gangs if gang.name in turn.ledger.promises]
    turns = QueueOrder([gang for gang in gangs if gang.root.is_suspended], holding)
    for gang in turns:
        promise = turn.ledger.promises.get(gang.name)
        with _alone(turn, gang):
            if promise is not None:
                _complete(turn, gang, promise)
            elif holds_back and _is_due(turn, gang):
                turn.say(gang, f"waits its turn behind {holds_back}, for which servers are kept free")
            elif _is_due(turn, gang):
                why = _place(turn, gang, choose)
                if why is None:
                    turns.charge(gang)
                elif not why.never and turn.age(gang.queued.isoformat()) >= TURN_SECONDS:
                    holds_back = gang.name


def _complete(turn: CycleContext, gang: QueuedGang, promise: Reservation) -> None:
    if gang.root.annotations.get(PLACED) != promise.since:
        _unsuspend(turn, gang, promise)
    elif not turn.pods(gang).living:
        turn.drop([gang.name])


def _place(turn: CycleContext, gang: QueuedGang, choose: ServerSelector) -> NoPlacement | None:
    answer = choose(turn.fleet.rooms(gang.wanted, turn.ledger, refused=turn.refused(gang)), gang.wanted)
    if isinstance(answer, NoPlacement):
        turn.say(gang, answer.sentence + _holders(turn))
        return answer
    servers = tuple(server.name for server in answer.servers)
    _unsuspend(turn, gang, turn.promise(gang, servers, since=turn.now.isoformat()))
    return None


def _unsuspend(turn: CycleContext, gang: QueuedGang, promise: Reservation) -> None:
    notes = {SERVERS: ",".join(promise.servers), PLACED: promise.since, WAITS: None}
    turn.unsuspend(gang, notes)
    turn.tell(gang, "promised", promise.servers)


def _holders(turn: CycleContext) -> str:
    """Who holds most servers of the pool, largest first; of other namespaces their number alone."""
    held = {name: len(set(promise.servers)) for name, promise in turn.ledger.promises.items()}
    largest = sorted(held, key=lambda name: (-held[name], name))[:NAMED_HOLDERS]
    told = [f"{name} holds {_servers(held[name])}" for name in largest]
    others = [promise for gang, promise in turn.ledger.others.items() if turn.fleet.counts(gang, promise)]
    if others:
        number = len({server for promise in others for server in promise.servers})
        told.append(f"{_servers(number)} promised to other namespaces")
    return f"; {', '.join(told)}" if told else ""


def _servers(number: int) -> str:
    return "1 server" if number == 1 else f"{number} servers"
