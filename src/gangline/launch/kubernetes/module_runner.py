"""`PodRunner`: runs one module of model code in one pod, and deletes everything it created for it.

Code and files are one object of the store while the pod runs. The driver needs no right beyond those for gangs. The pod
is that of a gang with two containers: the first fetches, the second runs model code. Only the first mounts the Secret,
a URL that reads one object for a limited time. The second has no credential and no way to get one; its network is that
of a gang, where the store requires a credential.

Job, Secret, policy and bundle are deleted in every case. If a driver dies, the Job ends by its deadline and is deleted
by its time to live, and a sweep finds the rest by label and prefix.
"""

import hashlib
import io
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex

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
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, read_facts
from gangline.launch.kubernetes.lifecycle.cancel import PodDeletion
from gangline.launch.kubernetes.lifecycle.submit import Submitter
from gangline.launch.kubernetes.objects.labels import CONTAINER, END, MODULE_ROLE, ROLE, rfc3339
from gangline.launch.kubernetes.objects.pod_environment import HOME, SECRETS_FOLDER, USER
from gangline.launch.kubernetes.objects.render import Rendered, render_as
from gangline.launch.kubernetes.objects.render_context import RenderContext, choose_route
from gangline.launch.kubernetes.state.pods import is_over, list_pods, terminated_state
from gangline.launch.kubernetes.state.roots import JOB, Root, deletion_propagation, find_root
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence
from gangline.launch.kubernetes.waiting.explain import WaitReporter
from gangline.launch.sandbox.module_runner import ModuleJob, ModuleResult
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.one_shot_pod import (
    BUNDLE_SECONDS,
    BUNDLES,
    CALL,
    CODE,
    FILES,
    CodeBundle,
    ModuleCall,
    from_lines,
)
from gangline.spec.gang.podset import PodSet, Resources
from gangline.storage.objects.protocol import ObjectStore, Upload
from gangline.units import format_bytes

BUNDLE = "bundle"
"""Name of the secret and of its file."""
COMMAND = ("python", "-m", "gangline.keeper.transfer.one_shot_pod")
_KEPT_SECONDS = 60
"""How long an ended Job is kept if its driver died."""
_ENVIRONMENT = {
    "GANGLINE_HOME": HOME, "HOME": HOME, "LOGNAME": USER, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"
}  # fmt: skip

_POLL_SECONDS = 0.25
START_SECONDS = 600.0
"""Time limit for a pod to get a server and its image."""
_FETCH_SECONDS = 600.0
"""Time in addition to that of the module, to fetch the bundle and to end."""
_READS, _READ_SECONDS = 5, 1.0
"""Attempts, and the pause between them, to read a log whose end the kubelet has not written yet."""


def render_module_pod(context: RenderContext) -> Rendered:
    """Objects for a PodSet of one node, whose `deadline_seconds` are those of the module."""
    rendered = render_as("job", context)
    root = rendered.root
    spec = root["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    run = _run(container)
    pod["initContainers"], pod["containers"] = [_fetch(container)], [run]
    spec["ttlSecondsAfterFinished"] = _KEPT_SECONDS
    del spec["podFailurePolicy"]  # a pod that is evicted is not created again: its driver retries
    end = context.now + timedelta(seconds=spec["activeDeadlineSeconds"])  # waiting for a server is in it
    for each in (root, spec["template"]):
        each["metadata"]["labels"] |= {ROLE: MODULE_ROLE}
        each["metadata"]["annotations"] |= {END: rfc3339(end)}
    policies = tuple(each for each in rendered.around if each[1]["kind"] == "NetworkPolicy")
    return replace(rendered, root=root, around=policies)


def _run(container: Object) -> Object:
    mounts = [each for each in container["volumeMounts"] if each["name"] != "secrets"]
    kept = {name: value for name, value in container.items() if name not in ("ports", "readinessProbe")}
    return kept | {"env": _env(_ENVIRONMENT), "volumeMounts": mounts}


def _fetch(container: Object) -> Object:
    env = _env(_ENVIRONMENT | {"GANGLINE_BUNDLE_FILE": f"{SECRETS_FOLDER}/{BUNDLE}"})
    mine = _run(container) | {"name": "fetch", "command": [*COMMAND, "fetch"], "env": env}
    return mine | {"volumeMounts": container["volumeMounts"]}


def _env(values: dict[str, str]) -> list[Object]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwningRun:
    """The run for which model code runs, and the image of its pods."""

    run: str
    project: str
    commit: str
    image: str | None
    """Image by digest."""


@dataclass(frozen=True, kw_only=True)
class PodRunner:
    """Implements `ModuleRunner` with a pod; sends no request before the first job."""

    connect: Callable[[], KubernetesApi]
    store: ObjectStore
    """Store as this driver reaches it."""
    pods_store: Callable[[], ObjectStore]
    """The same store as pods reach it; raises `ConfigError` if they cannot."""
    whose: OwningRun
    launch: LaunchTable
    pod: PodTable

    def run(self, job: ModuleJob) -> ModuleResult:
        """Run `job` by the protocol.

        Raises:
            ConfigError: There is no image, pods reach no store, or the cluster refuses such a pod.
            CapacityError: No server has room for it.
        """
        if self.whose.image is None:
            raise ConfigError(
                "model code runs in a pod here, and pods need an image; set registry.base in site.toml (gangline"
                " doctor --cluster shows more), or install bubblewrap where gangline runs, and it runs there"
            )
        name = f"{self.whose.run}-{token_hex(3)[:5]}"
        key, pods_store, api = f"{BUNDLES}{name}.tar", self.pods_store(), self.connect()
        facts = read_facts(api)
        try:
            sha256 = _put_bundle(self.store, key, job)
            bundle = CodeBundle(url=pods_store.presign(key, BUNDLE_SECONDS), sha256=sha256)
            return self._run(api, facts, self._podset(name, job, pods_store.url), bundle, job)
        finally:
            with suppress(GanglineError):  # a sweep deletes what is left
                self.store.delete(key)

    def _run(
        self, api: KubernetesApi, facts: ClusterFacts, podset: PodSet, bundle: CodeBundle, job: ModuleJob
    ) -> ModuleResult:
        def render(podset: PodSet, now: datetime) -> Rendered:
            kueue = choose_route(podset, self.launch, facts) == "kueue"
            pod = replace(self.pod, disk_bytes=self.pod.disk_bytes + 2 * _size_bytes(job))  # the bundle, and its files
            return render_module_pod(
                RenderContext(
                    podset=podset, namespace=api.namespace, pod=pod, launch=self.launch, facts=facts,
                    route="kueue" if kueue else "none", now=now,
                )
            )  # fmt: skip

        try:
            Submitter(api=api, kinds=(JOB,), render=render, secrets=lambda _: bundle.to_json()).submit(podset)
            pod = await_end(api, podset, facts=facts, seconds=job.seconds)
            return read_result(api, pod, memory_bytes=podset.resources.memory_bytes or 0)
        finally:
            with suppress(GanglineError):  # its Job ends by itself, and goes then
                path = JOB.path(api.namespace, podset.name)
                api.delete(path, propagation=deletion_propagation(path))
                PodDeletion(api, podset.name, save=False).wait()

    def _podset(self, name: str, job: ModuleJob, store: str) -> PodSet:
        """PodSet with the resources of one rank, and twice the size of the files as additional memory."""
        memory = round(self.pod.memory_bytes) + 2 * _size_bytes(job)
        return PodSet(
            name=name, run=self.whose.run, project=self.whose.project, commit=self.whose.commit, procs_per_node=1,
            image=self.whose.image, code="", plan="", store=store, command=COMMAND, secrets=(BUNDLE,),
            resources=Resources(cpus=self.pod.cpus, memory_bytes=memory), queue=self.launch.queue,
            deadline_seconds=job.seconds,
        )  # fmt: skip


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
            raise StorageError(f"the pod {podset.name} for model code was deleted{_deletion_reason(root)}; run again")
        if started is None:
            _check_wait(api, root, pods, facts, waits, has_time=now - began < START_SECONDS)
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


_PART_BYTES = 16 * 2**20


def _put_bundle(store: ObjectStore, key: str, job: ModuleJob) -> str:
    """Write the bundle of `job` to the store; returns its SHA-256.

    Raises:
        IntegrityError: A folder holds links or devices.
        StorageError: The store failed.
    """
    call = ModuleCall(
        module=job.module, arguments=job.arguments, seconds=job.seconds, path=job.path, env=dict(job.env)
    )  # fmt: skip
    with store.upload(key) as upload:
        parts = _Parts(upload)
        with tarfile.open(fileobj=parts, mode="w|", bufsize=_PART_BYTES) as tar:  # type: ignore[call-overload]  # it writes
            _add(tar, CALL, call.to_json())
            if job.code is not None:
                _add(tar, CODE, job.code)
            for name, data in job.files.items():
                _add(tar, f"{FILES}/{name}", data)
    return parts.digest.hexdigest()


def _size_bytes(job: ModuleJob) -> int:
    """Total size of the files of the job."""
    return sum(len(data) if isinstance(data, bytes) else _size(data) for data in job.files.values())


class _Parts:
    """File object for tarfile that uploads each block of `bufsize` as a part."""

    def __init__(self, upload: Upload) -> None:
        self._upload, self.digest = upload, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._upload.part(data)
        self.digest.update(data)
        return len(data)


def _add(tar: tarfile.TarFile, name: str, data: bytes | Path) -> None:
    if isinstance(data, Path):
        tar.add(data.resolve(), name, filter=_plain)
    else:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    if not (entry.isfile() or entry.isdir()):
        raise IntegrityError(f"{entry.name}: wanted a plain file or a folder for a pod, found a link or a device")
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())


def _check_wait(
    api: KubernetesApi, root: Root, pods: list[Object], facts: ClusterFacts, waits: WaitReporter, *, has_time: bool
) -> None:
    """Update the waiting reason; raises if waiting is pointless."""
    if waits.is_due or not has_time:
        waits.take(explain(gather_evidence(api, root, pods, num_nodes=1, facts=facts)))
    if waits.is_hopeless:
        raise ConfigError(f"the pod for model code cannot start: {waits.reason}")
    if not has_time:
        raise CapacityError(f"the pod for model code did not start in {START_SECONDS:.0f} s: {waits.reason}")


def _deletion_reason(root: Root | None) -> str:
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
