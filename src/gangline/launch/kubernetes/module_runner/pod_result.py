"""Waits for the pod of a module and reads its result. Writes nothing."""

import time

from gangline.errors import (
    SIGKILL_CODE,
    CapacityError,
    ConfigError,
    GanglineError,
    IntegrityError,
    StorageError,
    error_for,
)
from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.labels import CONTAINER
from gangline.launch.kubernetes.state.pods import is_over, list_pods, terminated_state
from gangline.launch.kubernetes.state.roots import JOB, Root, find_root
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence
from gangline.launch.kubernetes.waiting.explain import WaitReporter
from gangline.launch.sandbox.module_runner import ModuleResult
from gangline.spec.gang.one_shot_pod import from_lines
from gangline.spec.gang.podset import PodSet
from gangline.units import format_bytes

_POLL_SECONDS = 0.25
START_SECONDS = 600.0
"""Time limit for a pod to get a server and its image."""
_FETCH_SECONDS = 600.0
"""Time in addition to that of the module, to fetch the bundle and to end."""
_READS, _READ_SECONDS = 5, 1.0
"""Attempts, and the pause between them, to read a log whose end the kubelet has not written yet."""


def await_end(api: KubernetesApi, podset: PodSet, *, facts: ClusterFacts, seconds: float) -> Object:
    """Wait until the pod has ended, and return it.

    Raises:
        CapacityError: It did not start in time; the message says why.
        ConfigError: It can never start.
        StorageError: It was deleted, or does not end.
    """
    began, waits = time.monotonic(), WaitReporter()
    started: float | None = None
    while True:
        root, pods = find_root(api, podset.name, (JOB,)), list_pods(api, podset.name)
        if pods and is_over(pods[-1]):
            return pods[-1]
        now = time.monotonic()
        if started is None and any(map(_has_started, pods)):
            started = now
        if root is None or root.outcome is not None or (started is not None and not pods):
            raise StorageError(f"the pod {podset.name} for model code was deleted{_why(root)}; run again")
        if started is None:
            _wait(api, root, pods, facts, waits, has_time=now - began < START_SECONDS)
        elif now - started > seconds + _FETCH_SECONDS:
            raise StorageError(f"the pod {podset.name} for model code did not end in time; run again")
        time.sleep(_POLL_SECONDS)


def read_result(api: KubernetesApi, pod: Object, *, memory_bytes: float) -> ModuleResult:
    """The result of the module.

    Raises:
        StorageError: The pod was evicted before the module ended, or the bundle could not be fetched.
    """
    ended = terminated_state(pod)
    if ended is None or (pod.get("status") or {}).get("reason"):
        raise _cut_short(pod)
    for _ in range(_READS):
        lines = (text for _, text in api.logs(pod["metadata"]["name"], container=CONTAINER))
        if (answer := from_lines(lines)) is not None:
            return ModuleResult(exit_code=answer.exit_code, stdout=answer.stdout, stderr=answer.stderr)
        if ended.get("exitCode") != 0:
            break
        time.sleep(_READ_SECONDS)
    if ended.get("reason") == "OOMKilled":
        said = f"its pod ran out of memory, {format_bytes(memory_bytes)}; pod.memory_bytes in site.toml gives it more"
        return ModuleResult(exit_code=SIGKILL_CODE, stdout=b"", stderr=said.encode())
    said = f"its pod ended with code {ended.get('exitCode')} and no result: {ended.get('message') or 'no message'}"
    return ModuleResult(exit_code=int(ended.get("exitCode") or 1), stdout=b"", stderr=said.encode())


def _wait(
    api: KubernetesApi, root: Root, pods: list[Object], facts: ClusterFacts, waits: WaitReporter, *, has_time: bool
) -> None:
    """Update the waiting reason; raises if waiting is pointless."""
    if waits.is_due or not has_time:
        waits.take(explain(gather_evidence(api, root, pods, num_nodes=1, facts=facts)))
    if waits.is_hopeless:
        raise ConfigError(f"the pod for model code cannot start: {waits.reason}")
    if not has_time:
        raise CapacityError(f"the pod for model code did not start in {START_SECONDS:.0f} s: {waits.reason}")


def _why(root: Root | None) -> str:
    outcome = root.outcome if root else None
    return f" ({outcome.get('reason')}: {outcome.get('message')})" if outcome else ""


def _cut_short(pod: Object) -> GanglineError:
    fetched = terminated_state(pod, "fetch", statuses="initContainerStatuses")
    if fetched is not None and fetched.get("exitCode"):
        said = str(fetched.get("message") or "").strip().splitlines() or [f"exit {fetched['exitCode']}"]
        if fetched["exitCode"] in (StorageError.exit_code, IntegrityError.exit_code):
            return error_for(fetched["exitCode"])(f"the pod for model code could not start: {said[-1][:500]}")
        image = pod["spec"]["containers"][0]["image"]
        return ConfigError(
            f"the pod for model code could not start: {said[-1][:500]}; wanted {image} with this version of gangline"
        )
    status = pod.get("status") or {}
    why = " ".join(str(status[name]) for name in ("reason", "message") if status.get(name)) or "no reason was given"
    return StorageError(f"the pod for model code was evicted from its server: {why}; run again")


def _has_started(pod: Object) -> bool:
    """Whether its first container runs or ran, so that server and image are there."""
    states = (each.get("state") or {} for each in (pod.get("status") or {}).get("initContainerStatuses") or ())
    return any(state.get("running") or state.get("terminated") for state in states)
