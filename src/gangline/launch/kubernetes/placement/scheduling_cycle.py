"""One pass over the queued gangs of one pool: decides from what was read, and writes.

    root             ledger              action
    gone, ended      reservation         remove it, once none of its pods can be bound any more
    suspended        none                at its turn: choose servers, reserve them, resume the root
    suspended        reservation         not resumed under it yet: resume
                                         suspended again: remove it, once its pods are gone
    running          none                restore the reservation that the root names, else suspend
    running          reservation         `release`: once all pods exist, open their gates; after a timeout, suspend
    running          whole reservation   `release`: a gated pod is a replacement, for its old server or the nearest

The reservation is written before the root is resumed, and the root is suspended before the reservation is removed. So
a placer that dies in between leaves a row of this table, which the next pass completes. A slow placer cannot open the
gate of a removed reservation, as there is no such gate left.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from gangline.errors import CapacityError
from gangline.launch.kubernetes.client.api import ApiConflict, ApiRejected, Object
from gangline.launch.kubernetes.objects.labels import GANG, MANAGED_BY, SERVERS, WAITS
from gangline.launch.kubernetes.placement.cycle_context import CycleContext
from gangline.launch.kubernetes.placement.gang_pods import is_bound
from gangline.launch.kubernetes.placement.queued_gangs import PLACED, QueuedGang, QueueOrder
from gangline.launch.kubernetes.placement.release import advance_release
from gangline.launch.kubernetes.placement.reservations import Reservation
from gangline.launch.kubernetes.placement.server_selection import NoPlacement, ServerSelector
from gangline.launch.kubernetes.state.pods import is_living, list_pods, pods_path

_TURN_SECONDS = 600.0
"""Gangs that fit may start before one that does not, until that one has waited this long."""
_NAMED_HOLDERS = 3


def run_scheduling_cycle(context: CycleContext, gangs: Sequence[QueuedGang], choose: ServerSelector) -> None:
    """Place `gangs`: those of the pool of `context` in queue order, read after its ledger.

    Raises:
        ApiConflict: Another placer was first; the next step sees its changes.
    """
    _drop_ended(context, gangs)
    running = [gang for gang in gangs if not gang.root.is_suspended]
    in_transition = {gang.name for gang in running if _is_in_transition(context, gang)}
    pending = _with_pending_pods(context) if len(in_transition) < len(running) else set()
    for gang in running:
        if gang.name in in_transition | pending:
            with _isolated(context, gang):
                advance_release(context, gang)
    _start(context, gangs, choose)


@contextmanager
def _isolated(context: CycleContext, gang: QueuedGang) -> Iterator[None]:
    """Turn an error of one gang into its waiting reason, so that it does not stop other gangs."""
    try:
        yield
    except ApiConflict:
        raise
    except (ApiRejected, CapacityError) as error:
        context.set_waiting_reason(gang, str(error))


def _drop_ended(context: CycleContext, gangs: Iterable[QueuedGang]) -> None:
    living = {gang.name: gang.root.uid for gang in gangs}
    gone = [name for name, reservation in context.ledger.reservations.items() if living.get(name) != reservation.uid]
    context.drop_reservations(
        [name for name in gone if not any(_may_be_bound(pod) for pod in list_pods(context.api, name))]
    )


def _may_be_bound(pod: Object) -> bool:
    """Whether a slow placer may still open its gate; a bound pod counts by its requests."""
    return is_living(pod) and not is_bound(pod)


def _is_in_transition(context: CycleContext, gang: QueuedGang) -> bool:
    reservation = context.ledger.reservations.get(gang.name)
    return reservation is None or not reservation.whole or bool(reservation.leaving)


def _with_pending_pods(context: CycleContext) -> set[str]:
    """Gangs with pending pods, which include replacements behind closed gates."""
    labels = f"{MANAGED_BY}=gangline"
    pending = context.api.items(pods_path(context.api), labels=labels, fields="status.phase=Pending", bare=True)
    return {(pod["metadata"].get("labels") or {}).get(GANG, "") for pod in pending[0]}


def _is_due(context: CycleContext, gang: QueuedGang) -> bool:
    return gang.refusal is None or context.age(gang.refusal.until) >= 0


def _start(context: CycleContext, gangs: Sequence[QueuedGang], choose: ServerSelector) -> None:
    blocking_gang = ""
    holding = [gang for gang in gangs if gang.name in context.ledger.reservations]
    order = QueueOrder([gang for gang in gangs if gang.root.is_suspended], holding)
    for gang in order:
        reservation = context.ledger.reservations.get(gang.name)
        with _isolated(context, gang):
            if reservation is not None:
                _complete(context, gang, reservation)
            elif blocking_gang and _is_due(context, gang):
                context.set_waiting_reason(gang, f"waits behind {blocking_gang}, for which servers are kept free")
            elif _is_due(context, gang):
                why = _place(context, gang, choose)
                if why is None:
                    order.charge(gang)
                elif not why.never and context.age(gang.queued.isoformat()) >= _TURN_SECONDS:
                    blocking_gang = gang.name


def _complete(context: CycleContext, gang: QueuedGang, reservation: Reservation) -> None:
    if gang.root.annotations.get(PLACED) != reservation.since:
        _unsuspend(context, gang, reservation)
    elif not context.pods(gang).living:
        context.drop_reservations([gang.name])


def _place(context: CycleContext, gang: QueuedGang, choose: ServerSelector) -> NoPlacement | None:
    answer = choose(
        context.pool_state.capacities(gang.request, context.ledger, refused=context.rejecting_servers(gang)),
        gang.request,
    )
    if isinstance(answer, NoPlacement):
        context.set_waiting_reason(gang, answer.sentence + _holders(context))
        return answer
    servers = tuple(server.name for server in answer.servers)
    _unsuspend(context, gang, context.reserve(gang, servers, since=context.now.isoformat()))
    return None


def _unsuspend(context: CycleContext, gang: QueuedGang, reservation: Reservation) -> None:
    notes = {SERVERS: ",".join(reservation.servers), PLACED: reservation.since, WAITS: None}
    context.unsuspend(gang, notes)
    context.add_event(gang, "promised", reservation.servers)


def _holders(context: CycleContext) -> str:
    """The gangs that hold most servers of the pool; of other namespaces only the number of servers."""
    held = {name: len(set(reservation.servers)) for name, reservation in context.ledger.reservations.items()}
    largest = sorted(held, key=lambda name: (-held[name], name))[:_NAMED_HOLDERS]
    parts = [f"{name} holds {_servers(held[name])}" for name in largest]
    others = [
        reservation
        for gang, reservation in context.ledger.others.items()
        if context.pool_state.counts(gang, reservation)
    ]
    if others:
        number = len({server for reservation in others for server in reservation.servers})
        parts.append(f"{_servers(number)} reserved for other namespaces")
    return f"; {', '.join(parts)}" if parts else ""


def _servers(number: int) -> str:
    return "1 server" if number == 1 else f"{number} servers"
