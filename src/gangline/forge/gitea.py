"""Gitea and Forgejo: GitHub's API in most points, with signatures and events of their own."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gangline.forge import github_compatible as hub
from gangline.forge import github_compatible as hub_events
from gangline.forge import webhook_delivery
from gangline.forge.client import path_segment
from gangline.forge.protocol import RefHead, WebhookEvent

_READERS = {
    "push": hub_events.push_event,
    "pull_request": hub_events.pull_request_event,
    "pull_request_sync": hub_events.pull_request_event,
    "pull_request_label": hub_events.pull_request_event,
    "delete": hub_events.branch_deleted_event,
}


class Gitea(hub.GitHubCompatible):
    """`forge.protocol.Forge` over the API of Gitea, version 1."""

    page_size: ClassVar[int] = 50
    page_size_name: ClassVar[str] = "limit"
    branch_commit: ClassVar[str] = "id"

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Gitea-Signature`, the hex digest alone, and read the event."""
        given = webhook_delivery.lower_header_names(headers)
        webhook_delivery.check_hmac(self._secret(), body, given.get("x-gitea-signature", ""))
        payload: dict[str, Any] = webhook_delivery.read_json(body)
        event_id = webhook_delivery.delivery_id(given, ("x-gitea-delivery",), body)
        return _READERS.get(given.get("x-gitea-event", ""), hub_events.other_event)(payload, event_id=event_id)

    def _branch(self, repository: str, branch: str) -> RefHead | None:
        found = self._api.get(f"{hub.repo_path(repository)}/branches/{path_segment(branch)}")
        return (
            RefHead(commit=webhook_delivery.text_at(found, "commit", "id"), branch=branch)
            if found is not None
            else None
        )
