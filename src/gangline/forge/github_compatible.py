"""GitHub, Gitea and Forgejo: what their APIs and webhooks have in common, then signatures and events of each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

from gangline.errors import ConfigError
from gangline.forge import webhook_delivery
from gangline.forge.client import ForgeClient, ForgeResponse, path_segment, reading_response
from gangline.forge.comment_upsert import ForgeComment, upsert_in_thread
from gangline.forge.protocol import SEARCH_LABEL, CommitStatus, MalformedDeliveryError, RefHead, WebhookEvent
from gangline.forge.webhook_delivery import number_at, text_at, value_at

MOST_CHANGES = 3000
"""Most paths of one pull request that GitHub lists."""


class GitHubCompatible(ABC):
    """Base of both."""

    page_size: ClassVar[int]
    page_size_name: ClassVar[str]
    branch_commit: ClassVar[str]
    """Where a branch of a list holds its object name."""

    def __init__(self, *, name: str, api: ForgeClient, root: str, secret: Callable[[], str]) -> None:
        self.name = name
        self._api = api
        self._root = root
        self._secret = secret

    def head(self, repository: str, ref: str) -> RefHead | None:
        branch, pull_request = webhook_delivery.branch_ref(ref), pull_number(ref)
        path = repo_path(repository)
        with reading_response(self.name):
            if branch is not None:
                head = self._branch(repository, branch)
            else:
                found = self._api.get(f"{path}/pulls/{pull_request}") if pull_request else None
                head = _pull_head(found) if found is not None and text_at(found, "state") == "open" else None
        if head is None:
            self._api.demand(path, repository)
        return head

    def heads(self, repository: str) -> list[tuple[str, RefHead]]:
        path = repo_path(repository)
        with reading_response(self.name):
            branches = [self._listed_branch(each) for each in self._pages(f"{path}/branches")]
            pulls = [_pull_head(each) for each in self._pages(f"{path}/pulls", state="open")]
        return branches + [(f"refs/pull/{head.pull_request}/head", head) for head in pulls]

    def clone_url(self, repository: str) -> str:
        repo_path(repository)
        return f"{self._root}/{repository}.git"

    def commit_url(self, repository: str, commit: str) -> str:
        repo_path(repository)
        return f"{self._root}/{repository}/commit/{path_segment(commit)}"

    def pull_ref(self, pull_request: int) -> str:
        return f"refs/pull/{pull_request}/head"

    def set_status(self, repository: str, commit: str, status: CommitStatus) -> None:
        body = {"context": status.context, "state": status.state, "description": status.description}
        if status.url:
            body["target_url"] = status.url
        check_response(
            self._api.send("POST", f"{repo_path(repository)}/statuses/{path_segment(commit)}", body), repository
        )

    def upsert_comment(self, repository: str, pull_request: int, marker: str, text: str) -> str:
        with reading_response(self.name):
            return upsert_in_thread(
                _Thread(self._api, repository, pull_request, self._author, self._pages), marker, text
            )

    def changes(self, repository: str, pull_request: int) -> list[str] | None:
        paths: set[str] = set()
        with reading_response(self.name):
            for count, each in enumerate(self._pages(f"{repo_path(repository)}/pulls/{pull_request}/files"), 1):
                if count >= MOST_CHANGES:
                    return None
                name = text_at(each, "filename")
                paths |= {name, str(value_at(each, "previous_filename") or name)}
        return sorted(paths)

    @cached_property
    def _author(self) -> int:
        """Id of the account that our token belongs to."""
        return number_at(self._api.get("/user"), "id")

    def _listed_branch(self, found: Any) -> tuple[str, RefHead]:
        name = text_at(found, "name")
        return f"refs/heads/{name}", RefHead(commit=text_at(found, "commit", self.branch_commit), branch=name)

    def _pages(self, path: str, **query: str) -> Iterator[Any]:
        return self._api.pages(path, size=self.page_size, size_name=self.page_size_name, **query)

    @abstractmethod
    def _branch(self, repository: str, branch: str) -> RefHead | None: ...


def repo_path(repository: str) -> str:
    """`/repos/owner/name`, of a name that stays one in a URL.

    Raises:
        ConfigError: It would not.
    """
    owner, slash, name = repository.partition("/")
    if not slash or "/" in name or not webhook_delivery.is_repository(repository):
        raise ConfigError(f"wanted a repository as owner/name, found {repository[:100]!r}")
    return f"/repos/{owner}/{name}"


def pull_number(ref: str) -> int | None:
    """Number in `refs/pull/7/head`."""
    parts = ref.split("/")
    ok = len(parts) == 4 and parts[:2] == ["refs", "pull"] and parts[3] == "head"
    return int(parts[2]) if ok and parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 12 else None


def check_response(answer: ForgeResponse, repository: str) -> None:
    """Raise for a response that refuses the request."""
    if answer.status >= 400:
        raise ConfigError(
            f"the forge has no such place in {repository}, or hides it from this token: {answer.status} {answer.said}"
        )


def _pull_head(pull: Any) -> RefHead:
    source, target = value_at(pull, "head", "repo", "full_name"), value_at(pull, "base", "repo", "full_name")
    return RefHead(
        commit=text_at(pull, "head", "sha"),
        pull_request=number_at(pull, "number"),
        is_fork=source is None or source != target,
        branch=value_at(pull, "head", "ref"),
        target=value_at(pull, "base", "ref"),
        labels=label_names(value_at(pull, "labels")),
    )


class _Thread:
    """Our comments under one pull request; on these forges a pull request is an issue, too."""

    def __init__(
        self, api: ForgeClient, repository: str, pull_request: int, author: int, pages: Callable[[str], Iterator[Any]]
    ) -> None:
        self._api = api
        self._repository = repository
        self._pull_request = pull_request
        self._author = author
        self._pages = pages

    @property
    def _all(self) -> str:
        return f"{repo_path(self._repository)}/issues/{self._pull_request}/comments"

    def ours(self) -> list[ForgeComment]:
        return [_comment(each) for each in self._pages(self._all) if value_at(each, "user", "id") == self._author]

    def make(self, text: str) -> ForgeComment:
        answer = self._api.send("POST", self._all, {"body": text})
        check_response(answer, self._repository)
        return _comment(answer.data)

    def edit(self, comment: ForgeComment, text: str) -> ForgeComment | None:
        answer = self._api.send("PATCH", self._one(comment), {"body": text})
        if answer.status == 404:
            return None
        check_response(answer, self._repository)
        return _comment(answer.data)

    def remove(self, comment: ForgeComment) -> None:
        answer = self._api.send("DELETE", self._one(comment))
        if answer.status != 404:
            check_response(answer, self._repository)

    def _one(self, comment: ForgeComment) -> str:
        return f"{repo_path(self._repository)}/issues/comments/{comment.id}"


def _comment(found: Any) -> ForgeComment:
    return ForgeComment(
        number_at(found, "id"), str(value_at(found, "body") or ""), str(value_at(found, "html_url") or "")
    )


_BUILDS = {"opened", "reopened", "synchronize", "synchronized", "edited", "ready_for_review"}
"""Actions on a pull request after which its head or its target may be another."""
_LABELS = {"labeled", "label_updated"}


def push_event(payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
    """Event of a push to a branch; that of a tag is `other`."""
    repository = webhook_delivery.repository_at(payload, "repository", "full_name")
    ref = text_at(payload, "ref")
    branch = webhook_delivery.branch_ref(ref)
    if branch is None:
        return WebhookEvent(delivery=event_id, event="other", repository=repository)
    return WebhookEvent(delivery=event_id, event="push", repository=repository, ref=ref, branch=branch)


def pull_request_event(payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
    """Event of a pull request; one whose action changes no commit is `other`."""
    repository = webhook_delivery.repository_at(payload, "repository", "full_name")
    action = text_at(payload, "action")
    asks_search = action in _LABELS and _has_new_label(payload)
    if action not in _BUILDS | {"closed"} and not asks_search:
        return WebhookEvent(delivery=event_id, event="other", repository=repository)
    pull_request = number_at(payload, "pull_request", "number")
    branch = text_at(payload, "pull_request", "head", "ref")
    source = value_at(payload, "pull_request", "head", "repo", "full_name")
    return WebhookEvent(
        delivery=event_id,
        event="pull_request",
        repository=repository,
        ref=f"refs/pull/{pull_request}/head",
        branch=branch,
        pull_request=pull_request,
        is_fork=source != repository,
        asks_search=asks_search,
    )


def _has_new_label(payload: Mapping[str, Any]) -> bool:
    """GitHub names the label that was added, Gitea all that there are now."""
    added = value_at(payload, "label", "name")
    names = [added] if added is not None else label_names(value_at(payload, "pull_request", "labels"))
    return SEARCH_LABEL in names


def label_names(labels: Any) -> tuple[str, ...]:
    """Names of a forge's list of labels."""
    names = [value_at(each, "name") for each in labels] if isinstance(labels, list) else []
    return tuple(each for each in names if isinstance(each, str))


def branch_deleted_event(payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
    """The deletion of a branch, from a `delete` event of a forge that sends no push then."""
    repository = webhook_delivery.repository_at(payload, "repository", "full_name")
    ref = f"refs/heads/{text_at(payload, 'ref').removeprefix('refs/heads/')}"
    branch = webhook_delivery.branch_ref(ref)
    if value_at(payload, "ref_type") != "branch" or branch is None:
        return WebhookEvent(delivery=event_id, event="other", repository=repository)
    return WebhookEvent(delivery=event_id, event="push", repository=repository, ref=ref, branch=branch)


def other_event(payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
    """Event that is ignored; the ping of an organization names no repository."""
    try:
        name = webhook_delivery.repository_at(payload, "repository", "full_name")
    except MalformedDeliveryError:
        name = ""
    return WebhookEvent(delivery=event_id, event="other", repository=name)


def _event(
    forge: str, given: Mapping[str, str], body: bytes, readers: Mapping[str, Callable[..., WebhookEvent]]
) -> WebhookEvent:
    """Event of a delivery whose signature holds, by the headers that `forge` sends."""
    payload: dict[str, Any] = webhook_delivery.read_json(body)
    event_id = webhook_delivery.delivery_id(given, (f"x-{forge}-delivery",), body)
    read: Callable[..., WebhookEvent] = readers.get(given.get(f"x-{forge}-event", ""), other_event)
    return read(payload, event_id=event_id)


class GitHub(GitHubCompatible):
    """`forge.protocol.Forge` over the REST API of GitHub."""

    page_size: ClassVar[int] = 100
    page_size_name: ClassVar[str] = "per_page"
    branch_commit: ClassVar[str] = "sha"

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Hub-Signature-256`; the older SHA-1 header counts for nothing."""
        given = webhook_delivery.lower_header_names(headers)
        signature, prefix = given.get("x-hub-signature-256", ""), "sha256="
        webhook_delivery.check_hmac(self._secret(), body, signature.removeprefix(prefix) if prefix in signature else "")
        return _event("github", given, body, {"push": push_event, "pull_request": pull_request_event})

    def _branch(self, repository: str, branch: str) -> RefHead | None:
        name = "/".join(map(path_segment, branch.split("/")))
        found = self._api.get(f"{repo_path(repository)}/git/ref/heads/{name}")
        return None if found is None else RefHead(commit=text_at(found, "object", "sha"), branch=branch)


class Gitea(GitHubCompatible):
    """`forge.protocol.Forge` over the API of Gitea, version 1."""

    page_size: ClassVar[int] = 50
    page_size_name: ClassVar[str] = "limit"
    branch_commit: ClassVar[str] = "id"

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Gitea-Signature`, the hex digest alone, and read the event."""
        given = webhook_delivery.lower_header_names(headers)
        webhook_delivery.check_hmac(self._secret(), body, given.get("x-gitea-signature", ""))
        pulls = dict.fromkeys(("pull_request", "pull_request_sync", "pull_request_label"), pull_request_event)
        return _event("gitea", given, body, {"push": push_event, **pulls, "delete": branch_deleted_event})

    def _branch(self, repository: str, branch: str) -> RefHead | None:
        found = self._api.get(f"{repo_path(repository)}/branches/{path_segment(branch)}")
        return None if found is None else RefHead(commit=text_at(found, "commit", "id"), branch=branch)
