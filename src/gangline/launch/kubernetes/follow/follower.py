"""Follows a gang of pods to its end: its state from lists, its events from logs, and why it waits.

It writes only to end a gang that can never start, to delete a pod of a dead server, and to place the gang if there is
no placer. A follower may die at any time and another continues; while the API server is away, states have an age.
Events come from the pods' stdout: all of rank 0, and the steps of other ranks once a second.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gangline.errors import ConfigError, GanglineError
from gangline.launch.kubernetes.client.api import ApiUnavailable, KubernetesApi, Object
from gangline.launch.kubernetes.client.informer import Informer, trim_pod
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.follow.logs import LogStreams
from gangline.launch.kubernetes.lifecycle.cancel import FORCE_SECONDS, fail_and_delete_pod, refuse_gang
from gangline.launch.kubernetes.objects.labels import GANG
from gangline.launch.kubernetes.placement.kueue_admission import KueueAdmission
from gangline.launch.kubernetes.placement.servers import ObservedServers
from gangline.launch.kubernetes.state.gang_state import PodEnd, gang_state, pod_end, status_of
from gangline.launch.kubernetes.state.pods import is_living, phase, pods_path
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence
from gangline.launch.kubernetes.waiting.explain import WaitReporter
from gangline.launch.kubernetes.waiting.snapshot import one_line
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.spec.gang.pod_output import parse
from gangline.spec.gang.podset import PlacedServer, PodSet
from gangline.spec.gang.rank_events import is_usable
from gangline.spec.gang.status import GangState, KeeperStatus

_TICK_SECONDS = 0.2
_PLACE_SECONDS = 0.5
_STALE_SECONDS = 5.0
"""Granularity of the age of a state, so that an outage causes few events."""
DRAIN_SECONDS = 20.0
"""Time limit for the last lines of an ended gang."""
_UNDER_WAY = ("starting", "running")

_OTHERS_SECONDS = 1.0
_KEEPER_EVENTS = {"restart": "restart", "watchdog": "note", "resized": "note"}


class KubernetesFollower:
    """Follows one gang to its end."""

    def __init__(
        self, api: KubernetesApi, root: Root, *, facts: ClusterFacts, place: Callable[[], object] | None
    ) -> None:
        """`place` runs one step of a placer; None: a placer serves the cluster."""
        self._api, self._facts, self._place = api, facts, place
        self._root = root
        self._podset: PodSet = root.podset()
        self._pod_events = PodEvents()
        self._streams = LogStreams(api)
        self._ends: dict[str, PodEnd] = {}
        collection, _, name = root.path.rpartition("/")
        self._roots = Informer(api, collection, fields=f"metadata.name={name}")
        self._pods = Informer(api, pods_path(api), labels=f"{GANG}={name}", keep=trim_pod, seen=self._record_end)
        self._waits = WaitReporter()
        self._admitted = KueueAdmission(api, facts=facts)
        self._observed = ObservedServers(api, num_nodes=self._podset.num_nodes)
        self._status: GangStatus | None = None
        self._last_error = ""
        self._said: set[str] = set()
        self._placed_time = float("-inf")

    @property
    def ends(self) -> list[PodEnd]:
        """Ends of all pods that were seen."""
        return list(self._ends.values())

    def events(self) -> Iterator[GangEvent]:
        """Events until the gang has ended, without the end itself."""
        self._roots.start()
        self._pods.start()
        try:
            yield from self._until_it_ends()
            yield from self._final_events()
        finally:
            self._roots.stop()
            self._pods.stop()
            self._streams.stop()

    def _until_it_ends(self) -> Iterator[GangEvent]:
        while True:
            self._raise_errors()
            self._refresh()
            yield from self._lines(_TICK_SECONDS)
            status = self._now()
            if status.state == "ended":
                return
            if not self._is_listed:
                continue
            reported = self._with_pod_events(status)
            if reported != self._status:
                yield self._state_event(reported)
            if self._is_stale:
                continue
            yield from self._waiting_events(reported)
            yield from self._check_quota()
            yield from self._delete_dead_pods()
            yield from self._place_gang(status)
            yield from self._observe_servers()

    def _final_events(self) -> Iterator[GangEvent]:
        deadline = time.monotonic() + DRAIN_SECONDS
        while not self._streams.is_drained and time.monotonic() < deadline:
            self._streams.keep_up(self._pods.objects())
            yield from self._lines(_TICK_SECONDS)
        yield from self._pod_events.flush(now=True)
        yield self._state_event(replace(self._now(), state="ended"))

    def _raise_errors(self) -> None:
        for informer in (self._roots, self._pods):
            if informer.error is not None:
                raise informer.error

    def _refresh(self) -> None:
        for found in self._roots.objects():
            if found["metadata"]["uid"] == self._root.uid:
                self._root = Root(self._root.path, found)
        self._streams.keep_up(self._pods.objects())

    def _record_end(self, pod: Object) -> None:
        """Record the end of a pod, as a failing Job deletes its pods."""
        end = pod_end(pod)
        if end is not None:
            self._ends[end.uid] = end

    def _lines(self, seconds: float) -> Iterator[GangEvent]:
        for uid, line in self._streams.lines(seconds=seconds):
            yield from self._pod_events.take(uid, line)
        yield from self._pod_events.flush()

    def _now(self) -> GangStatus:
        pods = self._pods.objects()
        state = self._state_of(pods)
        placed_by, placed = self._placed(pods)
        status = status_of(state, pods, self._podset, placed=placed)
        statuses = self._keeper_statuses(pods)
        is_reported = len(statuses) == self._podset.num_nodes and state in _UNDER_WAY
        latest = max(statuses, key=lambda keeper_status: keeper_status.generation, default=None)
        return replace(
            status,
            placed_by=placed_by,
            joined=sum(len(keeper_status.joined) for keeper_status in statuses) if is_reported else status.joined,
            ranks=(latest.world_size if latest else 0) or status.ranks,
            generation=max(status.generation, self._pod_events.generation),
            restarts=max(status.restarts, self._pod_events.restarts),
            waiting=self._waits.sentence if state in ("waiting", "starting") else "",
            stale_seconds=self._stale_seconds,
        )

    def _placed(self, pods: list[Object]) -> tuple[str, tuple[PlacedServer, ...]]:
        """Who gave the gang its servers, and these."""
        if self._root.placed:
            return "the placer", self._root.placed
        if given := self._admitted.placed(pods):
            return "Kueue", given
        return "the scheduler", self._observed.servers

    def _keeper_statuses(self, pods: list[Object]) -> list[KeeperStatus]:
        """Latest status of each pod that runs or has succeeded; a pod that was stopped has no say in those after it."""
        up = {
            pod["metadata"]["uid"]
            for pod in pods
            if phase(pod) == "Succeeded" or (is_living(pod) and phase(pod) == "Running")
        }
        return list(self._pod_events.statuses_of(up).values())

    def _state_of(self, pods: list[Object]) -> GangState:
        if not self._is_listed:
            return "starting"
        if all(each["metadata"]["uid"] != self._root.uid for each in self._roots.objects()):
            return "stopping" if pods else "ended"
        return gang_state(self._root, pods, self._podset.num_nodes)

    def _with_pod_events(self, status: GangStatus) -> GangStatus:
        """`status` with what only the pods' logs show: pods whose ranks are done are stopping, not starting."""
        statuses = self._keeper_statuses(self._pods.objects())
        latest = max((keeper_status.generation for keeper_status in statuses), default=0)
        leaving = sum(
            keeper_status.generation == latest and keeper_status.state in ("stopping", "ended")
            for keeper_status in statuses
        )
        is_over = leaving == self._podset.num_nodes or (leaving and status.state == "starting")
        return replace(status, state="stopping", waiting="") if is_over and status.state in _UNDER_WAY else status

    def _state_event(self, status: GangStatus) -> GangEvent:
        self._status = status
        return GangEvent(kind="state", text=status.state, status=status)

    @property
    def _is_listed(self) -> bool:
        """Whether both lists were read; before that, a missing object may exist."""
        return self._roots.is_listed.is_set() and self._pods.is_listed.is_set()

    @property
    def _stale_seconds(self) -> float:
        away = [informer.away_since for informer in (self._roots, self._pods) if informer.away_since is not None]
        return (time.monotonic() - min(away)) // _STALE_SECONDS * _STALE_SECONDS if away else 0.0

    @property
    def _is_stale(self) -> bool:
        return any(informer.away_since is not None for informer in (self._roots, self._pods))

    def _waiting_events(self, status: GangStatus) -> Iterator[GangEvent]:
        if status.state not in ("waiting", "starting"):
            self._waits.clear()
        elif self._waits.is_due:
            yield from self._attempt(self._gather, "cannot read why it waits")
            if (waiting := self._waits.news()) is not None:
                data = {name: getattr(waiting, name) for name in ("kind", "holder", "until", "would_start_now", "raw")}
                yield GangEvent(kind="waiting", text=waiting.sentence, data=data)
            if self._waits.is_hopeless:
                yield from self._attempt(
                    partial(self._refuse, self._waits.sentence), "cannot stop a gang that can never start"
                )

    def _check_quota(self) -> Iterator[GangEvent]:
        """Stop a gang of Kueue whose pods may run outside their quota, and report how often Kueue evicted one."""
        pods = self._pods.objects()
        if self._admitted.is_due(self._root, pods):
            look = partial(self._admitted.look, self._root, pods)
            yield from self._attempt(look, "cannot check whether its pods run within their quota")
            yield from self._tiles_not_known(self._admitted.unknown)
        if self._admitted.wrong:
            yield from self._attempt(
                partial(self._refuse, self._admitted.wrong), "cannot stop a gang that must not run"
            )
        if (eviction := self._admitted.eviction) is not None:
            text = f"evicted by Kueue, eviction {eviction.times}: {one_line(eviction.message)}"
            yield from self._once(text, "evicted")

    def _gather(self) -> None:
        pods = self._pods.objects()
        seen = gather_evidence(self._api, self._root, pods, num_nodes=self._podset.num_nodes, facts=self._facts)
        self._admitted.see_evictions(seen.workload)
        self._waits.take(explain(seen))

    def _refuse(self, why: str) -> None:
        reason = f"gang {self._podset.name} can never start: {why}"
        refuse_gang(self._api, self._root, exit_code=ConfigError.exit_code, reason=reason)

    def _place_gang(self, status: GangStatus) -> Iterator[GangEvent]:
        """Run the placer if no other one does."""
        is_due = time.monotonic() - self._placed_time >= _PLACE_SECONDS
        if self._place is not None and is_due and status.state in ("waiting", "starting"):
            self._placed_time = time.monotonic()
            yield from self._attempt(self._place, "cannot place it")

    def _observe_servers(self) -> Iterator[GangEvent]:
        """Read the servers of a gang that neither our placer nor Kueue placed."""
        pods = self._pods.objects()
        if not (self._root.placed or self._admitted.placed(pods)) and self._observed.is_due(pods):
            look = partial(self._observed.look, pods, levels=self._admitted.levels)
            yield from self._attempt(look, "cannot read where its servers are")
            yield from self._tiles_not_known(self._observed.unknown)

    def _tiles_not_known(self, why: str) -> Iterator[GangEvent]:
        if self._podset.tile > 1 and why:
            each = f"whether each tile of {self._podset.tile} nodes shares a group of servers is not known"
            yield from self._once(f"{each}: {why}", "tiles_not_known")

    def _once(self, text: str, event: str) -> Iterator[GangEvent]:
        if text not in self._said:
            self._said.add(text)
            yield GangEvent(kind="note", text=text, data={"event": event})

    def _delete_dead_pods(self) -> Iterator[GangEvent]:
        """Delete pods of dead servers: only then their replacements are created."""
        for pod in self._pods.objects():
            marked = pod["metadata"].get("deletionTimestamp")
            if marked is None:
                continue
            late = datetime.now(UTC) - datetime.fromisoformat(marked)  # the timestamp is the end of its grace
            if late.total_seconds() > FORCE_SECONDS:
                yield from self._attempt(
                    partial(fail_and_delete_pod, self._api, pod), "cannot delete a pod of a dead server"
                )

    def _attempt(self, act: Callable[[], object], failure: str) -> Iterator[GangEvent]:
        """Call `act`; ignore an unavailable server, as the next look repeats it, and report any other error once."""
        try:
            act()
        except ApiUnavailable:
            return
        except GanglineError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                yield GangEvent(kind="note", text=f"{failure}: {error}")


class PodEvents:
    """Turns lines into events, and stores the latest status of each keeper by the uid of its pod.

    Attributes:
        generation: Highest generation that a keeper reported.
        restarts: Highest number of restarts that a keeper reported.
    """

    def __init__(self) -> None:
        self.generation = self.restarts = 0
        self._statuses: dict[str, KeeperStatus] = {}
        self._steps: dict[int, dict[str, Any]] = {}
        self._flushed = time.monotonic()
        self._restarts: set[int] = set()

    def statuses_of(self, uids: Collection[str]) -> dict[str, KeeperStatus]:
        """Latest status of each of these pods that has reported one; those of all other pods are forgotten."""
        self._statuses = {uid: status for uid, status in self._statuses.items() if uid in uids}
        return self._statuses

    def take(self, uid: str, line: str) -> Iterator[GangEvent]:
        """Events of one line of the stdout of pod `uid`; lines of keeper status are stored instead."""
        pod_line = parse(line)
        if pod_line.status is not None:
            self._statuses[uid] = pod_line.status
            self.generation = max(self.generation, pod_line.status.generation)
            self.restarts = max(self.restarts, pod_line.status.restarts)
        elif pod_line.event is not None and "keeper" in pod_line.event:
            yield from self._keeper(pod_line.event)
        elif pod_line.event is not None:
            yield from self._rank(pod_line.event)

    def flush(self, *, now: bool = False) -> Iterator[GangEvent]:
        """The latest steps of the other ranks, at most once a second unless `now`."""
        if not now and time.monotonic() - self._flushed < _OTHERS_SECONDS:
            return
        self._flushed = time.monotonic()
        steps, self._steps = self._steps, {}
        yield from (_progress(event) for _, event in sorted(steps.items()))

    def _keeper(self, event: dict[str, Any]) -> Iterator[GangEvent]:
        """Every keeper reports the same restart; only the first report becomes an event."""
        kind = _KEEPER_EVENTS.get(str(event.get("event")))
        if kind == "restart":
            generation = event.get("generation")
            if isinstance(generation, int) and generation in self._restarts:
                return
            if isinstance(generation, int):
                self._restarts.add(generation)
            yield GangEvent(kind="restart", text=str(event.get("reason", "")), data=event)
        elif kind == "note":
            yield GangEvent(kind="note", text=str(event.get("reason", "")), data=event)

    def _rank(self, event: dict[str, Any]) -> Iterator[GangEvent]:
        rank = event.get("rank")
        if not isinstance(rank, int) or not is_usable(event):
            return
        if rank != 0 and event.get("event") == "step":
            self._steps[rank] = event
        else:
            yield _progress(event)


def _progress(event: dict[str, Any]) -> GangEvent:
    return GangEvent(kind="progress", text=str(event.get("event", "")), data=event)
