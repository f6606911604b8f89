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
from gangline.fabric.placement.shortage import why_not
from gangline.launch.kubernetes.client.api import ApiConflict, ApiRejected, Object
from gangline.launch.kubernetes.objects.labels import GANG, MANAGED_BY, STARTS_NOW, WAITS
from gangline.launch.kubernetes.placement.cycle_context import CycleContext
from gangline.launch.kubernetes.placement.gang_pods import is_bound
from gangline.launch.kubernetes.placement.gang_request import GangRequest
from gangline.launch.kubernetes.placement.queued_gangs import PLACED, QueuedGang, QueueOrder
from gangline.launch.kubernetes.placement.release import advance_release
from gangline.launch.kubernetes.placement.reservations import Reservation
from gangline.launch.kubernetes.placement.server_selection import (
    NoPlacement,
    ServerCapacity,
    ServerSelector,
    free_groups,
)
from gangline.launch.kubernetes.state.placed import placed_annotations
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
    refused = context.rejecting_servers(gang)
    servers: tuple[str, ...] = ()
    for part in gang.request.parts:
        capacities = context.pool_state.capacities(part, context.ledger, refused=refused)
        answer = choose(capacities, part)
        if isinstance(answer, NoPlacement):
            _explain(context, gang, part, answer, capacities)
            return answer
        servers += tuple(server.name for server in answer)
    _unsuspend(context, gang, context.reserve(gang, servers, since=context.now.isoformat()))
    return None


def _explain(
    context: CycleContext,
    gang: QueuedGang,
    request: GangRequest,
    answer: NoPlacement,
    capacities: Sequence[ServerCapacity],
) -> None:
    """Write who holds the servers of `request`, whose end makes room, and the largest gang of one kind that would start
    now."""
    holders = context.pool_state.holders(request, context.ledger)
    shortage = why_not(free_groups(capacities), request.num_pods, tile=request.tile, holders=holders)
    sentence = answer.sentence + _holders(context)
    if shortage.release and not answer.never:
        rest = len(shortage.release) - _NAMED_HOLDERS
        names = ", ".join(shortage.release[:_NAMED_HOLDERS]) + (f" and {rest} more" if rest > 0 else "")
        sentence += f"; there is room once {names} {'ends' if len(shortage.release) == 1 else 'end'}"
    fits = 0 if gang.request.kinds else shortage.largest
    starts_now = f"{fits} pod{'' if fits == 1 else 's'}" if fits else ""
    context.set_waiting_reason(gang, sentence, starts_now=starts_now)


def _unsuspend(context: CycleContext, gang: QueuedGang, reservation: Reservation) -> None:
    placed = placed_annotations([context.pool_state.where(name) for name in reservation.servers])
    context.unsuspend(gang, {**placed, PLACED: reservation.since, WAITS: None, STARTS_NOW: None})
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
