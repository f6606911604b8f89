"""GitHub and GitHub Enterprise Server: signatures over the body, events by header."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gangline.forge import github_compatible as hub
from gangline.forge import github_compatible as hub_events
from gangline.forge import webhook_delivery
from gangline.forge.client import path_segment
from gangline.forge.protocol import RefHead, WebhookEvent

_PREFIX = "sha256="


class GitHub(hub.GitHubCompatible):
    """`forge.protocol.Forge` over the REST API of GitHub."""

    page_size: ClassVar[int] = 100
    page_size_name: ClassVar[str] = "per_page"
    branch_commit: ClassVar[str] = "sha"

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Hub-Signature-256`; the older SHA-1 header counts for nothing."""
        given = webhook_delivery.lower_header_names(headers)
        signature = given.get("x-hub-signature-256", "")
        webhook_delivery.check_hmac(
            self._secret(), body, signature.removeprefix(_PREFIX) if _PREFIX in signature else ""
        )
        payload: dict[str, Any] = webhook_delivery.read_json(body)
        event_id = webhook_delivery.delivery_id(given, ("x-github-delivery",), body)
        readers = {"push": hub_events.push_event, "pull_request": hub_events.pull_request_event}
        return readers.get(given.get("x-github-event", ""), hub_events.other_event)(payload, event_id=event_id)

    def _branch(self, repository: str, branch: str) -> RefHead | None:
        name = "/".join(map(path_segment, branch.split("/")))
        found = self._api.get(f"{hub.repo_path(repository)}/git/ref/heads/{name}")
        return (
            RefHead(commit=webhook_delivery.text_at(found, "object", "sha"), branch=branch)
            if found is not None
            else None
        )
