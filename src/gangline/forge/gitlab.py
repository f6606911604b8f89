"""GitLab: projects are paths of groups, pull requests are merge requests with own numbers, comments are notes."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from gangline.errors import ConfigError
from gangline.forge import webhook_delivery
from gangline.forge.client import ForgeClient, path_segment, reading_response
from gangline.forge.comment_upsert import ForgeComment, upsert_in_thread
from gangline.forge.github_compatible import MOST_CHANGES, check_response
from gangline.forge.protocol import SEARCH_LABEL, CommitStatus, RefHead, StatusState, WebhookEvent
from gangline.forge.webhook_delivery import number_at, text_at, value_at

_BUILDS = {"open", "reopen", "update"}
_GONE = {"close", "merge"}
_STATES: dict[StatusState, str] = {"pending": "running", "success": "success", "failure": "failed", "error": "failed"}
_PAGE = 100


class GitLab:
    """`forge.protocol.Forge` over the API of GitLab, version 4."""

    def __init__(self, *, name: str, api: ForgeClient, root: str, secret: Callable[[], str]) -> None:
        self.name = name
        self._api = api
        self._root = root
        self._secret = secret

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check `X-Gitlab-Token`, which is the secret itself, so that only TLS keeps it one, and read the event."""
        given = webhook_delivery.lower_header_names(headers)
        webhook_delivery.check_secret(self._secret(), given.get("x-gitlab-token", ""))
        payload = webhook_delivery.read_json(body)
        names = ("idempotency-key", "x-gitlab-webhook-uuid", "x-gitlab-event-uuid")
        event_id = webhook_delivery.delivery_id(given, names, body)
        readers = {"push": _push_event, "merge_request": _merge_request_event}
        return readers.get(str(value_at(payload, "object_kind")), _other_event)(payload, event_id=event_id)

    def head(self, repository: str, ref: str) -> RefHead | None:
        branch, iid = webhook_delivery.branch_ref(ref), merge_number(ref)
        path, head = _project(repository), None
        with reading_response(self.name):
            if branch is not None:
                found = self._api.get(f"{path}/repository/branches/{path_segment(branch)}")
                head = _branch_head(found) if found is not None else None
            elif iid is not None:
                merge = self._api.get(f"{path}/merge_requests/{iid}")
                head = _merge_head(merge) if merge is not None and text_at(merge, "state") == "opened" else None
        if head is None:
            self._api.demand(path, repository)
        return head

    def heads(self, repository: str) -> list[tuple[str, RefHead]]:
        path = _project(repository)
        with reading_response(self.name):
            branches = [_branch_head(each) for each in self._pages(f"{path}/repository/branches")]
            opened = self._pages(f"{path}/merge_requests", state="opened")
            merges = [_merge_head(each) for each in opened if value_at(each, "sha")]  # none while GitLab prepares it
        return [(f"refs/heads/{head.branch}", head) for head in branches] + [
            (f"refs/merge-requests/{head.pull_request}/head", head) for head in merges
        ]

    def clone_url(self, repository: str) -> str:
        _project(repository)
        return f"{self._root}/{repository}.git"

    def commit_url(self, repository: str, commit: str) -> str:
        _project(repository)
        return f"{self._root}/{repository}/-/commit/{path_segment(commit)}"

    def pull_ref(self, pull_request: int) -> str:
        return f"refs/merge-requests/{pull_request}/head"

    def set_status(self, repository: str, commit: str, status: CommitStatus) -> None:
        """GitLab refuses the state that a status already has, and so keeps the older description; that is not an
        error."""
        body = {"name": status.context, "state": _STATES[status.state], "description": status.description}
        if status.url:
            body["target_url"] = status.url
        answer = self._api.send("POST", f"{_project(repository)}/statuses/{path_segment(commit)}", body)
        if not (answer.status == 400 and "cannot transition" in answer.said.lower()):
            check_response(answer, repository)

    def upsert_comment(self, repository: str, pull_request: int, marker: str, text: str) -> str:
        with reading_response(self.name):
            return upsert_in_thread(_Notes(self._api, repository, pull_request, self._author, self._root), marker, text)

    def changes(self, repository: str, pull_request: int) -> list[str] | None:
        paths: set[str] = set()
        with reading_response(self.name):
            for count, each in enumerate(self._pages(f"{_project(repository)}/merge_requests/{pull_request}/diffs"), 1):
                if count >= MOST_CHANGES:
                    return None
                paths |= {text_at(each, "old_path"), text_at(each, "new_path")}
        return sorted(paths)

    @cached_property
    def _author(self) -> int:
        """Id of the account that our token belongs to."""
        return number_at(self._api.get("/user"), "id")

    def _pages(self, path: str, **query: str) -> Iterator[Any]:
        return self._api.pages(path, size=_PAGE, **query)


def merge_number(ref: str) -> int | None:
    """Number in `refs/merge-requests/7/head`."""
    parts = ref.split("/")
    ok = len(parts) == 4 and parts[:2] == ["refs", "merge-requests"] and parts[3] == "head"
    return int(parts[2]) if ok and parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 12 else None


def _project(repository: str) -> str:
    if not webhook_delivery.is_repository(repository):
        raise ConfigError(f"wanted a project as group/name, found {repository[:100]!r}")
    return f"/projects/{path_segment(repository)}"


def _push_event(payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
    repository = webhook_delivery.repository_at(payload, "project", "path_with_namespace")
    ref = text_at(payload, "ref")
    branch = webhook_delivery.branch_ref(ref)
    if branch is None:
        return WebhookEvent(delivery=event_id, event="other", repository=repository)
    return WebhookEvent(delivery=event_id, event="push", repository=repository, ref=ref, branch=branch)


def _merge_request_event(payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
    repository = webhook_delivery.repository_at(payload, "project", "path_with_namespace")
    what = value_at(payload, "object_attributes")
    action = value_at(what, "action")
    if action not in _BUILDS | _GONE:
        return WebhookEvent(delivery=event_id, event="other", repository=repository)
    iid = number_at(what, "iid")
    return WebhookEvent(
        delivery=event_id,
        event="pull_request",
        repository=repository,
        ref=f"refs/merge-requests/{iid}/head",
        branch=text_at(what, "source_branch"),
        pull_request=iid,
        is_fork=number_at(what, "source_project_id") != number_at(what, "target_project_id"),
        asks_search=_has_new_label(payload),
    )


def _has_new_label(payload: Mapping[str, Any]) -> bool:
    """GitLab tells the labels before and after, of an update that changed them and no commit."""
    before, after = (value_at(payload, "changes", "labels", when) for when in ("previous", "current"))
    titles = [[value_at(each, "title") for each in labels or ()] for labels in (before, after)]
    return SEARCH_LABEL in titles[1] and SEARCH_LABEL not in titles[0]


def _other_event(payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
    name = value_at(payload, "project", "path_with_namespace")
    known = isinstance(name, str) and webhook_delivery.is_repository(name)
    return WebhookEvent(delivery=event_id, event="other", repository=str(name) if known else "")


def _branch_head(found: Any) -> RefHead:
    return RefHead(commit=text_at(found, "commit", "id"), branch=text_at(found, "name"))


def _merge_head(merge: Any) -> RefHead:
    return RefHead(
        commit=text_at(merge, "sha"),
        pull_request=number_at(merge, "iid"),
        is_fork=value_at(merge, "source_project_id") != value_at(merge, "target_project_id"),
        branch=value_at(merge, "source_branch"),
        target=value_at(merge, "target_branch"),
        labels=tuple(each for each in value_at(merge, "labels") or () if isinstance(each, str)),
    )


class _Notes:
    """Our notes under one merge request."""

    def __init__(self, api: ForgeClient, repository: str, iid: int, author: int, root: str) -> None:
        self._api = api
        self._repository = repository
        self._iid = iid
        self._author = author
        self._root = root

    @property
    def _all(self) -> str:
        return f"{_project(self._repository)}/merge_requests/{self._iid}/notes"

    def ours(self) -> list[ForgeComment]:
        notes = self._api.pages(self._all, size=_PAGE, sort="asc", order_by="created_at")
        return [self._comment(each) for each in notes if value_at(each, "author", "id") == self._author]

    def make(self, text: str) -> ForgeComment:
        answer = self._api.send("POST", self._all, {"body": text})
        check_response(answer, self._repository)
        return self._comment(answer.data)

    def edit(self, comment: ForgeComment, text: str) -> ForgeComment | None:
        answer = self._api.send("PUT", f"{self._all}/{comment.id}", {"body": text})
        if answer.status == 404:
            return None
        check_response(answer, self._repository)
        return self._comment(answer.data)

    def remove(self, comment: ForgeComment) -> None:
        answer = self._api.send("DELETE", f"{self._all}/{comment.id}")
        if answer.status != 404:
            check_response(answer, self._repository)

    def _comment(self, found: Any) -> ForgeComment:
        note = number_at(found, "id")
        url = f"{self._root}/{self._repository}/-/merge_requests/{self._iid}#note_{note}"
        return ForgeComment(note, str(value_at(found, "body") or ""), url)
