"""Waiting reasons of containers: images that cannot be pulled; secrets, volumes and networks that are missing."""

import re

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, one_line

_MISSING = re.compile(r'(secret|configmap) "([^"]+)" not found')
_NO_KEY = re.compile(r"couldn't find key (\S+) in (Secret|ConfigMap) \S*?/?([^/\s]+)$")
_MISSING_SECONDS = 120.0
"""How long objects may take that are created after the pods, by hand or by another controller."""


def misconfigured(seen: Snapshot) -> WaitingReason | None:
    """Objects that the pod refers to are missing or not allowed."""
    for pod, waits in seen.waiting_containers():
        if waits.get("reason") == "CreateContainerConfigError":
            return _config_error(str(waits.get("message") or ""))
        for event in _of(seen, pod, "FailedMount"):
            text = str(event.get("message") or "")
            if missing := _MISSING.search(text):
                return _missing(missing, text)
    return None


def not_made(seen: Snapshot) -> WaitingReason | None:
    """A server that cannot create a container, or give it its volume or network."""
    for pod, waits in seen.waiting_containers():
        server = (pod.get("spec") or {}).get("nodeName", "?")
        if waits.get("reason") in ("CreateContainerError", "RunContainerError"):
            text = str(waits.get("message") or "")
            sentence = f"server {server} cannot create the container: {one_line(text)}"
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
        sentence = f"the image runs as root, which is not allowed: {one_line(text.partition(' (pod')[0])}"
        return WaitingReason(kind="user", sentence=sentence, raw=text, final_after_seconds=0.0)
    return WaitingReason(kind="config", sentence=f"the container cannot be created: {one_line(text)}", raw=text)


def _missing(missing: "re.Match[str]", text: str) -> WaitingReason:
    sentence = f"{missing[1]} {missing[2]} is missing"
    return WaitingReason(kind="secret", sentence=sentence, raw=text, final_after_seconds=_MISSING_SECONDS)


def _of(seen: Snapshot, pod: Object, *reasons: str) -> list[Object]:
    """The latest of these events of `pod`, as a list of at most one."""
    return seen.recent_events(*reasons, about=pod["metadata"]["name"])[-1:]


def _last_line(text: str) -> str:
    """The cause, which a mount reports at the end."""
    _, output, said = text.rpartition("Output: ")
    return said if output else text.partition("rpc error: ")[2].partition("desc = ")[2] or text


_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")


_IMAGE = re.compile(r'image (?:name )?"([^"]+)"')


_GONE_SECONDS = 60.0
"""A push may be on its way."""


_USELESS = (
    (re.compile(r"403 Forbidden|denied|DENIED"), "forbidden", "the registry denies access; see pod.pull_secrets"),
    (re.compile(r"401 Unauthorized|authorization failed|no basic auth"), "forbidden",
     "the registry requires credentials; see pod.pull_secrets"),
    (re.compile(r"not found|NotFound|manifest unknown|does not exist"), "not-found", "the registry does not have it"),
)  # fmt: skip


_NOT_PULLED = (
    (re.compile(r"no space left|disk quota"), "no-space", "the server has no space for it", "free some there"),
    (re.compile(r"429 |toomanyrequests|Too Many Requests"), "slow", "the registry limits the rate", ""),
    (re.compile(r"no such host|server misbehaving|connection refused|i/o timeout|deadline exceeded|no route to host|"
                r"connection reset|TLS handshake|EOF"),
     "unreachable", "the server cannot reach the registry", "see its network, or the registry in registry.base"),
    (re.compile(r"x509|certificate"), "untrusted",
     "the server does not trust the registry's certificate", "add its CA to containerd there"),
    (re.compile(r"\b5\d\d [A-Z]"), "broken", "the registry failed", "ask its operator"),
)  # fmt: skip


def useless(seen: Snapshot) -> WaitingReason | None:
    """An image that cannot be pulled until the user changes something."""
    for pod, waits in seen.waiting_containers():
        reason, text = waits.get("reason"), str(waits.get("message") or "")
        image = _image(text, pod)
        if reason == "InvalidImageName":
            sentence = f"image {image}: invalid image name"
            return WaitingReason(kind="image-invalid", sentence=sentence, raw=text, final_after_seconds=0.0)
        if reason == "ErrImageNeverPull":
            sentence = f'image {image}: not on {_server(pod)}, and pod.pull = "Never" forbids pulling it'
            return WaitingReason(kind="image-never", sentence=sentence, raw=text, final_after_seconds=_GONE_SECONDS)
        if reason in _PULL_REASONS and not any(pattern.search(text) for pattern, *_ in _NOT_PULLED):
            for pattern, kind, words in _USELESS:
                if pattern.search(text):
                    return WaitingReason(
                        kind=f"image-{kind}",
                        sentence=f"image {image}: {words}",
                        raw=text,
                        final_after_seconds=_GONE_SECONDS,
                    )
    return None


def not_pulled(seen: Snapshot) -> WaitingReason | None:
    """An image that may still arrive: the kubelet keeps trying."""
    for pod, waits in seen.waiting_containers():
        text = str(waits.get("message") or "")
        if waits.get("reason") not in _PULL_REASONS or not text:
            continue
        image = _image(text, pod)
        for pattern, kind, words, advice in _NOT_PULLED:
            if pattern.search(text):
                sentence = f"image {image}: {words}, still trying{'; ' if advice else ''}{advice}"
                return WaitingReason(kind=f"image-{kind}", sentence=sentence, raw=text)
        cause = one_line(text.rpartition("failed to ")[2] or text)
        return WaitingReason(kind="image", sentence=f"image {image}: cannot be pulled, still trying: {cause}", raw=text)
    return None


def pulling(seen: Snapshot) -> WaitingReason | None:
    """Servers that are pulling the image."""
    events = seen.recent_events("Pulling", "Pulled")
    last = {event["involvedObject"].get("uid"): event for event in events}
    mine = {pod["metadata"]["uid"]: pod for pod in seen.pods}
    waits = {pod["metadata"]["uid"] for pod, _ in seen.waiting_containers()}
    busy = [uid for uid, event in last.items() if uid in waits and event.get("reason") == "Pulling"]
    if not busy:
        return None
    have = len(mine) - len(waits) + sum(last[uid].get("reason") == "Pulled" for uid in waits if uid in last)
    image = _image(str(last[busy[0]].get("message", "")), mine[busy[0]])
    return WaitingReason(
        kind="pulling",
        sentence=f"image {image}: {have} of {seen.num_nodes} pods have it",
        raw=str(last[busy[0]].get("message", "")),
    )


def _image(text: str, pod: dict[str, object]) -> str:
    if match := _IMAGE.search(text):
        return match[1]
    spec = pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return str(containers[0].get("image", "?")) if containers else "?"


def _server(pod: dict[str, object]) -> str:
    spec = pod.get("spec")
    return str(spec.get("nodeName", "its server")) if isinstance(spec, dict) else "its server"
