"""GitHub, its enterprise server too: signatures over the body, events by header."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gangline.line.forge import delivery, hub, hub_events
from gangline.line.forge.http import segment
from gangline.line.forge.protocol import Head, Hint

_PREFIX = "sha256="


class GitHub(hub.Hub):
    """`line.forge.protocol.Forge` over the REST API of GitHub."""

    page_size: ClassVar[int] = 100
    page_size_name: ClassVar[str] = "per_page"
    branch_commit: ClassVar[str] = "sha"

    def verify(self, headers: Mapping[str, str], body: bytes) -> Hint:
        """By `X-Hub-Signature-256`; the older SHA-1 header counts for nothing."""
        given = delivery.lower_names(headers)
        signature = given.get("x-hub-signature-256", "")
        delivery.demand_hmac(self._secret(), body, signature.removeprefix(_PREFIX) if _PREFIX in signature else "")
        payload: dict[str, Any] = delivery.read_json(body)
        event_id = delivery.delivery_id(given, ("x-github-delivery",), body)
        readers = {"push": hub_events.push_hint, "pull_request": hub_events.pull_hint}
        return readers.get(given.get("x-github-event", ""), hub_events.other_hint)(payload, event_id=event_id)

    def _branch(self, repository: str, branch: str) -> Head | None:
        name = "/".join(map(segment, branch.split("/")))
        found = self._api.get(f"{hub.repo_path(repository)}/git/ref/heads/{name}")
        return Head(commit=delivery.text(found, "object", "sha"), branch=branch) if found is not None else None
