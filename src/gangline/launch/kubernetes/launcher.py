"""`KubernetesLauncher`: gangs as objects of a cluster. All state is in the cluster, so any driver can continue."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf

from gangline.errors import StillRunning, UsageError
from gangline.fabric.topology.inventory import Fabric
from gangline.launch.kubernetes.client.api import ApiUnavailable, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.follow.api_retry import retry_while_unavailable
from gangline.launch.kubernetes.follow.follower import KubernetesFollower
from gangline.launch.kubernetes.follow.logs import StoredLogs, follow_logs, read_logs
from gangline.launch.kubernetes.lifecycle.cancel import cancel_gang, cancel_module_jobs, sweep_gangs
from gangline.launch.kubernetes.lifecycle.final_state import (
    FinalState,
    close_deleted_gang,
    close_ended_gang,
    find_final_state,
    read_final_state,
)
from gangline.launch.kubernetes.lifecycle.submit import Submitter, put_secret
from gangline.launch.kubernetes.objects.render import Rendered, render
from gangline.launch.kubernetes.objects.render_context import RenderContext, choose_route
from gangline.launch.kubernetes.placement.placer import Placer
from gangline.launch.kubernetes.state.gang_state import gang_state, status_of
from gangline.launch.kubernetes.state.pods import list_pods
from gangline.launch.kubernetes.state.roots import Root, find_root, root_kinds
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence
from gangline.launch.protocol import Gang, GangEvent, GangStatus, Life, LogLine, SweepResult
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


class KubernetesLauncher:
    """Implements `launch.protocol.Launcher` with Indexed Jobs, TrainJobs or JobSets."""

    def __init__(
        self,
        api: KubernetesApi,
        *,
        facts: ClusterFacts,
        launch: LaunchTable,
        pod: PodTable,
        secrets: Callable[[str], bytes],
        owner: Object | None = None,
        stored_logs: StoredLogs | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        """
        Args:
            api: Of the cluster and namespace.
            facts: What the cluster serves.
            launch: The site's settings for launching.
            pod: The site's settings for pods.
            secrets: Returns the value of a secret by its name in a PodSet.
            owner: Object of the same namespace with which gangs are deleted.
            stored_logs: Reads the log of a rank whose pod is gone; None: such logs are lost.
            fabric: As it is stated, for servers without labels of the network.
        """
        self._api, self._facts, self._launch, self._pod = api, facts, launch, pod
        self._secrets, self._owner, self._stored_logs = secrets, owner, stored_logs
        self._fabric = fabric
        self._kinds = root_kinds(launch, facts)
        self._known: dict[str, tuple[float, GangStatus]] = {}
        self._opened = time.monotonic()

    def submit(self, podset: PodSet) -> Gang:
        submitter = Submitter(api=self._api, kinds=self._kinds, render=self._render, secrets=self._secrets)
        return submitter.submit(podset)

    def require_folders(self) -> None:
        """No effect: a gang in a cluster has no folder on this machine."""

    def status(self, name: str) -> GangStatus:
        _demand_name(name)
        try:
            status = self._read_status(name)
        except ApiUnavailable:
            at, last = self._known.get(name, (self._opened, GangStatus(state="waiting", waiting="not known yet")))
            return replace(last, stale_seconds=max(time.monotonic() - at, 0.001))
        self._known[name] = (time.monotonic(), status)
        return status

    def follow(self, name: str) -> Iterator[GangEvent]:
        """Events of the gang, by the protocol's words.

        Waits for an unavailable API server: before the first answer for 10 minutes, later without limit.
        """
        _demand_name(name)
        root, final_state = yield from retry_while_unavailable(partial(self._find_root_or_final_state, name))
        if root is not None:
            follower = KubernetesFollower(self._api, root, facts=self._facts, place=self._placing(root))
            yield from self._remembered(name, follower.events())
            final_state = yield from retry_while_unavailable(partial(self._close, root, follower), seconds=inf)
        if final_state is None:
            raise _unknown(name, self._api)
        if root is None:
            yield GangEvent(kind="state", text="ended", status=_ended(final_state))
        yield GangEvent(kind="end", text=final_state.end.reason, end=final_state.end)

    def logs(
        self, name: str, *, ranks: Sequence[int] | None = (0,), since_seconds: float | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        podset = self._podset(name)
        if follow and self.status(name).state != "ended":
            has_ended = partial(self._has_ended, name)
            return follow_logs(self._api, podset, ranks=ranks, since_seconds=since_seconds, has_ended=has_ended)
        return read_logs(self._api, podset, ranks=ranks, since_seconds=since_seconds, stored=self._stored_logs)

    def cancel(self, name: str, *, reason: str, save: bool = True) -> None:
        _demand_name(name)
        cancel_gang(self._api, name, self._kinds, reason=reason, save=save)

    def cancel_modules(self, run: str) -> None:
        _demand_name(run)
        cancel_module_jobs(self._api, run)

    def renew(self, name: str) -> None:
        _demand_name(name)
        root = find_root(self._api, name, self._kinds)
        if root is None:
            if read_final_state(self._api, name) is None:
                raise _unknown(name, self._api)
            return
        podset = root.podset()
        if root.outcome is None and not root.is_being_deleted and podset.secrets:
            put_secret(self._api, root, {secret: self._secrets(secret) for secret in podset.secrets})

    def collect(self, name: str) -> GangEnd:
        _demand_name(name)
        root = find_root(self._api, name, self._kinds)
        if root is not None and (root.outcome is None or root.is_being_deleted):
            raise StillRunning(f"gang {name} is {self._read_status(name).state}; follow it, or cancel it")
        final_state = find_final_state(self._api, name) if root is None else close_ended_gang(self._api, root)
        if final_state is None:
            raise _unknown(name, self._api)
        return final_state.end

    def sweep(self, *, now: datetime, life: Callable[[str], Life], with_outputs: bool = False) -> list[SweepResult]:
        del with_outputs  # a pod's files are gone with it
        return sweep_gangs(self._api, facts=self._facts, now=now, life=life)

    def _render(self, podset: PodSet, now: datetime) -> Rendered:
        route = choose_route(podset, self._launch, self._facts)
        return render(
            RenderContext(
                podset=podset, namespace=self._api.namespace, pod=self._pod, launch=self._launch, facts=self._facts,
                route=route, now=now, owner=self._owner,
            )
        )  # fmt: skip

    def _find_root_or_final_state(self, name: str) -> tuple[Root | None, FinalState | None]:
        root = find_root(self._api, name, self._kinds)
        return root, find_final_state(self._api, name) if root is None else None

    def _read_status(self, name: str) -> GangStatus:
        root = find_root(self._api, name, self._kinds)
        pods = list_pods(self._api, name)
        if root is None:
            final_state = read_final_state(self._api, name)
            if final_state is None:
                return GangStatus(state="stopping" if pods else "absent")
            return replace(_ended(final_state), state="stopping") if pods else _ended(final_state)
        podset = root.podset()
        state = gang_state(root, pods, podset.num_nodes)
        status = self._with_reported(name, status_of(state, pods, podset, placed=root.placed))
        if state not in ("waiting", "starting"):
            return status
        seen = gather_evidence(self._api, root, pods, num_nodes=podset.num_nodes, facts=self._facts, deep=False)
        waiting = explain(seen)
        return replace(status, waiting=waiting.sentence if waiting else "")

    def _with_reported(self, name: str, status: GangStatus) -> GangStatus:
        """`status` with the restarts that a follower has read from the logs of keepers."""
        if name not in self._known:
            return status
        _, reported = self._known[name]
        return replace(
            status,
            generation=max(status.generation, reported.generation),
            restarts=max(status.restarts, reported.restarts),
        )

    def _remembered(self, name: str, events: Iterator[GangEvent]) -> Iterator[GangEvent]:
        for event in events:
            if event.status is not None and not event.status.stale_seconds:
                self._known[name] = (time.monotonic(), event.status)
            yield event

    def _has_ended(self, name: str) -> bool:
        return self.status(name).state in ("ended", "absent")

    def _close(self, root: Root, follower: KubernetesFollower) -> FinalState | None:
        """Final state of a gang that was followed."""
        now = self._api.get(root.path)
        if now is None or now["metadata"]["uid"] != root.uid:
            return close_deleted_gang(self._api, root, seen=follower.ends)
        return close_ended_gang(self._api, Root(root.path, now), seen=follower.ends)

    def _podset(self, name: str) -> PodSet:
        _demand_name(name)
        root = find_root(self._api, name, self._kinds)
        final_state = read_final_state(self._api, name) if root is None else None
        if root is not None:
            return root.podset()
        if final_state is not None:
            return final_state.podset
        raise _unknown(name, self._api)

    def _placing(self, root: Root) -> Callable[[], object] | None:
        """Step of a placer for a gang with scheduling gates; None: a placer serves the cluster."""
        if self._facts.placer or choose_route(root.podset(), self._launch, self._facts) != "gates":
            return None
        holder = f"follower of {root.object['metadata']['name']}"
        placer = Placer(self._api, holder=holder, ledger=self._launch.ledger, fabric=self._fabric)
        return lambda: placer.step(datetime.now(UTC))


def _ended(final_state: FinalState) -> GangStatus:
    end = final_state.end
    return GangStatus(
        state="ended", ranks=final_state.podset.world_size, generation=end.generation, restarts=end.restarts
    )


def _demand_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"gang name: wanted lower-case letters, digits and hyphens, found {name!r}")


def _unknown(name: str, api: KubernetesApi) -> UsageError:
    return UsageError(f"there is no gang {name!r} in namespace {api.namespace}; `gangline list` shows the runs")
