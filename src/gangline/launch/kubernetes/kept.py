"""Where the end of a gang stays once its root may go: a small ConfigMap that nobody owns and the sweeper deletes.

It holds no name of a pod and no secret. A gang that has one is over: it is adopted as ended, and never started again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gangline.errors import IntegrityError
from gangline.launch.kubernetes.api.protocol import Api, Conflict, Object
from gangline.launch.kubernetes.objects.setting import END, MANAGED_BY, RUN, collection
from gangline.spec.codec import canonical, from_json
from gangline.spec.gang import GangEnd
from gangline.spec.podset import PodSet

KEPT = "gangline/ended"
"""Label: the gang whose end it is."""
KEPT_DAYS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    uid: str
    """Of the root."""
    podset: PodSet
    end: GangEnd
    is_closed: bool
    """Nobody adds to it any more: whoever reads it reads the same for ever."""


def kept_path(api: Api, name: str = "") -> str:
    path = collection("v1", "configmaps", api.namespace)
    return f"{path}/{name}-end" if name else path


def read_kept(api: Api, name: str) -> Kept | None:
    found = api.get(kept_path(api, name))
    return None if found is None else _read(api, name, found)


def keep_end(api: Api, kept: Kept, *, now: datetime) -> Kept:
    """Write it down for every driver to come; what an earlier one wrote stands."""
    try:
        api.create(kept_path(api), _config_map(api.namespace, kept, now))
    except Conflict:
        return read_kept(api, kept.podset.name) or kept
    return kept


def close_end(api: Api, name: str, add: Callable[[GangEnd], GangEnd]) -> Kept | None:
    """Add the last of it and close it, once: of several who do, the first one's word stands. None: there is none."""
    while (found := api.get(kept_path(api, name))) is not None:
        kept = _read(api, name, found)
        if kept.is_closed:
            return kept
        closed = replace(kept, end=add(kept.end), is_closed=True)
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            api.patch(kept_path(api, name), {"metadata": version, "data": _data(closed)})
        except Conflict:
            continue
        return closed
    return None


def _read(api: Api, name: str, found: Object) -> Kept:
    data = found.get("data") or {}
    if KEPT not in (found["metadata"].get("labels") or {}) or not {"uid", "podset", "end", "closed"} <= data.keys():
        raise IntegrityError(f"{kept_path(api, name)} holds no end of a gang; delete it, or choose another name")
    return Kept(
        uid=data["uid"],
        podset=PodSet.from_json(data["podset"]),
        end=from_json(GangEnd, data["end"]),
        is_closed=data["closed"] == "true",
    )


def _data(kept: Kept) -> dict[str, str]:
    return {
        "uid": kept.uid,
        "podset": kept.podset.to_json().decode(),
        "end": canonical(kept.end).decode(),
        "closed": "true" if kept.is_closed else "false",
    }


def _config_map(namespace: str, kept: Kept, now: datetime) -> Object:
    name = kept.podset.name
    labels = {KEPT: name, RUN: kept.podset.run, MANAGED_BY: "gangline"}
    end = (now + timedelta(days=KEPT_DAYS)).isoformat(timespec="seconds")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{name}-end",
            "namespace": namespace,
            "labels": labels,
            "annotations": {END: end},
        },
        "data": _data(kept),
    }
