"""Merge patches (RFC 7386) and JSON patches (RFC 6902), as far as a server applies them to objects."""

from copy import deepcopy
from typing import Any

from tests.cluster.fake.refusal import patch_does_not_apply


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def applied(target: Any, operations: list[dict[str, Any]]) -> Any:
    """`target` after all `operations`; raises the server's refusal when one does not apply."""
    root = {"": deepcopy(target)}
    for each in operations:
        try:
            _apply(root, each)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise patch_does_not_apply() from error
    return root[""]


def _apply(root: dict[str, Any], operation: dict[str, Any]) -> None:
    parent, last = _parent(root, operation["path"])
    match operation["op"]:
        case "test":
            if _value(parent, last) != operation["value"]:
                raise ValueError(operation["path"])
        case "add":
            _add(parent, last, deepcopy(operation["value"]))
        case "replace":
            _value(parent, last)
            parent[_key(parent, last)] = deepcopy(operation["value"])
        case "remove":
            _value(parent, last)
            del parent[_key(parent, last)]
        case other:
            raise ValueError(other)


def _parent(root: dict[str, Any], pointer: str) -> tuple[Any, str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(pointer)
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    at: Any = root
    for part in way:
        at = _value(at, part)
    return at, last


def _key(parent: Any, name: str) -> Any:
    return int(name) if isinstance(parent, list) else name


def _value(parent: Any, name: str) -> Any:
    return parent[_key(parent, name)]


def _add(parent: Any, name: str, value: Any) -> None:
    if isinstance(parent, list):
        at = len(parent) if name == "-" else int(name)
        if at > len(parent):
            raise IndexError(name)
        parent.insert(at, value)
    else:
        parent[name] = value
