"""Sweep: deletes the objects of runs that are over, found by label."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.lifecycle.final_state import FINAL_STATE, final_state_path
from gangline.launch.kubernetes.objects.labels import END, GANG, RUN, collection_path
from gangline.launch.kubernetes.objects.volcano import pod_groups_path
from gangline.launch.kubernetes.state.pods import pods_path
from gangline.launch.kubernetes.state.roots import JOB, JOBSET, RUNTIME, TRAINJOB, deletion_propagation
from gangline.launch.protocol import Life, SweepResult


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    path: str
    object: Object

    @property
    def gang(self) -> str:
        labels = self.object["metadata"].get("labels") or {}
        return str(labels.get(GANG) or labels.get(FINAL_STATE))

    @property
    def run(self) -> str:
        return str((self.object["metadata"].get("labels") or {}).get(RUN, ""))


def sweep_gangs(
    api: KubernetesApi, *, facts: ClusterFacts, now: datetime, life: Callable[[str], Life]
) -> list[SweepResult]:
    """One result per gang. Gangs of an `unknown` run are deleted only after their own latest end."""
    gangs: dict[str, list[_Found]] = {}
    for found in _everything(api, facts):
        gangs.setdefault(found.gang, []).append(found)
    lives: dict[str, Life] = {}
    swept = []
    for gang, things in sorted(gangs.items()):
        run = things[0].run
        known = lives[run] if run in lives else lives.setdefault(run, life(run))
        over = [each for each in things if _is_over(each, known, now)]
        deleted = [_delete(api, each) for each in over]
        swept.append(SweepResult(name=gang, run=run, life=known, deleted=any(deleted)))
    return swept


def _everything(api: KubernetesApi, facts: ClusterFacts) -> Iterable[_Found]:
    """Objects of gangs: roots first, which own the others; the rest is listed for roots that are already gone."""
    namespace = api.namespace
    for kind in (TRAINJOB, JOBSET, JOB):
        if kind is JOB or (facts.jobset if kind is JOBSET else facts.trainer is not None):
            # objects with an owner are deleted with it: JobSets of a TrainJob, Jobs of a JobSet
            yield from (each for each in _list(api, kind.path(namespace), GANG) if not _is_owned(each.object))
    if facts.trainer is not None:
        yield from _list(api, RUNTIME.path(namespace), GANG)
    yield from _unowned(api, final_state_path(api), FINAL_STATE)
    for group_version, plural in (("networking.k8s.io/v1", "networkpolicies"), ("v1", "services"), ("v1", "secrets")):
        yield from _unowned(api, collection_path(group_version, plural, namespace))
    if facts.volcano is not None:
        yield from _unowned(api, pod_groups_path(namespace))
    yield from _unowned(api, pods_path(api))


def _unowned(api: KubernetesApi, path: str, label: str = GANG) -> Iterable[_Found]:
    """Objects without an owner; empty if this account may not list them."""
    try:
        return [each for each in _list(api, path, label) if not _is_owned(each.object)]
    except ApiForbidden:
        return []


def _list(api: KubernetesApi, path: str, label: str) -> list[_Found]:
    found, _ = api.items(path, labels=label, keep=_slim)
    return [_Found(path=f"{path}/{each['metadata']['name']}", object=each) for each in found]


def _slim(found: Object) -> Object:
    metadata = found["metadata"]
    kept = ("name", "uid", "labels", "ownerReferences")
    end = (metadata.get("annotations") or {}).get(END)
    return {"metadata": {key: metadata[key] for key in kept if key in metadata} | {"annotations": {END: end}}}


def _is_owned(found: Object) -> bool:
    return any(each.get("kind") != "Workflow" for each in found["metadata"].get("ownerReferences") or ())


def _is_over(found: _Found, life: Life, now: datetime) -> bool:
    if life in ("ended", "orphan"):
        return True
    end = found.object["metadata"]["annotations"][END]
    return life == "unknown" and end is not None and now > datetime.fromisoformat(end)


def _delete(api: KubernetesApi, found: _Found) -> bool:
    return api.delete(found.path, uid=found.object["metadata"]["uid"], propagation=deletion_propagation(found.path))
