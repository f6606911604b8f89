"""GitLab: projects are paths of groups, pull requests are merge requests with own numbers, comments are notes."""

from collections.abc import Iterator, Mapping
from typing import Any

from gangline.errors import ConfigError
from gangline.forge import webhook_delivery
from gangline.forge.client import path_segment
from gangline.forge.protocol import SEARCH_LABEL, RefHead, WebhookEvent
from gangline.forge.rest_forge import CommentThread, ForgeComment, RestForge
from gangline.forge.webhook_delivery import number_at, repository_at, text_at, value_at

_ACTIONS = {"open", "reopen", "update", "close", "merge"}
"""Actions on a merge request after which its head may be another, or is gone."""


class GitLab(RestForge):
    """`forge.protocol.Forge` over the API of GitLab, version 4."""

    pull_refs = "refs/merge-requests"
    branches = "/repository/branches"
    branch_commit = "id"
    pulls = "/merge_requests"
    changed_files = "diffs"
    open_state = "opened"
    commit_page = "-/commit"
    status_name = "name"
    states = {"pending": "running", "failure": "failed", "error": "failed"}  # noqa: RUF012  # as the base says it
    repository_place = ("project", "path_with_namespace")

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Gitlab-Token`, which is the secret itself, so that only TLS keeps it one, and read the event."""
        given = webhook_delivery.lower_header_names(headers)
        webhook_delivery.check_secret(self._secret(), given.get("x-gitlab-token", ""))
        payload = webhook_delivery.read_json(body)
        names = ("idempotency-key", "x-gitlab-webhook-uuid", "x-gitlab-event-uuid")
        event_id = webhook_delivery.delivery_id(given, names, body)
        readers = {"push": self._push, "merge_request": self._merge_request}
        return readers.get(str(value_at(payload, "object_kind")), self._other)(payload, event_id=event_id)

    def _path(self, repository: str) -> str:
        if not webhook_delivery.is_repository(repository):
            raise ConfigError(f"wanted a project as group/name, found {repository[:100]!r}")
        return f"/projects/{path_segment(repository)}"

    def _open_pulls(self, path: str) -> Iterator[Any]:
        return (each for each in super()._open_pulls(path) if value_at(each, "sha"))  # none while GitLab prepares it

    def _pull_head(self, pull: Any) -> RefHead:
        return RefHead(
            commit=text_at(pull, "sha"),
            pull_request=number_at(pull, "iid"),
            is_fork=value_at(pull, "source_project_id") != value_at(pull, "target_project_id"),
            branch=value_at(pull, "source_branch"),
            target=value_at(pull, "target_branch"),
            labels=tuple(each for each in value_at(pull, "labels") or () if isinstance(each, str)),
        )

    def _changed_paths(self, file: Any) -> set[str]:
        return {text_at(file, "old_path"), text_at(file, "new_path")}

    def _comments(self, repository: str, pull_request: int) -> CommentThread:
        author, path = self._author, f"{self._path(repository)}{self.pulls}/{pull_request}/notes"
        page = f"{self._root}/{repository}/-/merge_requests/{pull_request}"

        def read(found: Any) -> ForgeComment:
            note = number_at(found, "id")
            return ForgeComment(note, str(value_at(found, "body") or ""), f"{page}#note_{note}")

        def ours() -> list[ForgeComment]:
            notes = self._pages(path, sort="asc", order_by="created_at")
            return [read(each) for each in notes if value_at(each, "author", "id") == author]

        return CommentThread(
            api=self._api, repository=repository, path=path, below=path, edit_method="PUT", ours=ours, read=read
        )

    def _merge_request(self, payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
        repository = repository_at(payload, *self.repository_place)
        what = value_at(payload, "object_attributes")
        if value_at(what, "action") not in _ACTIONS:
            return WebhookEvent(delivery=event_id, event="other", repository=repository)
        iid = number_at(what, "iid")
        return WebhookEvent(
            delivery=event_id,
            event="pull_request",
            repository=repository,
            ref=self.pull_ref(iid),
            branch=text_at(what, "source_branch"),
            pull_request=iid,
            is_fork=number_at(what, "source_project_id") != number_at(what, "target_project_id"),
            asks_search=_has_new_label(payload),
        )


def _has_new_label(payload: Mapping[str, Any]) -> bool:
    """GitLab tells the labels before and after, of an update that changed them and no commit."""
    before, after = (value_at(payload, "changes", "labels", when) for when in ("previous", "current"))
    titles = [[value_at(label, "title") for label in labels or ()] for labels in (before, after)]
    return SEARCH_LABEL in titles[1] and SEARCH_LABEL not in titles[0]
