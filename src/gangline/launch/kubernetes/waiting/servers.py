"""Servers of a gang that say nothing any more."""

from datetime import timedelta

from gangline.launch.kubernetes.state.pods import true_condition
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, read_time

REPLACED_AFTER = timedelta(seconds=60)
"""Toleration of pods for a server that is not ready."""
_PRESSURES = {"MemoryPressure": "memory", "DiskPressure": "disk", "PIDPressure": "processes"}


def silent(seen: Snapshot) -> WaitingReason | None:
    """A server with a pod of ours that is not there, or short of something."""
    mine = {(pod.get("spec") or {}).get("nodeName") for pod in seen.pods}
    for node in seen.nodes:
        name = node["metadata"]["name"]
        if name not in mine:
            continue
        for each in (node.get("status") or {}).get("conditions") or ():
            if each.get("type") == "Ready" and each.get("status") != "True":
                return _not_ready(name, each)
        for kind, what in _PRESSURES.items():
            if pressed := true_condition(node, kind):
                sentence = f"server {name} is short of {what}, the pod may be evicted"
                return WaitingReason(kind="pressure", sentence=sentence, raw=str(pressed.get("message", "")))
    return None


def _not_ready(name: str, condition: dict[str, object]) -> WaitingReason:
    since = read_time(condition.get("lastTransitionTime"))
    says = "silent" if condition.get("status") == "Unknown" else "not ready"
    sentence = f"server {name} is {says}"
    until = ""
    if since is not None:
        replaced = since + REPLACED_AFTER
        until = replaced.isoformat(timespec="seconds")
        sentence += f" since {since:%H:%M:%S} UTC, its pod is replaced from {replaced:%H:%M:%S} on"
    return WaitingReason(kind="server", sentence=sentence, until=until, raw=str(condition.get("message", "")))
