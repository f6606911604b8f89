"""Follows a gang of pods from wherever it is to its end: what lists say, what logs say, why it waits.

Nothing is written but what ends a gang that can never start, frees one from a dead server, or places it where nobody
else does. A follower may die at any moment and another goes on; while the server is away, states say how old they are.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from gangline.errors import ConfigError, GanglineError
from gangline.launch.kubernetes.client.api import ApiUnavailable, KubernetesApi, Object
from gangline.launch.kubernetes.client.informer import Informer
from gangline.launch.kubernetes.client.object_cache import trim_pod
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.follow.logs import LogStreams
from gangline.launch.kubernetes.follow.pod_events import PodEvents
from gangline.launch.kubernetes.lifecycle.cancel import FORCE_SECONDS, fail_and_delete_pod, refuse_gang
from gangline.launch.kubernetes.objects.labels import GANG
from gangline.launch.kubernetes.placement.kueue_admission import KueueAdmission
from gangline.launch.kubernetes.state.gang_end import PodEnd, pod_end
from gangline.launch.kubernetes.state.gang_state import gang_state, status_of
from gangline.launch.kubernetes.state.pods import is_living, node_rank, phase, pods_path
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence
from gangline.launch.kubernetes.waiting.explain import WaitReporter
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangState

_TICK_SECONDS = 0.2
_PLACE_SECONDS = 0.5
_STALE_SECONDS = 5.0
"""Steps in which the age of a state grows: an outage is a few events, not thousands."""
DRAIN_SECONDS = 20.0
"""For the last lines of an ended gang."""
_UNDER_WAY = ("starting", "running")


class KubernetesFollower:
    """One pass over a gang."""

    def __init__(
        self,
        api: KubernetesApi,
        root: Root,
        *,
        facts: ClusterFacts,
        after: dict[int, int],
        place: Callable[[], object] | None,
    ) -> None:
        """`place` moves waiting gangs on; None: somebody else does."""
        self._api, self._facts, self._place = api, facts, place
        self._root = root
        self._podset: PodSet = root.podset()
        self._told = PodEvents(after=after)
        self._streams = LogStreams(api)
        self._ends: dict[str, PodEnd] = {}
        collection, _, name = root.path.rpartition("/")
        self._roots = Informer(api, collection, fields=f"metadata.name={name}")
        self._pods = Informer(api, pods_path(api), labels=f"{GANG}={name}", keep=trim_pod, seen=self._see)
        self._waits = WaitReporter()
        self._admitted = KueueAdmission(api, facts=facts)
        self._status: GangStatus | None = None
        self._trouble = ""
        self._placed_at = float("-inf")

    @property
    def ends(self) -> list[PodEnd]:
        """Of all pods that it saw end."""
        return list(self._ends.values())

    def events(self) -> Iterator[GangEvent]:
        """Until the gang has ended, but for the end itself."""
        self._roots.start()
        self._pods.start()
        try:
            yield from self._until_it_ends()
            yield from self._last_words()
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
            told = self._as_told(status)
            if told != self._status:
                yield self._told_state(told)
            if self._is_stale:
                continue
            yield from self._why(told)
            yield from self._counted()
            yield from self._bury()
            yield from self._placed(status)

    def _last_words(self) -> Iterator[GangEvent]:
        patience = time.monotonic() + DRAIN_SECONDS
        while not self._streams.is_drained and time.monotonic() < patience:
            self._streams.keep_up(self._pods.objects())
            yield from self._lines(_TICK_SECONDS)
        yield from self._told.flush(now=True)
        yield self._told_state(replace(self._now(), state="ended"))

    def _raise_errors(self) -> None:
        for informer in (self._roots, self._pods):
            if informer.error is not None:
                raise informer.error

    def _refresh(self) -> None:
        for found in self._roots.objects():
            if found["metadata"]["uid"] == self._root.uid:
                self._root = Root(self._root.path, found)
        self._streams.keep_up(self._pods.objects())

    def _see(self, pod: Object) -> None:
        """A failing Job deletes its pods: their ends are noted as they pass."""
        end = pod_end(pod)
        if end is not None:
            self._ends[end.uid] = end

    def _lines(self, seconds: float) -> Iterator[GangEvent]:
        for line in self._streams.lines(seconds=seconds):
            yield from self._told.take(line.text)
        yield from self._told.flush()

    def _now(self) -> GangStatus:
        pods = self._pods.objects()
        state = self._state_of(pods)
        given = self._root.servers or self._admitted.servers
        status = status_of(state, pods, self._podset, given=given)
        is_told = len(self._told.statuses) == self._podset.num_nodes and state in ("starting", "running")
        return replace(
            status,
            joined=self._told.joined if is_told else status.joined,
            ranks=self._told.world_size or status.ranks,
            generation=max(status.generation, self._told.generation),
            restarts=max(status.restarts, self._told.restarts),
            waiting=self._waits.sentence if state in ("waiting", "starting") else "",
            stale_seconds=self._stale_seconds,
        )

    def _state_of(self, pods: list[Object]) -> GangState:
        if not self._is_listed:
            return "starting"
        if all(each["metadata"]["uid"] != self._root.uid for each in self._roots.objects()):
            return "stopping" if pods else "ended"
        return gang_state(self._root, pods, self._podset.num_nodes)

    def _as_told(self, status: GangStatus) -> GangStatus:
        """What pods alone do not tell: those whose ranks are done are not ready any more, and do not start."""
        leaving = self._leaving(self._pods.objects())
        is_over = leaving == self._podset.num_nodes or (leaving and status.state == "starting")
        return replace(status, state="stopping", waiting="") if is_over and status.state in _UNDER_WAY else status

    def _leaving(self, pods: list[Object]) -> int:
        """Nodes that are done; one whose pod was taken away is not: another pod goes on in its place."""
        told = self._told.leaving
        up = {
            node_rank(pod) for pod in pods if phase(pod) == "Succeeded" or (is_living(pod) and phase(pod) == "Running")
        }
        return len(told & up)

    def _told_state(self, status: GangStatus) -> GangEvent:
        self._status = status
        return GangEvent(kind="state", text=status.state, status=status)

    @property
    def _is_listed(self) -> bool:
        """Before that, what is not seen may be there all the same."""
        return self._roots.is_listed.is_set() and self._pods.is_listed.is_set()

    @property
    def _stale_seconds(self) -> float:
        away = [each.away_since for each in (self._roots, self._pods) if each.away_since is not None]
        return (time.monotonic() - min(away)) // _STALE_SECONDS * _STALE_SECONDS if away else 0.0

    @property
    def _is_stale(self) -> bool:
        return any(each.away_since is not None for each in (self._roots, self._pods))

    def _why(self, status: GangStatus) -> Iterator[GangEvent]:
        if status.state not in ("waiting", "starting"):
            self._waits.clear()
        elif self._waits.is_due:
            yield from self._tried(self._look, "why it waits is not known")
            if (waiting := self._waits.news()) is not None:
                data = {"kind": waiting.kind, "holder": waiting.holder, "until": waiting.until, "raw": waiting.raw}
                yield GangEvent(kind="waiting", text=waiting.sentence, data=data)
            if self._waits.is_hopeless:
                yield from self._tried(partial(self._refuse, self._waits.sentence), "a gang that can never start stays")

    def _counted(self) -> Iterator[GangEvent]:
        """Stop a gang of Kueue whose pods may run where no quota counts them."""
        pods = self._pods.objects()
        if self._admitted.is_due(self._root, pods):
            look = partial(self._admitted.look, self._root, pods)
            yield from self._tried(look, "whether its pods run where their quota counts is not known")
        if self._admitted.wrong:
            yield from self._tried(partial(self._refuse, self._admitted.wrong), "a gang that must not run stays")

    def _look(self) -> None:
        pods = self._pods.objects()
        seen = gather_evidence(self._api, self._root, pods, num_nodes=self._podset.num_nodes, facts=self._facts)
        self._waits.take(explain(seen))

    def _refuse(self, why: str) -> None:
        reason = f"gang {self._podset.name} can never start: {why}"
        refuse_gang(self._api, self._root, exit_code=ConfigError.exit_code, reason=reason)

    def _placed(self, status: GangStatus) -> Iterator[GangEvent]:
        """Move it on where nobody else does."""
        is_due = time.monotonic() - self._placed_at >= _PLACE_SECONDS
        if self._place is not None and is_due and status.state in ("waiting", "starting"):
            self._placed_at = time.monotonic()
            yield from self._tried(self._place, "it cannot be placed from here")

    def _bury(self) -> Iterator[GangEvent]:
        """Free the place of a pod whose server is dead: nobody else does, and no other pod is made before."""
        for pod in self._pods.objects():
            marked = pod["metadata"].get("deletionTimestamp")
            if marked is None:
                continue
            late = datetime.now(UTC) - datetime.fromisoformat(marked)  # the mark lies at the end of its grace
            if late.total_seconds() > FORCE_SECONDS:
                yield from self._tried(partial(fail_and_delete_pod, self._api, pod), "a pod of a dead server stays")

    def _tried(self, act: Callable[[], object], trouble: str) -> Iterator[GangEvent]:
        """Do it, again at the next look if the server is away; what forbids it is told once."""
        try:
            act()
        except ApiUnavailable:
            return
        except GanglineError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                yield GangEvent(kind="note", text=f"{trouble}: {error}")
