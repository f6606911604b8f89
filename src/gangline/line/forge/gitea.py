"""Gitea and Forgejo: GitHub's API in most words, signatures and events of their own."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gangline.line.forge import delivery, hub, hub_events
from gangline.line.forge.http import segment
from gangline.line.forge.protocol import Head, Hint

_READERS = {
    "push": hub_events.push_hint,
    "pull_request": hub_events.pull_hint,
    "pull_request_sync": hub_events.pull_hint,
    "delete": hub_events.branch_gone_hint,
}


class Gitea(hub.Hub):
    """`line.forge.protocol.Forge` over the API of Gitea, version 1."""

    page_size: ClassVar[int] = 50
    page_size_name: ClassVar[str] = "limit"
    branch_commit: ClassVar[str] = "id"

    def verify(self, headers: Mapping[str, str], body: bytes) -> Hint:
        """By `X-Gitea-Signature`, the hex digest alone."""
        given = delivery.lower_names(headers)
        delivery.demand_hmac(self._secret(), body, given.get("x-gitea-signature", ""))
        payload: dict[str, Any] = delivery.read_json(body)
        event_id = delivery.delivery_id(given, ("x-gitea-delivery",), body)
        return _READERS.get(given.get("x-gitea-event", ""), hub_events.other_hint)(payload, event_id=event_id)

    def _branch(self, repository: str, branch: str) -> Head | None:
        found = self._api.get(f"{hub.repo_path(repository)}/branches/{segment(branch)}")
        return Head(commit=delivery.text(found, "commit", "id"), branch=branch) if found is not None else None
