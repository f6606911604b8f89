"""GitHub, Gitea and Forgejo: what their APIs and webhooks have in common, then signatures and events of each."""

from collections.abc import Callable, Mapping
from typing import Any

from gangline.errors import ConfigError
from gangline.forge import webhook_delivery
from gangline.forge.client import path_segment
from gangline.forge.protocol import SEARCH_LABEL, RefHead, WebhookEvent
from gangline.forge.rest_forge import CommentThread, ForgeComment, RestForge, push_event
from gangline.forge.webhook_delivery import number_at, repository_at, text_at, value_at

_BUILDS = {"opened", "reopened", "synchronize", "synchronized", "edited", "ready_for_review"}
"""Actions on a pull request after which its head or its target may be another."""
_LABELS = {"labeled", "label_updated"}


class GitHubCompatible(RestForge):
    """Base of both; a pull request is an issue, too."""

    pull_refs = "refs/pull"
    branches = "/branches"
    pulls = "/pulls"
    changed_files = "files"
    open_state = "open"
    commit_page = "commit"
    status_name = "context"
    repository_place = ("repository", "full_name")

    def _path(self, repository: str) -> str:
        owner, slash, name = repository.partition("/")
        if not slash or "/" in name or not webhook_delivery.is_repository(repository):
            raise ConfigError(f"wanted a repository as owner/name, found {repository[:100]!r}")
        return f"/repos/{owner}/{name}"

    def _pull_head(self, pull: Any) -> RefHead:
        source, target = value_at(pull, "head", "repo", "full_name"), value_at(pull, "base", "repo", "full_name")
        return RefHead(
            commit=text_at(pull, "head", "sha"),
            pull_request=number_at(pull, "number"),
            is_fork=source is None or source != target,
            branch=value_at(pull, "head", "ref"),
            target=value_at(pull, "base", "ref"),
            labels=_label_names(value_at(pull, "labels")),
        )

    def _changed_paths(self, file: Any) -> set[str]:
        name = text_at(file, "filename")
        return {name, str(value_at(file, "previous_filename") or name)}

    def _comments(self, repository: str, pull_request: int) -> CommentThread:
        author, issues = self._author, f"{self._path(repository)}/issues"
        path = f"{issues}/{pull_request}/comments"
        return CommentThread(
            api=self._api, repository=repository, path=path, below=f"{issues}/comments", edit_method="PATCH",
            ours=lambda: [_comment(page) for page in self._pages(path) if value_at(page, "user", "id") == author],
            read=_comment,
        )  # fmt: skip

    def _event(
        self, forge: str, given: Mapping[str, str], body: bytes, readers: Mapping[str, Callable[..., WebhookEvent]]
    ) -> WebhookEvent:
        """Event of a delivery whose signature holds, by the headers that `forge` sends."""
        payload: dict[str, Any] = webhook_delivery.read_json(body)
        event_id = webhook_delivery.delivery_id(given, (f"x-{forge}-delivery",), body)
        read = {"push": self._push, **readers}.get(given.get(f"x-{forge}-event", ""), self._other)
        return read(payload, event_id=event_id)

    def _pull_request(self, payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
        """Event of a pull request; one whose action changes no commit is `other`."""
        repository = repository_at(payload, *self.repository_place)
        action = text_at(payload, "action")
        asks_search = action in _LABELS and _has_new_label(payload)
        if action not in _BUILDS | {"closed"} and not asks_search:
            return WebhookEvent(delivery=event_id, event="other", repository=repository)
        pull_request = number_at(payload, "pull_request", "number")
        branch = text_at(payload, "pull_request", "head", "ref")
        source = value_at(payload, "pull_request", "head", "repo", "full_name")
        return WebhookEvent(
            delivery=event_id, event="pull_request", repository=repository, ref=self.pull_ref(pull_request),
            branch=branch, pull_request=pull_request, is_fork=source != repository, asks_search=asks_search,
        )  # fmt: skip


def _comment(found: Any) -> ForgeComment:
    return ForgeComment(
        number_at(found, "id"), str(value_at(found, "body") or ""), str(value_at(found, "html_url") or "")
    )


def _has_new_label(payload: Mapping[str, Any]) -> bool:
    """GitHub names the label that was added, Gitea all that there are now."""
    added = value_at(payload, "label", "name")
    names = [added] if added is not None else _label_names(value_at(payload, "pull_request", "labels"))
    return SEARCH_LABEL in names


def _label_names(labels: Any) -> tuple[str, ...]:
    names = [value_at(label, "name") for label in labels] if isinstance(labels, list) else []
    return tuple(name for name in names if isinstance(name, str))


class GitHub(GitHubCompatible):
    """`forge.protocol.Forge` over the REST API of GitHub."""

    branch_commit = "sha"

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Hub-Signature-256`; the older SHA-1 header counts for nothing."""
        given = webhook_delivery.lower_header_names(headers)
        signature, prefix = given.get("x-hub-signature-256", ""), "sha256="
        webhook_delivery.check_hmac(self._secret(), body, signature.removeprefix(prefix) if prefix in signature else "")
        return self._event("github", given, body, {"pull_request": self._pull_request})

    def _branch(self, path: str, branch: str) -> RefHead | None:
        name = "/".join(map(path_segment, branch.split("/")))
        found = self._api.get(f"{path}/git/ref/heads/{name}")
        return None if found is None else RefHead(commit=text_at(found, "object", "sha"), branch=branch)


class Gitea(GitHubCompatible):
    """`forge.protocol.Forge` over the API of Gitea, version 1."""

    page_size = 50
    page_size_name = "limit"
    branch_commit = "id"

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Gitea-Signature`, the hex digest alone, and read the event."""
        given = webhook_delivery.lower_header_names(headers)
        webhook_delivery.check_hmac(self._secret(), body, given.get("x-gitea-signature", ""))
        pulls = dict.fromkeys(("pull_request", "pull_request_sync", "pull_request_label"), self._pull_request)
        return self._event("gitea", given, body, {**pulls, "delete": self._deletion})

    def _deletion(self, payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
        """The deletion of a branch, which is sent in place of a push."""
        repository = repository_at(payload, *self.repository_place)
        ref = f"refs/heads/{text_at(payload, 'ref').removeprefix('refs/heads/')}"
        is_branch = value_at(payload, "ref_type") == "branch"
        return push_event(repository, ref if is_branch else "", event_id=event_id)
