"""One pass over the marked gangs of one pool, from what was read to what is written.

    the root is      the ledger has      then
    gone, ended      a promise           drop it
    suspended        nothing             its turn? choose servers, promise them, unsuspend
    suspended        a promise           never unsuspended under it: unsuspend · else it was suspended again: drop
    runs             nothing             promise anew what its root says it has · else suspend
    runs             a promise           all pods there: open their gates · not in time: suspend, drop, back off
    runs             a whole promise     a gated pod is a replacement: its old server, or the nearest

A promise comes before its unsuspending, a suspending before the drop: whoever dies in between leaves a line of this
table. Every write of a root is tested on what was read, so that of two placers one does it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from gangline.launch.kubernetes.api import Api, Object
from gangline.launch.kubernetes.binding import open_gates
from gangline.launch.kubernetes.choose_servers import ChooseServers, WhyNot, nearest_to
from gangline.launch.kubernetes.fleet import Fleet, GangPods, read_fleet
from gangline.launch.kubernetes.ledger import Ledger, Promise, write_ledger
from gangline.launch.kubernetes.marked import PLACED, REFUSED, Marked, Refusal
from gangline.launch.kubernetes.pods import pods_path
from gangline.launch.kubernetes.roots import Root
from gangline.launch.kubernetes.setting import MANAGED_BY, SERVERS, WAITS
from gangline.spec.codec import canonical

BINDING_SECONDS = 60.0
"""For all pods of a gang to exist, and for all to be bound once their gates are open."""
BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 15.0, 300.0
REMEMBER_SECONDS = 600.0
"""How long a server that refused a gang is not offered to it again."""
TURN_SECONDS = 600.0
"""Gangs that fit overtake one that does not, until it has waited this long."""
NAMED_HOLDERS = 3

What = Literal["promised", "opened", "whole", "replaced", "refused", "dropped", "suspended", "waits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """What a step did with one gang."""

    gang: str
    what: What
    servers: tuple[str, ...] = ()
    sentence: str = ""


def say(api: Api, root: Root, sentence: str) -> bool:
    """Tell on the root why it waits; False where it says so already."""
    if root.annotations.get(WAITS) == sentence:
        return False
    api.patch(root.path, {"metadata": {"uid": root.uid, "annotations": {WAITS: sentence}}})
    return True


class PoolRound:
    """Made from a ledger and the gangs that were read after it; `placed` tells what `run` did."""

    def __init__(
        self, api: Api, ledger: Ledger, gangs: Sequence[Marked], *, choose: ChooseServers, holder: str, now: datetime
    ) -> None:
        self.placed: list[Placed] = []
        self._api = api
        self._ledger = ledger
        self._gangs = gangs
        self._choose = choose
        self._holder = holder
        self._now = now
        self._fleet = Fleet(servers={}, pods={}, bound={})

    def run(self) -> None:
        """Raises `Conflict` when another placer was first: what it did is seen at the next step."""
        self._drop_the_gone()
        if not self._has_work():
            return
        self._fleet = read_fleet(self._api, self._ledger.pool)
        for gang in self._gangs:
            if not gang.root.is_suspended:
                self._tend(gang)
        self._start([gang for gang in self._gangs if gang.root.is_suspended])

    def _drop_the_gone(self) -> None:
        living = {gang.name: gang.root.uid for gang in self._gangs}
        self._drop(name for name, promise in self._ledger.promises.items() if living.get(name) != promise.uid)

    def _has_work(self) -> bool:
        return any(self._is_unsettled(gang) for gang in self._gangs) or self._has_pending_pods()

    def _is_unsettled(self, gang: Marked) -> bool:
        promise = self._ledger.promises.get(gang.name)
        if gang.root.is_suspended:
            return promise is not None or self._is_due(gang)
        return promise is None or not promise.whole

    def _has_pending_pods(self) -> bool:
        """Replacements of whole gangs wait behind their gates, and gated pods are pending."""
        if not self._gangs:
            return False
        return bool(
            self._api.items(pods_path(self._api), labels=f"{MANAGED_BY}=gangline", fields="status.phase=Pending")[0]
        )

    # gangs that run

    def _tend(self, gang: Marked) -> None:
        pods = self._fleet.pods.get(gang.name, GangPods())
        promise = self._ledger.promises.get(gang.name) or self._adopt(gang, pods)
        if promise is None:
            self._suspend(gang, {WAITS: "it was started without its servers, and waits for them again"})
            self._told(gang, "suspended")
        elif missing := pods.missing(gang.wanted.num_pods):
            self._await_pods(gang, promise, missing)
        elif pods.gated:
            self._open(gang, promise, pods)
        elif pods.unbound:
            self._await_binding(gang, promise, pods)
        elif not promise.whole:
            self._ledger = self._write(self._ledger.with_promise(gang.name, replace(promise, whole=True)))
            self._told(gang, "whole", promise.servers)

    def _adopt(self, gang: Marked, pods: GangPods) -> Promise | None:
        """The promise that its root tells of, where its pods are bound or still find room; the ledger was lost."""
        servers = tuple(filter(None, gang.root.annotations.get(SERVERS, "").split(",")))
        if len(servers) != gang.wanted.num_pods:
            return None
        unbound = [server for rank, server in enumerate(servers) if not _is_bound(pods.living.get(rank))]
        rooms = {room.server.name: room.pods for room in self._fleet.rooms(gang.wanted, self._ledger)}
        if any(rooms.get(server, 0) < unbound.count(server) for server in unbound):
            return None
        since = gang.root.annotations.get(PLACED) or self._now.isoformat()
        promise = self._promise(gang, servers, since=since, whole=not unbound)
        self._ledger = self._write(self._ledger.with_promise(gang.name, promise))
        return promise

    def _await_pods(self, gang: Marked, promise: Promise, missing: int) -> None:
        if not promise.whole and self._is_late(gang.root.annotations.get(PLACED)):
            there = gang.wanted.num_pods - missing
            why = f"only {there} of {gang.wanted.num_pods} pods were made within {BINDING_SECONDS:.0f} s"
            self._give_up(gang, {}, why)

    def _await_binding(self, gang: Marked, promise: Promise, pods: GangPods) -> None:
        late = {rank: pod for rank, pod in pods.unbound.items() if self._is_late(_annotation(pod, PLACED))}
        if not late:
            return
        servers = {_host(pod, promise, rank): _refusal_of(pod) for rank, pod in late.items()}
        why = "; ".join(f"server {server} does not take its pod: {said}" for server, said in list(servers.items())[:2])
        if promise.whole:
            self._say(gang, why)
        else:
            self._give_up(gang, servers, why)

    def _open(self, gang: Marked, promise: Promise, pods: GangPods) -> None:
        gated = {rank: pod for rank, pod in pods.gated.items() if rank < len(promise.servers)}
        if promise.whole:
            promise, gated = self._replace(gang, promise, gated)
        self._tell_root(gang, promise)
        names = {rank: pod["metadata"]["name"] for rank, pod in gated.items()}
        servers = {names[rank]: promise.servers[rank] for rank in gated}
        by_name = {names[rank]: pod for rank, pod in gated.items()}
        if open_gates(self._api, servers, by_name, at=self._now.isoformat()):
            self._told(gang, "opened", promise.servers)

    def _replace(
        self, gang: Marked, promise: Promise, gated: Mapping[int, Object]
    ) -> tuple[Promise, dict[int, Object]]:
        """Servers for the pods that came back: the old ones where they can, and no other rank moves."""
        servers, found = list(promise.servers), {}
        for rank, pod in sorted(gated.items()):
            kept = tuple(server for other, server in enumerate(servers) if other not in gated or other in found)
            others = self._ledger.without([gang.name])
            if kept:
                others = others.with_promise(gang.name, replace(promise, servers=kept))
            goes_to = nearest_to(self._fleet.rooms(gang.wanted, others), self._fleet.where(promise.servers[rank]))
            if goes_to is None:
                self._say(gang, f"the pod of node rank {rank} was lost, and no server has room for its replacement")
                continue
            servers[rank], found[rank] = goes_to.name, pod
        if tuple(servers) != promise.servers:
            promise = replace(promise, servers=tuple(servers))
            self._ledger = self._write(self._ledger.with_promise(gang.name, promise))
            self._told(gang, "replaced", promise.servers)
        return promise, found

    def _tell_root(self, gang: Marked, promise: Promise) -> None:
        servers = ",".join(promise.servers)
        if gang.root.annotations.get(SERVERS) != servers:
            metadata = {"uid": gang.root.uid, "annotations": {SERVERS: servers, WAITS: None}}
            self._api.patch(gang.root.path, {"metadata": metadata})

    def _give_up(self, gang: Marked, servers: Mapping[str, str], why: str) -> None:
        times = (gang.refusal.times if gang.refusal else 0) + 1
        seconds = min(BACKOFF_SECONDS * 2 ** (times - 1), MOST_BACKOFF_SECONDS)
        known = self._refused(gang) | dict(servers)
        until = self._now + timedelta(seconds=seconds)
        refusal = Refusal(times=times, at=self._now.isoformat(), until=until.isoformat(), servers=known)
        sentence = f"{why}; all its servers are free again, next try in {seconds:.0f} s"
        self._suspend(gang, {REFUSED: canonical(refusal).decode(), WAITS: sentence})
        self._told(gang, "refused", sentence=sentence)
        self._drop([gang.name])

    # gangs that wait

    def _start(self, queue: Iterable[Marked]) -> None:
        holds_back = ""
        for gang in queue:
            promise = self._ledger.promises.get(gang.name)
            if promise is not None and gang.root.annotations.get(PLACED) != promise.since:
                self._unsuspend(gang, promise)
                continue
            self._drop([gang.name] if promise else [])
            if not self._is_due(gang):
                continue
            if holds_back:
                self._say(gang, f"waits its turn behind {holds_back}, for which servers are kept free")
            elif (why := self._place(gang)) and not why.never and self._now - gang.queued >= _seconds(TURN_SECONDS):
                holds_back = gang.name

    def _place(self, gang: Marked) -> WhyNot | None:
        rooms = self._fleet.rooms(gang.wanted, self._ledger, refused=self._refused(gang))
        answer = self._choose(rooms, gang.wanted)
        if isinstance(answer, WhyNot):
            self._say(gang, answer.sentence + self._holders())
            return answer
        servers = tuple(server.name for server in answer.servers)
        promise = self._promise(gang, servers, since=self._now.isoformat())
        self._ledger = self._write(self._ledger.with_promise(gang.name, promise))
        self._unsuspend(gang, promise)
        return None

    def _unsuspend(self, gang: Marked, promise: Promise) -> None:
        notes = {SERVERS: ",".join(promise.servers), PLACED: promise.since, WAITS: None}
        self._write_root(gang, notes, suspend=False)
        self._told(gang, "promised", promise.servers)

    def _holders(self) -> str:
        """Who holds most servers of the pool, largest first."""
        held = {name: len(set(promise.servers)) for name, promise in self._ledger.promises.items()}
        largest = sorted(held, key=lambda name: (-held[name], name))[:NAMED_HOLDERS]
        named = ", ".join(f"{name} holds {held[name]} servers" for name in largest)
        return f"; {named}" if named else ""

    # what both do

    def _promise(self, gang: Marked, servers: tuple[str, ...], *, since: str, whole: bool = False) -> Promise:
        need = dict(gang.wanted.need)
        return Promise(uid=gang.root.uid, servers=servers, need=need, since=since, by=self._holder, whole=whole)

    def _drop(self, names: Iterable[str]) -> None:
        gone = [name for name in names if name in self._ledger.promises]
        if gone:
            self._ledger = self._write(self._ledger.without(gone))
            self.placed += [Placed(gang=name, what="dropped") for name in gone]

    def _write(self, ledger: Ledger) -> Ledger:
        return write_ledger(self._api, ledger)

    def _suspend(self, gang: Marked, notes: Mapping[str, str | None]) -> None:
        self._write_root(gang, notes, suspend=True)

    def _write_root(self, gang: Marked, notes: Mapping[str, str | None], *, suspend: bool) -> None:
        version = gang.root.object["metadata"]["resourceVersion"]
        metadata = {"uid": gang.root.uid, "resourceVersion": version, "annotations": dict(notes)}
        self._api.patch(gang.root.path, {"metadata": metadata, "spec": {"suspend": suspend}})

    def _say(self, gang: Marked, sentence: str) -> None:
        if say(self._api, gang.root, sentence):
            self._told(gang, "waits", sentence=sentence)

    def _told(self, gang: Marked, what: What, servers: tuple[str, ...] = (), *, sentence: str = "") -> None:
        self.placed.append(Placed(gang=gang.name, what=what, servers=servers, sentence=sentence))

    def _refused(self, gang: Marked) -> dict[str, str]:
        """Servers that refused it not long ago, and why."""
        if gang.refusal is None or self._now - _time(gang.refusal.at) > _seconds(REMEMBER_SECONDS):
            return {}
        return gang.refusal.servers

    def _is_due(self, gang: Marked) -> bool:
        return gang.refusal is None or self._now >= _time(gang.refusal.until)

    def _is_late(self, since: str | None) -> bool:
        return since is None or self._now - _time(since) > _seconds(BINDING_SECONDS)


def _is_bound(pod: Object | None) -> bool:
    return pod is not None and bool(pod["spec"].get("nodeName"))


def _annotation(pod: Object, name: str) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(name)
    return found


def _host(pod: Object, promise: Promise, rank: int) -> str:
    named: str | None = (pod["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname")
    return named or (promise.servers[rank] if rank < len(promise.servers) else "?")


def _refusal_of(pod: Object) -> str:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "the scheduler does not say why")
    return "the scheduler does not say why"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)
