"""Reviews of the caller's own rights, answered from `FakeServer.denied`."""

from typing import TYPE_CHECKING, Any

from tests.cluster.fake.kinds import Kind

if TYPE_CHECKING:
    from tests.cluster.fake.server import FakeServer

Object = dict[str, Any]


def answer(server: "FakeServer", kind: Kind, body: Object) -> Object:
    if kind.kind == "SelfSubjectAccessReview":
        return {**body, "status": {"allowed": _is_allowed(server, body["spec"]["resourceAttributes"])}}
    return {**body, "status": {"incomplete": False, "nonResourceRules": [], "resourceRules": _rules(server)}}


def _is_allowed(server: "FakeServer", asked: Object) -> bool:
    resource = ".".join(filter(None, (asked["resource"], asked.get("group", ""))))
    if asked.get("subresource"):
        resource += f"/{asked['subresource']}"
    return (asked["verb"], resource) not in server.denied


def _rules(server: "FakeServer") -> list[Object]:
    verbs = ("get", "list", "watch", "create", "patch", "update", "delete")
    return [
        {
            "apiGroups": [kind.group],
            "resources": [f"{kind.plural}{below}"],
            "verbs": [verb for verb in verbs if (verb, f"{kind.resource}{below}") not in server.denied],
        }
        for kind in server.kinds
        for below in ("", *(["/status"] if kind.has_status else []), *(["/log"] if kind.kind == "Pod" else []))
    ]
