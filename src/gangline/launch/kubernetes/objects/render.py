"""A PodSet as the objects that a launcher creates, in the order in which it creates them.

The root is born suspended and in no queue; what belongs to it follows, owned by it; one last write makes it runnable.
Whoever dies in between leaves a state that holds no GPU and that the next submit completes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects import network_policy
from gangline.launch.kubernetes.objects.job import job, jobs_path
from gangline.launch.kubernetes.objects.jobset import jobset, jobsets_path
from gangline.launch.kubernetes.objects.labels import GANG, QUEUED, collection_path, rfc3339
from gangline.launch.kubernetes.objects.render_context import RenderContext, Route, owner_reference
from gangline.launch.kubernetes.objects.service_and_secret import secret, service, services_path
from gangline.launch.kubernetes.objects.trainjob import (
    overriding_trainjob,
    runtimes_path,
    training_runtime,
    trainjob,
    trainjobs_path,
)
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import PodSet

__all__ = [
    "PathAndObject",
    "Rendered",
    "RootName",
    "choose_root",
    "owned",
    "owner_patch",
    "render",
    "render_as",
    "secret",
]

RootName = Literal["trainjob", "job", "jobset"]
PathAndObject = tuple[str, Object]
"""An object, and the path of the collection it is created in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    before: tuple[PathAndObject, ...]
    """What must be there before the root; owned by it as soon as it has a uid, see `owner_patch`."""
    root_path: str
    root: Object
    around: tuple[PathAndObject, ...]
    """What belongs to the root; give each its owner by `owned`. The Secret is the launcher's, see `secret`."""
    release: Object
    """Merge patch of the root that makes it runnable; the last write."""
    pods_path: str
    pod_selector: str
    note: str = ""
    """Why the root is another one than the site asked for; empty: it is that one."""


def render(
    podset: PodSet,
    *,
    namespace: str,
    pod: PodTable,
    launch: LaunchTable,
    facts: ClusterFacts,
    route: Route,
    now: datetime,
    owner: Object | None = None,
    pod_annotations: Mapping[str, str] | None = None,
    queue_labels: Mapping[str, str] | None = None,
) -> Rendered:
    """The objects of one gang; the same question gives the same objects.

    Args:
        podset: What to start.
        namespace: Of all objects.
        pod: The site's word about pods.
        launch: The site's word about launching.
        facts: What the cluster serves.
        route: Who starts the gang whole.
        now: From which its hard end is counted.
        owner: With whose end this gang goes, as the server has it; in the same namespace.
        pod_annotations: What a batch scheduler reads from the pod template.
        queue_labels: What puts the root into a queue, under route "kueue".

    Raises:
        ConfigError: Something of it cannot be said to this cluster.
    """
    context = RenderContext(
        podset=podset, namespace=namespace, pod=pod, launch=launch, facts=facts, route=route, now=now, owner=owner,
        pod_annotations=pod_annotations or {}, queue_labels=queue_labels or {},
    )  # fmt: skip
    kind, note = choose_root(launch, facts)
    return render_as(kind, context, note=note)


def render_as(kind: RootName, context: RenderContext, *, note: str = "") -> Rendered:
    """The objects of one gang under a root of this kind, served or not."""
    namespace = context.namespace
    root_path, root = _root(context, kind)
    return Rendered(
        before=_before(context, kind),
        root_path=root_path,
        root=root,
        around=_around(context, kind),
        release=_release(context),
        pods_path=collection_path("v1", "pods", namespace),
        pod_selector=f"{GANG}={context.podset.name}",
        note=note,
    )


def choose_root(launch: LaunchTable, facts: ClusterFacts) -> tuple[RootName, str]:
    """The kind of the root, and why it is not the one that the site asked for.

    Raises:
        ConfigError: The site asks for JobSets by name, and there are none.
    """
    if launch.launcher == "jobset" and not facts.jobset:
        raise ConfigError(
            'launch.launcher: wanted "jobset", found a cluster that serves no JobSet; "job" works on every cluster'
        )
    if launch.launcher == "trainjob" and facts.trainer is None:
        return "job", "a plain Job, as this cluster serves no TrainJob"
    return launch.launcher, ""


def owned(thing: Object, root: Object) -> Object:
    """`thing` with the root, as the server has it, as its owner."""
    named = thing["metadata"] | {"ownerReferences": [owner_reference(root)]}
    return thing | {"metadata": named}


def owner_patch(root: Object) -> Object:
    """Merge patch that gives to the root what had to be there before it."""
    return {"metadata": {"ownerReferences": [owner_reference(root)]}}


def _root(context: RenderContext, kind: RootName) -> PathAndObject:
    match kind:
        case "job":
            return jobs_path(context.namespace), job(context)
        case "jobset":
            return jobsets_path(context.namespace), jobset(context)
        case "trainjob":
            return trainjobs_path(context.namespace), _trainjob(context)


def _trainjob(context: RenderContext) -> Object:
    """Where it is not known which Trainer there is, the newest spelling."""
    runtime = context.launch.runtime
    if runtime is None:
        return trainjob(context)
    return overriding_trainjob(context, runtime, context.facts.trainer or "runtimePatches")


def _before(context: RenderContext, kind: RootName) -> tuple[PathAndObject, ...]:
    if kind != "trainjob" or context.launch.runtime is not None:
        return ()
    return ((runtimes_path(context.namespace), training_runtime(context)),)


def _around(context: RenderContext, kind: RootName) -> tuple[PathAndObject, ...]:
    """JobSet makes a Service of its own, under the very name."""
    policy = (network_policy.network_policies_path(context.namespace), network_policy.network_policy(context))
    return ((services_path(context.namespace), service(context)), policy) if kind == "job" else (policy,)


def _release(context: RenderContext) -> Object:
    match context.route:
        case "none":
            return {"spec": {"suspend": False}}
        case "gates":
            return {"metadata": {"annotations": {QUEUED: rfc3339(context.now)}}}
        case "kueue":
            return {"metadata": {"labels": context.queue_metadata.root_labels}}
