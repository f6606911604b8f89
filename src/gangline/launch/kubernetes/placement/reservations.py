"""Ledger of reservations: which servers are reserved for which gang. It makes several placers safe.

There is one ConfigMap per pool, with one key per gang. A placer reads it **before** nodes, pods and roots, and writes
it by compare-and-set. If a reservation was removed before the read, what is read later shows its gang as ended or
suspended; if one was added since the read, the write is refused. So no server is reserved twice, whether other placers
run, are slow or have died.

Namespaces whose gangs share servers share a ledger, in one of them or in another namespace. A key without a dot is a
gang of the ledger's own namespace, `NAMESPACE.GANG` one of another; a placer changes only reservations of its own
namespace.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gangline.errors import CapacityError, IntegrityError
from gangline.launch.kubernetes.client.api import ApiConflict, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import MANAGED_BY, POOL, ROLE
from gangline.launch.kubernetes.placement.resources import Amounts, add, subtract
from gangline.spec.codec import canonical, from_json
from gangline.units import format_bytes

_MOST_BYTES = 1_000_000
"""Limit of all keys and values; that of a ConfigMap is 1,048,576."""
_LABELS = {MANAGED_BY: "gangline", ROLE: "ledger"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Servers of one gang, reserved before its first pod until its root has ended or was deleted."""

    schema: int = 1
    uid: str
    """Uid of the root; another root of the same name has no reservation."""
    servers: tuple[str, ...]
    """Servers in node-rank order; one is repeated for each of its pods."""
    leaving: tuple[str, ...] = ()
    """Former servers of moved pods whose gates are closed; kept, as a slower placer may still bind them there."""
    need: dict[str, int]
    """Requests of one pod, in the scheduler's units."""
    since: str
    """RFC 3339."""
    by: str = ""
    """Name of the placer, for diagnosis."""
    whole: bool = False
    """All its pods were bound once; a pod lost later is replaced while the others run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementLedger:
    """Reservations of servers in one pool, by gang."""

    pool: str = ""
    namespace: str = ""
    """Namespace of its ConfigMap."""
    version: str | None = None
    """Resource version as read; None: the ConfigMap does not exist yet."""
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    """Reservations of the placer's own namespace, by gang."""
    others: Mapping[str, Reservation] = field(default_factory=dict)
    """Reservations of other namespaces, by `NAMESPACE.GANG`."""

    def with_reservation(self, gang: str, reservation: Reservation) -> "PlacementLedger":
        """A copy with this reservation; nothing is written."""
        return replace(self, reservations={**self.reservations, gang: reservation})

    def without(self, gangs: Iterable[str]) -> "PlacementLedger":
        """A copy without the reservations of `gangs`; nothing is written."""
        gone = set(gangs)
        return replace(
            self,
            reservations={gang: reservation for gang, reservation in self.reservations.items() if gang not in gone},
        )

    def outstanding(
        self,
        bound: Mapping[tuple[str, str], Amounts],
        *,
        counts: Callable[[str, Reservation], bool] = lambda *_: True,
    ) -> dict[str, dict[str, int]]:
        """Amounts by server that are reserved but not yet requested by bound pods.

        Args:
            bound: Requests of the pods of (gang, server) that are bound; gangs of other namespaces as in `others`.
            counts: Whether a promise of `others` still holds its servers.
        """
        rest: dict[str, dict[str, int]] = {}
        others = {gang: other for gang, other in self.others.items() if counts(gang, other)}
        for gang, reservation in {**self.reservations, **others}.items():
            for server, reserved in _by_server(reservation).items():
                missing = subtract(reserved, bound.get((gang, server), {}))
                rest[server] = add(rest.get(server, {}), {name: max(0, left) for name, left in missing.items()})
        return rest


def ledger_path(namespace: str, pool: str = "") -> str:
    """Path of the ConfigMap of a pool's ledger."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{_ledger_name(pool)}"


def _ledger_name(pool: str = "") -> str:
    return f"gangline-ledger-{pool}" if pool else "gangline-ledger"


def read_ledger(api: KubernetesApi, pool: str = "", *, namespace: str | None = None) -> PlacementLedger:
    """Ledger of `pool` in `namespace` (None: that of the gangs); empty if it does not exist.

    Raises:
        IntegrityError: Somebody else wrote into it; nothing is placed until it is removed, which loses nothing.
    """
    lies_in = namespace or api.namespace
    found = api.get(ledger_path(lies_in, pool))
    if found is None:
        return PlacementLedger(pool=pool, namespace=lies_in)
    reservations: dict[str, Reservation] = {}
    others: dict[str, Reservation] = {}
    for key, text in sorted((found.get("data") or {}).items()):
        reservation = _read(key, text, lies_in, pool)
        holder, _, gang = key.rpartition(".")
        if (holder or lies_in) == api.namespace:
            reservations[gang] = reservation
        else:
            others[f"{holder or lies_in}.{gang}"] = reservation
    version = found["metadata"]["resourceVersion"]
    return PlacementLedger(pool=pool, namespace=lies_in, version=version, reservations=reservations, others=others)


def write_ledger(api: KubernetesApi, ledger: PlacementLedger) -> PlacementLedger:
    """Write `ledger` if it was not changed since it was read; returns it with its new version.

    Raises:
        ApiConflict: Another placer was first: read everything again.
        CapacityError: It would be larger than an object may be.
        ApiUnavailable: It is unknown whether it was written: read everything again.
    """
    body = _object(ledger, of=api.namespace)
    if ledger.version is None:
        written = api.create(f"/api/v1/namespaces/{ledger.namespace}/configmaps", body)
    else:
        answer = api.replace(ledger_path(ledger.namespace, ledger.pool), body)
        if answer is None:
            raise ApiConflict(
                f"{_ledger_name(ledger.pool)} was deleted since it was read; the next step writes it again"
            )
        written = answer
    return replace(ledger, version=written["metadata"]["resourceVersion"])


def _object(ledger: PlacementLedger, *, of: str) -> Object:
    """`of`: the namespace whose gangs are in `reservations`."""
    namespace = ledger.namespace
    held = {f"{of}.{gang}": reservation for gang, reservation in ledger.reservations.items()} | dict(ledger.others)
    data = {
        key.removeprefix(f"{namespace}."): canonical(reservation).decode() for key, reservation in sorted(held.items())
    }
    size = sum(len(gang) + len(text.encode()) for gang, text in data.items())
    if size > _MOST_BYTES:
        raise CapacityError(
            f"{_ledger_name(ledger.pool)}: wanted at most {format_bytes(_MOST_BYTES)}, found {format_bytes(size)} for "
            f"{len(data)} gangs; it has room when one of them ends, or give some servers a pool of their own (label "
            f"{POOL})"
        )
    version = {} if ledger.version is None else {"resourceVersion": ledger.version}
    metadata = {"name": _ledger_name(ledger.pool), "namespace": namespace, "labels": dict(_LABELS), **version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _read(gang: str, text: str, namespace: str, pool: str) -> Reservation:
    try:
        reservation = from_json(Reservation, text)
        _demand(bool(reservation.servers) and all(reservation.servers), "servers by name", reservation.servers)
        _demand(all(amount >= 0 for amount in reservation.need.values()), "amounts of at least 0", reservation.need)
    except (IntegrityError, RecursionError) as error:
        raise IntegrityError(
            f"{_ledger_name(pool)}, key {gang}: {error}; no gang of its pool is placed until it is repaired: run "
            f"`kubectl delete configmap {_ledger_name(pool)} -n {namespace}`, and the placer rebuilds it from the "
            "running gangs"
        ) from error
    return reservation


def _demand(holds: bool, wanted: str, found: object) -> None:
    if not holds:
        raise IntegrityError(f"wanted {wanted}, found {json.dumps(found)[:80]}")


def _by_server(reservation: Reservation) -> dict[str, dict[str, int]]:
    reserved: dict[str, dict[str, int]] = {}
    for server in (*reservation.servers, *reservation.leaving):
        reserved[server] = add(reserved.get(server, {}), reservation.need)
    return reserved
