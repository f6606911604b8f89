"""Answers other than success, worded as the real server words them."""

from typing import Any


class Refusal(Exception):
    """An error status; `body` is the Status object that goes over the wire."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        if details:
            self.body["details"] = details


def not_served() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def not_found(resource: str, name: str) -> Refusal:
    return Refusal(
        404, "NotFound", f'{resource} "{name}" not found', name=name, kind=resource.split(".", maxsplit=1)[0]
    )


def exists(resource: str, name: str) -> Refusal:
    return Refusal(
        409, "AlreadyExists", f'{resource} "{name}" already exists', name=name, kind=resource.split(".", maxsplit=1)[0]
    )


def modified(resource: str, name: str, why: str = "") -> Refusal:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {why}', name=name)


def invalid(kind: str, name: str, why: str) -> Refusal:
    return Refusal(422, "Invalid", f'{kind} "{name}" is invalid: {why}', name=name, kind=kind)


def bad(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def expired(version: int, oldest: int) -> Refusal:
    return Refusal(410, "Expired", f"too old resource version: {version} ({oldest})")


def patch_does_not_apply() -> Refusal:
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request")


def forbidden(resource: str, name: str, why: str) -> Refusal:
    return Refusal(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', name=name)
