"""Containers that cannot be made: secrets, users, volumes, sandboxes."""

import re

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, one_line

_MISSING = re.compile(r'(secret|configmap) "([^"]+)" not found')
_NO_KEY = re.compile(r"couldn't find key (\S+) in (Secret|ConfigMap) \S*?/?([^/\s]+)$")
_MISSING_SECONDS = 120.0
"""What is made after the pods, by hand or by another controller, may take so long."""


def misconfigured(seen: Snapshot) -> WaitingReason | None:
    """What the pod refers to is not there, or not allowed."""
    for pod, waits in seen.waiting_containers():
        if waits.get("reason") == "CreateContainerConfigError":
            return _config_error(str(waits.get("message") or ""))
        for event in _of(seen, pod, "FailedMount"):
            text = str(event.get("message") or "")
            if missing := _MISSING.search(text):
                return _missing(missing, text)
    return None


def not_made(seen: Snapshot) -> WaitingReason | None:
    """A server that cannot give a pod its volume or its network."""
    for pod, waits in seen.waiting_containers():
        server = (pod.get("spec") or {}).get("nodeName", "?")
        if waits.get("reason") in ("CreateContainerError", "RunContainerError"):
            text = str(waits.get("message") or "")
            sentence = f"server {server} cannot make the container: {one_line(text)}"
            return WaitingReason(kind="container", sentence=sentence, raw=text)
        for event in _of(seen, pod, "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"):
            text = str(event.get("message") or "")
            part = "network" if event.get("reason") == "FailedCreatePodSandBox" else "volume"
            return WaitingReason(
                kind=part, sentence=f"{part} of server {server}: {one_line(_last_line(text))}", raw=text
            )
    return None


def _config_error(text: str) -> WaitingReason:
    if missing := _MISSING.search(text):
        return _missing(missing, text)
    if key := _NO_KEY.search(text):
        sentence = f"{key[2].lower()} {key[3]} has no key {key[1]}"
        return WaitingReason(kind="secret", sentence=sentence, raw=text, final_after_seconds=_MISSING_SECONDS)
    if "non-root" in text or "runAsNonRoot" in text:
        sentence = f"the image wants to run as root, which pods may not: {one_line(text.partition(' (pod')[0])}"
        return WaitingReason(kind="user", sentence=sentence, raw=text, final_after_seconds=0.0)
    return WaitingReason(kind="config", sentence=f"the container cannot be made: {one_line(text)}", raw=text)


def _missing(missing: "re.Match[str]", text: str) -> WaitingReason:
    sentence = f"{missing[1]} {missing[2]} is missing"
    return WaitingReason(kind="secret", sentence=sentence, raw=text, final_after_seconds=_MISSING_SECONDS)


def _of(seen: Snapshot, pod: Object, *reasons: str) -> list[Object]:
    """The latest event of those, where the pod still has no container."""
    return seen.recent_events(*reasons, about=pod["metadata"]["name"])[-1:]


def _last_line(text: str) -> str:
    """Mounts say at the end what was wrong."""
    _, output, said = text.rpartition("Output: ")
    return said if output else text.partition("rpc error: ")[2].partition("desc = ")[2] or text
