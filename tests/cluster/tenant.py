"""What a cluster and a namespace hold before the first gang: overlay `test` of the manifests, as rendered."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_RENDERED = Path(__file__).parents[2] / "manifests" / "rendered" / "test.yaml"
_NAMESPACE = "gangline"
"""Of gangs, in the manifests."""
_SHARED = ("PriorityClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def shared_objects() -> list[dict[str, Any]]:
    """Of the whole cluster: priorities, and what is admitted to namespaces of gangs."""
    return [each for each in _objects() if each["kind"] in _SHARED]


def objects(namespace: str) -> list[dict[str, Any]]:
    """A tenant's namespace and everything in it, under this name."""
    found = []
    for each in copy.deepcopy(list(_objects())):
        if each["metadata"].get("namespace") == _NAMESPACE:
            each["metadata"]["namespace"] = namespace
            found.append(each)
        elif each["kind"] == "Namespace" and each["metadata"]["name"] == _NAMESPACE:
            each["metadata"]["name"] = namespace
            found.insert(0, each)
    return found


def _objects() -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(_RENDERED.read_text("utf-8"))
