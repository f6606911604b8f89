"""Deletes what belongs to runs that are over, found by label: nobody has to remember having made it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from gangline.launch.kubernetes.api.facts import Facts
from gangline.launch.kubernetes.api.protocol import Api, Denied, Object
from gangline.launch.kubernetes.kept import KEPT, kept_path
from gangline.launch.kubernetes.objects.setting import END, GANG, RUN, collection
from gangline.launch.kubernetes.pods import pods_path
from gangline.launch.kubernetes.roots import JOB, JOBSET, RUNTIME, TRAINJOB, deletion_of
from gangline.launch.protocol import Life, Swept


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    path: str
    object: Object

    @property
    def gang(self) -> str:
        labels = self.object["metadata"].get("labels") or {}
        return str(labels.get(GANG) or labels.get(KEPT))

    @property
    def run(self) -> str:
        return str((self.object["metadata"].get("labels") or {}).get(RUN, ""))


def sweep_gangs(api: Api, *, facts: Facts, now: datetime, life: Callable[[str], Life]) -> list[Swept]:
    """One answer a gang. Of a run that is `unknown` only goes what is past its own hard end."""
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
        swept.append(Swept(name=gang, run=run, life=known, deleted=any(deleted)))
    return swept


def _everything(api: Api, facts: Facts) -> Iterable[_Found]:
    """Roots first: they take along what they own. What follows is listed for roots that died unnoticed."""
    namespace = api.namespace
    for kind in (TRAINJOB, JOBSET, JOB):
        if kind is JOB or (facts.jobset if kind is JOBSET else facts.trainer is not None):
            # whoever has an owner goes with it: JobSets of a TrainJob, Jobs of a JobSet
            yield from (each for each in _list(api, kind.path(namespace), GANG) if not _is_owned(each.object))
    if facts.trainer is not None:
        yield from _list(api, RUNTIME.path(namespace), GANG)
    yield from _unowned(api, kept_path(api), KEPT)
    for group_version, plural in (("networking.k8s.io/v1", "networkpolicies"), ("v1", "services"), ("v1", "secrets")):
        yield from _unowned(api, collection(group_version, plural, namespace))
    yield from _unowned(api, pods_path(api))


def _unowned(api: Api, path: str, label: str = GANG) -> Iterable[_Found]:
    """Left behind, where this account may look: what has an owner goes with it."""
    try:
        return [each for each in _list(api, path, label) if not _is_owned(each.object)]
    except Denied:
        return []


def _list(api: Api, path: str, label: str) -> list[_Found]:
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


def _delete(api: Api, found: _Found) -> bool:
    return api.delete(found.path, uid=found.object["metadata"]["uid"], propagation=deletion_of(found.path))
