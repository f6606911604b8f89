"""What of a watched object is worth keeping: managed fields and applied copies are most of its bytes, and unread."""

import sys
from typing import Any

from gangline.launch.kubernetes.api.protocol import Object

_UNREAD_METADATA = ("managedFields", "selfLink")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_UNREAD_OF_POD = (
    "volumes",
    "securityContext",
    "affinity",
    "dnsPolicy",
    "dnsConfig",
    "serviceAccount",
    "imagePullSecrets",
    "enableServiceLinks",
    "preemptionPolicy",
)
_READ_OF_CONTAINER = ("name", "image", "resources", "restartPolicy")
_SHORT = 64
"""Longer words are seldom the same in two objects."""


def lean(body: Object) -> Object:
    """Any object without its noise."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _UNREAD_METADATA}
    annotations = metadata.get("annotations")
    if annotations and _APPLIED in annotations:
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
    kept: Object = _shared({**body, "metadata": metadata})
    return kept


def lean_pod(pod: Object) -> Object:
    """A pod as placing, waiting and ending read it: what it asks for, where it is, how it is."""
    spec = {name: value for name, value in pod.get("spec", {}).items() if name not in _UNREAD_OF_POD}
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [{name: each[name] for name in _READ_OF_CONTAINER if name in each} for each in spec[part]]
    return lean({**pod, "spec": spec})


def _shared(value: Any) -> Any:
    """`value` rebuilt so that equal words are one: ten thousand pods say the same."""
    if isinstance(value, dict):
        return {sys.intern(name): _shared(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shared(each) for each in value]
    return sys.intern(value) if isinstance(value, str) and len(value) <= _SHORT else value
