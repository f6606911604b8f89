"""Renders a PodSet to the objects that a launcher creates, in the order of creation.

The root is created suspended and in no queue, then the objects that it owns; one last write makes it runnable. If the
launcher dies in between, the objects hold no GPU, and the next submit completes them.
"""

from dataclasses import dataclass
from typing import Literal

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects import coordinator, network_policy
from gangline.launch.kubernetes.objects.kai import require_gang
from gangline.launch.kubernetes.objects.labels import QUEUED, path_of, rfc3339
from gangline.launch.kubernetes.objects.render_context import RenderContext, owner_reference
from gangline.launch.kubernetes.objects.root_objects import (
    job,
    jobset,
    overriding_trainjob,
    training_runtime,
    trainjob,
)
from gangline.launch.kubernetes.objects.service_and_secret import secret, service
from gangline.launch.kubernetes.objects.volcano import pod_group
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.driver_orders import coordinator_of

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
"""Path of a collection, and an object to create there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """Objects of one gang, in the order of creation: `before`, `root`, `around`, then the patch `release`."""

    before: tuple[PathAndObject, ...]
    """Objects that must exist before the root; `owner_patch` gives them to it once it has a uid."""
    root_path: str
    root: Object
    around: tuple[PathAndObject, ...]
    """Objects that the root owns, see `owned`. The launcher creates the Secret, see `secret`."""
    shared: tuple[PathAndObject, ...]
    """Objects likewise whose names other gangs want, too: one at a time has them."""
    release: Object
    """Merge patch that makes the root runnable; the last write."""


def render(context: RenderContext) -> Rendered:
    """The objects of one gang; equal arguments give equal objects.

    Raises:
        ConfigError: This cluster cannot express something that the gang requires.
    """
    is_federated = coordinator_of(context.podset.env) is not None
    return render_as("job" if is_federated else choose_root(context.launch, context.facts), context)


def render_as(kind: RootName, context: RenderContext) -> Rendered:
    """The objects of one gang with a root of this kind, whether or not the cluster serves it."""
    if context.route == "kai":
        require_gang(context.podset, kind)
    root = _root(context, kind)
    before, around = _before(context, kind), _around(context, kind)
    return Rendered(
        before=tuple((path_of(each), each) for each in before),
        root_path=path_of(root),
        root=root,
        around=tuple((path_of(each), each) for each in around),
        shared=tuple((path_of(each), each) for each in coordinator.services(context)),
        release=_release(context),
    )


def choose_root(launch: LaunchTable, facts: ClusterFacts) -> RootName:
    """Kind of the root: the configured one, or a plain Job where the cluster serves no TrainJob.

    Raises:
        ConfigError: The site configures JobSets, and the cluster does not serve them.
    """
    if launch.launcher == "jobset" and not facts.jobset:
        raise ConfigError(
            'launch.launcher: wanted "jobset", found a cluster that serves no JobSet; "job" works on every cluster'
        )
    if launch.launcher == "trainjob" and facts.trainer is None:
        return "job"
    return launch.launcher


def owned(thing: Object, root: Object) -> Object:
    """`thing` with `root`, as read from the server, as its owner."""
    named = thing["metadata"] | {"ownerReferences": [owner_reference(root)]}
    return thing | {"metadata": named}


def owner_patch(root: Object) -> Object:
    """Merge patch that makes `root` the owner of an object created before it."""
    return {"metadata": {"ownerReferences": [owner_reference(root)]}}


def _root(context: RenderContext, kind: RootName) -> Object:
    """A TrainJob uses the newest spelling of overrides if the version of Trainer is unknown."""
    if kind == "trainjob" and (runtime := context.launch.runtime) is not None:
        return overriding_trainjob(context, runtime, context.facts.trainer or "runtimePatches")
    return {"job": job, "jobset": jobset, "trainjob": trainjob}[kind](context)


def _before(context: RenderContext, kind: RootName) -> list[Object]:
    return [training_runtime(context)] if kind == "trainjob" and context.launch.runtime is None else []


def _around(context: RenderContext, kind: RootName) -> list[Object]:
    """Only a plain Job needs the Service: JobSet creates one of the same name."""
    services = [service(context)] if kind == "job" else []
    groups = [pod_group(context)] if context.route == "volcano" else []
    return [*services, network_policy.network_policy(context), *groups]


def _release(context: RenderContext) -> Object:
    match context.route:
        case "none" | "jobset" | "volcano" | "kai":
            return {"spec": {"suspend": False}}
        case "gates":
            return {"metadata": {"annotations": {QUEUED: rfc3339(context.now)}}}
        case "kueue":
            return {"metadata": {"labels": context.queue_metadata.root_labels}}
