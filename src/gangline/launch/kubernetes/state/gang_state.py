"""State of a gang, and how it ended, computed from its root and its pods. No I/O.

A keeper writes its own `GangEnd` as the pod's termination message; without one, the kubelet's status decides. The
class is that of the pod that failed first: pods that lost a peer, or were stopped because the gang had failed, do not
count.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gangline.errors import (
    SIGKILL_CODE,
    SIGTERM_CODE,
    ConfigError,
    LostPeerError,
    OutOfMemoryError,
    RetryClass,
    TrainingError,
    retry_class,
)
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import DISRUPTION, HOSTNAME
from gangline.launch.kubernetes.state.pods import (
    is_living,
    is_over,
    is_ready,
    node_rank,
    phase,
    terminated_state,
    true_condition,
)
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.protocol import GangStatus
from gangline.spec.gang.pod_output import from_message
from gangline.spec.gang.podset import SITE_DEADLINE, PlacedServer, PodSet
from gangline.spec.gang.status import GangEnd, GangState

_OVER_DISK = ("ephemeral", "EmptyDir")
"""Words of an eviction that the pod itself caused: it used more disk than it asked for."""
_NEVER_STARTED = ("StartError", "ContainerCannotRun")


def gang_state(root: Root, pods: list[Object], num_nodes: int) -> GangState:
    """State of the gang behind `root`, whose pods are `pods`."""
    if root.outcome is not None and not root.is_being_deleted:
        return "ended"
    if root.is_being_deleted or root.cancelled is not None or root.condition("FailureTarget"):
        return "stopping"
    if root.is_suspended or not pods:
        return "waiting"
    if any(_ends_the_gang(pod) for pod in pods):
        return "stopping"
    up = sum(is_ready(pod) or phase(pod) == "Succeeded" for pod in pods)
    return "running" if up >= num_nodes else "starting"


def _ends_the_gang(pod: Object) -> bool:
    """Whether the failure policy of its Job ends the gang; under JobSet and Trainer the root does not show it yet."""
    return phase(pod) == "Failed" and not is_disrupted(pod) and not was_terminated(pod)


def status_of(
    state: GangState, pods: list[Object], podset: PodSet, *, placed: Sequence[PlacedServer] = ()
) -> GangStatus:
    """Status from the pods: number of ready ranks, servers, and restarts of the pods that have ended.

    Args:
        state: Of the gang.
        pods: Of the gang.
        podset: Of the gang.
        placed: Servers assigned to its pods in node-rank order, as far as known.
    """
    ends = [found.end for pod in pods if (found := pod_end(pod)) is not None]
    return GangStatus(
        state=state,
        joined=sum(is_ready(pod) for pod in pods) * podset.procs_per_node,
        ranks=podset.world_size,
        generation=max((end.generation for end in ends), default=0),
        restarts=max((end.restarts for end in ends), default=0),
        servers=_servers(pods, [server.name for server in placed] if state in ("starting", "running") else ()),
        placed=tuple(placed),
        tile=podset.tile,
    )


def _servers(pods: list[Object], given: Sequence[str]) -> tuple[str, ...]:
    """Servers in node-rank order; a bound pod overrides `given`, a living pod overrides one being deleted.

    A pod that selects one host name is bound to a node of that name, which the node object need not have.
    """
    places = dict(enumerate(given))
    for pod in sorted(pods, key=is_living):
        spec = pod.get("spec") or {}
        if node := spec.get("nodeName"):
            places[node_rank(pod)] = (spec.get("nodeSelector") or {}).get(HOSTNAME, node)
    return tuple(places[rank] for rank in sorted(places))


@dataclass(frozen=True, kw_only=True, slots=True)
class PodEnd:
    """How one pod ended."""

    uid: str
    node: int
    time: str
    """RFC 3339; in milliseconds if the keeper reported it, else in whole seconds."""
    end: GangEnd
    disrupted: bool = False
    """The platform evicted it; Kubernetes creates another pod."""
    stopped: bool = False
    """It was asked to stop, so its exit code does not say why the gang ended."""

    @property
    def failed(self) -> bool:
        """Whether the exit code is not 0."""
        return self.end.exit_code != 0


def pod_end(pod: Object) -> PodEnd | None:
    """How `pod` ended; None: it has not."""
    state = terminated_state(pod)
    if state is None and not is_over(pod):
        return None
    end = _end_of(pod, state or {})
    return PodEnd(
        uid=pod["metadata"]["uid"],
        node=node_rank(pod),
        time=end.time,
        end=end,
        disrupted=is_disrupted(pod),
        stopped=pod["metadata"].get("deletionTimestamp") is not None or was_terminated(pod),
    )


def is_disrupted(pod: Object) -> bool:
    """Whether the platform evicted or preempted the pod."""
    return true_condition(pod, DISRUPTION) is not None


def was_terminated(pod: Object) -> bool:
    """Whether its container exited by SIGTERM, so that its Job creates a replacement."""
    return (terminated_state(pod) or {}).get("exitCode") == SIGTERM_CODE


def gang_end(root: Root | None, ends: Iterable[PodEnd], *, deadline_key: str = SITE_DEADLINE) -> GangEnd:
    """The end of a gang that was not stopped from outside.

    Args:
        root: As last seen; None: it was deleted.
        ends: Of all pods that were seen, including replaced ones.
        deadline_key: As in its PodSet.
    """
    ends = sorted(ends, key=_order)
    well = root is not None and root.ended_well
    speaker = _reporting_pod(ends) if well else _first_failure(root, ends, deadline_key)
    return combine_ends(speaker, ends)


def combine_ends(speaker: GangEnd, ends: Iterable[PodEnd]) -> GangEnd:
    """`speaker` with the seconds and restarts of all pods, their highest generation, and what node 0 saved last."""
    ends = sorted(ends, key=_order)
    pod_ends = [each.end for each in ends]
    leading = [each.end for each in ends if each.node == 0]
    saved = leading[-1] if leading else speaker
    ledger: dict[str, float] = {}
    for end in pod_ends:
        for cause, seconds in end.ledger.items():
            ledger[cause] = ledger.get(cause, 0.0) + seconds
    return replace(
        speaker,
        ledger=ledger,
        allocated_seconds=sum(end.allocated_seconds for end in pod_ends),
        restarts=max(speaker.restarts, _restarts(ends)),
        step=saved.step if speaker.step is None else speaker.step,
        saved_step=saved.saved_step if speaker.saved_step is None else speaker.saved_step,
        generation=max([speaker.generation, *(end.generation for end in pod_ends)]),
    )


def _restarts(ends: Sequence[PodEnd]) -> int:
    """Restarts that the pods count; the pod that replaces the only one of a gang begins to count again."""
    counted = [each.end.restarts for each in ends]
    if any(each.node for each in ends):
        return max(counted)
    return sum(counted) + max(0, len(counted) - 1)


def _end_of(pod: Object, state: Object) -> GangEnd:
    message = from_message(state.get("message") or "")
    time = state.get("finishedAt") or pod["metadata"].get("deletionTimestamp") or ""
    if message is not None:
        return message if message.time else replace(message, time=time)
    return replace(_end_by_kubelet_status(pod, state), time=time)


def _end_by_kubelet_status(pod: Object, state: Object) -> GangEnd:
    """End from the exit code and the kubelet's reason, for a pod without a message of its keeper."""
    server = (pod.get("spec") or {}).get("nodeName") or "its server"
    who = f"pod {pod['metadata']['name']} on {server}"
    status = pod.get("status") or {}
    words = " ".join(str(status.get("message") or state.get("message") or "").split())[-500:]
    if status.get("reason") == "Evicted" and any(word in words for word in _OVER_DISK) and "low on" not in words:
        return _stop(TrainingError.exit_code, "never", f"{who} used more disk than pod.disk_bytes: {words}")
    if status.get("reason") == "Evicted":
        return _stop(SIGKILL_CODE, "free", f"{who} was evicted: {words}")
    if state.get("reason") == "OOMKilled":
        more = "use a smaller micro_batch or more pod.memory_bytes"
        return _stop(OutOfMemoryError.exit_code, OutOfMemoryError.retry, f"{who} was killed for lack of memory; {more}")
    if state.get("reason") in _NEVER_STARTED:
        return _stop(ConfigError.exit_code, ConfigError.retry, f"{who} cannot start: {words}")
    code = int(state.get("exitCode", SIGKILL_CODE if phase(pod) == "Failed" else 0))
    if code == 0:
        return GangEnd(exit_code=0, retry="never", reason=f"{who} succeeded")
    how = f"by signal {code - 128}" if code > 128 else f"with exit code {code}"
    because = " because the platform evicted it" if is_disrupted(pod) else ""
    tail = f": {words}" if words else " without a message"
    killed = code in (SIGKILL_CODE, SIGTERM_CODE)  # a keeper leaves a message: another code is that of a shell or image
    retry = retry_class(code, disrupted=is_disrupted(pod)) if killed else TrainingError.retry
    return _stop(code if killed else TrainingError.exit_code, retry, f"{who} ended {how}{because}{tail}")


def _first_failure(root: Root | None, ends: Sequence[PodEnd], deadline_key: str) -> GangEnd:
    failures = [each for each in ends if each.failed]
    culprits = _exclude(failures, _was_disrupted, _was_stopped, _lost_a_peer)
    if root is not None and (over := _deadline(root, deadline_key)) and not _failed_before_it(culprits):
        return over
    if culprits:
        return culprits[0].end
    condition = (root.condition("Failed") if root else None) or {}
    why = condition.get("message") or "its pods are gone and their exit codes are unknown"
    return _stop(SIGKILL_CODE, "same", f"the gang was lost: {why}")


def _exclude(failures: list[PodEnd], *says_nothing: Callable[[PodEnd], bool]) -> list[PodEnd]:
    """Leave out failures that are consequences, as long as others remain."""
    for each in says_nothing:
        failures = [failure for failure in failures if not each(failure)] or failures
    return failures


def _was_disrupted(each: PodEnd) -> bool:
    return each.disrupted


def _was_stopped(each: PodEnd) -> bool:
    return each.stopped


def _lost_a_peer(each: PodEnd) -> bool:
    return each.end.exit_code == LostPeerError.exit_code


def _deadline(root: Root, key: str) -> GangEnd | None:
    condition = root.condition("Failed") or root.condition("FailureTarget") or {}
    if condition.get("reason") != "DeadlineExceeded":
        return None
    seconds = root.object["spec"].get("activeDeadlineSeconds")
    words = f"its time limit of {seconds} s has passed" if seconds else "its time limit has passed"
    end = _stop(TrainingError.exit_code, "never", f"{words}; raise {key}, or train fewer steps")
    return replace(end, time=condition.get("lastTransitionTime", ""))


def _failed_before_it(culprits: Sequence[PodEnd]) -> bool:
    """Whether a pod failed by itself before the deadline; pods stopped at the deadline end by a signal."""
    return any(
        not culprit.stopped and culprit.end.exit_code not in (SIGKILL_CODE, SIGTERM_CODE) for culprit in culprits
    )


def _reporting_pod(ends: Sequence[PodEnd]) -> GangEnd:
    """End of a successful gang: that of the last pod of node 0, if it succeeded."""
    well = [each.end for each in ends if not each.failed]
    first = [each.end for each in ends if not each.failed and each.node == 0]
    return (first or well or [GangEnd(exit_code=0, retry="never", reason="all its pods succeeded")])[-1]


def _stop(code: int, retry: RetryClass, reason: str) -> GangEnd:
    return GangEnd(exit_code=code, retry=retry, reason=reason)


def _order(each: PodEnd) -> tuple[datetime, int]:
    try:
        time = datetime.fromisoformat(each.time)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC), each.node
    return (time if time.tzinfo else time.replace(tzinfo=UTC)), each.node
