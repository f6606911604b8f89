"""GitLab: a project is a path of groups, a pull request a merge request with a number of its own, a comment a note."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from gangline.errors import ConfigError
from gangline.line.forge import delivery
from gangline.line.forge.comments import Comment, upsert
from gangline.line.forge.delivery import at, number, text
from gangline.line.forge.http import Api, segment, understood
from gangline.line.forge.hub import MOST_CHANGES, demand
from gangline.line.forge.protocol import Head, Hint, Status, StatusState

_BUILDS = {"open", "reopen", "update"}
_GONE = {"close", "merge"}
_STATES: dict[StatusState, str] = {"pending": "running", "success": "success", "failure": "failed", "error": "failed"}
_PAGE = 100


class GitLab:
    """`line.forge.protocol.Forge` over the API of GitLab, version 4."""

    def __init__(self, *, name: str, api: Api, root: str, secret: Callable[[], str]) -> None:
        self.name = name
        self._api = api
        self._root = root
        self._secret = secret

    def verify(self, headers: Mapping[str, str], body: bytes) -> Hint:
        """By `X-Gitlab-Token`, which is the secret itself: only TLS keeps it one."""
        given = delivery.lower_names(headers)
        delivery.demand_secret(self._secret(), given.get("x-gitlab-token", ""))
        payload = delivery.read_json(body)
        names = ("idempotency-key", "x-gitlab-webhook-uuid", "x-gitlab-event-uuid")
        event_id = delivery.delivery_id(given, names, body)
        readers = {"push": _push_hint, "merge_request": _merge_hint}
        return readers.get(str(at(payload, "object_kind")), _other_hint)(payload, event_id=event_id)

    def head(self, repository: str, ref: str) -> Head | None:
        branch, iid = delivery.branch_ref(ref), merge_number(ref)
        path, head = _project(repository), None
        with understood(self.name):
            if branch is not None:
                found = self._api.get(f"{path}/repository/branches/{segment(branch)}")
                head = _branch_head(found) if found is not None else None
            elif iid is not None:
                merge = self._api.get(f"{path}/merge_requests/{iid}")
                head = _merge_head(merge) if merge is not None and text(merge, "state") == "opened" else None
        if head is None:
            self._api.demand(path, repository)
        return head

    def heads(self, repository: str) -> list[tuple[str, Head]]:
        path = _project(repository)
        with understood(self.name):
            branches = [_branch_head(each) for each in self._pages(f"{path}/repository/branches")]
            opened = self._pages(f"{path}/merge_requests", state="opened")
            merges = [_merge_head(each) for each in opened if at(each, "sha")]  # none while GitLab prepares it
        return [(f"refs/heads/{head.branch}", head) for head in branches] + [
            (f"refs/merge-requests/{head.pull_request}/head", head) for head in merges
        ]

    def clone_url(self, repository: str) -> str:
        _project(repository)
        return f"{self._root}/{repository}.git"

    def commit_url(self, repository: str, commit: str) -> str:
        _project(repository)
        return f"{self._root}/{repository}/-/commit/{segment(commit)}"

    def pull_ref(self, pull_request: int) -> str:
        return f"refs/merge-requests/{pull_request}/head"

    def set_status(self, repository: str, commit: str, status: Status) -> None:
        """GitLab refuses the state that a status already has, and so keeps the older description; that is no error."""
        body = {"name": status.context, "state": _STATES[status.state], "description": status.description}
        if status.url:
            body["target_url"] = status.url
        answer = self._api.send("POST", f"{_project(repository)}/statuses/{segment(commit)}", body)
        if not (answer.status == 400 and "cannot transition" in answer.said.lower()):
            demand(answer, repository)

    def upsert_comment(self, repository: str, pull_request: int, marker: str, text: str) -> str:
        with understood(self.name):
            return upsert(_Notes(self._api, repository, pull_request, self._author, self._root), marker, text)

    def changes(self, repository: str, pull_request: int) -> list[str] | None:
        paths: set[str] = set()
        with understood(self.name):
            for count, each in enumerate(self._pages(f"{_project(repository)}/merge_requests/{pull_request}/diffs"), 1):
                if count >= MOST_CHANGES:
                    return None
                paths |= {text(each, "old_path"), text(each, "new_path")}
        return sorted(paths)

    @cached_property
    def _author(self) -> int:
        """Id of the account that our token belongs to."""
        return number(self._api.get("/user"), "id")

    def _pages(self, path: str, **query: str) -> Iterator[Any]:
        return self._api.pages(path, size=_PAGE, **query)


def merge_number(ref: str) -> int | None:
    """Number in `refs/merge-requests/7/head`."""
    parts = ref.split("/")
    ok = len(parts) == 4 and parts[:2] == ["refs", "merge-requests"] and parts[3] == "head"
    return int(parts[2]) if ok and parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 12 else None


def _project(repository: str) -> str:
    if not delivery.is_repository(repository):
        raise ConfigError(f"wanted a project as group/name, found {repository[:100]!r}")
    return f"/projects/{segment(repository)}"


def _push_hint(payload: Mapping[str, Any], *, event_id: str) -> Hint:
    repository = delivery.repository(payload, "project", "path_with_namespace")
    ref = text(payload, "ref")
    branch = delivery.branch_ref(ref)
    if branch is None:
        return Hint(delivery=event_id, event="other", repository=repository)
    gone = delivery.NO_COMMIT.fullmatch(text(payload, "after")) is not None
    return Hint(delivery=event_id, event="push", repository=repository, ref=ref, branch=branch, deleted=gone)


def _merge_hint(payload: Mapping[str, Any], *, event_id: str) -> Hint:
    repository = delivery.repository(payload, "project", "path_with_namespace")
    what = at(payload, "object_attributes")
    action = at(what, "action")
    if action not in _BUILDS | _GONE:
        return Hint(delivery=event_id, event="other", repository=repository)
    iid = number(what, "iid")
    return Hint(
        delivery=event_id,
        event="pull_request",
        repository=repository,
        ref=f"refs/merge-requests/{iid}/head",
        branch=text(what, "source_branch"),
        pull_request=iid,
        is_fork=number(what, "source_project_id") != number(what, "target_project_id"),
        deleted=action in _GONE,
    )


def _other_hint(payload: Mapping[str, Any], *, event_id: str) -> Hint:
    name = at(payload, "project", "path_with_namespace")
    known = isinstance(name, str) and delivery.is_repository(name)
    return Hint(delivery=event_id, event="other", repository=str(name) if known else "")


def _branch_head(found: Any) -> Head:
    return Head(commit=text(found, "commit", "id"), branch=text(found, "name"))


def _merge_head(merge: Any) -> Head:
    return Head(
        commit=text(merge, "sha"),
        pull_request=number(merge, "iid"),
        is_fork=at(merge, "source_project_id") != at(merge, "target_project_id"),
        branch=at(merge, "source_branch"),
        target=at(merge, "target_branch"),
    )


class _Notes:
    """Our notes under one merge request."""

    def __init__(self, api: Api, repository: str, iid: int, author: int, root: str) -> None:
        self._api = api
        self._repository = repository
        self._iid = iid
        self._author = author
        self._root = root

    @property
    def _all(self) -> str:
        return f"{_project(self._repository)}/merge_requests/{self._iid}/notes"

    def ours(self) -> list[Comment]:
        notes = self._api.pages(self._all, size=_PAGE, sort="asc", order_by="created_at")
        return [self._comment(each) for each in notes if at(each, "author", "id") == self._author]

    def make(self, text: str) -> Comment:
        answer = self._api.send("POST", self._all, {"body": text})
        demand(answer, self._repository)
        return self._comment(answer.data)

    def edit(self, comment: Comment, text: str) -> Comment | None:
        answer = self._api.send("PUT", f"{self._all}/{comment.id}", {"body": text})
        if answer.status == 404:
            return None
        demand(answer, self._repository)
        return self._comment(answer.data)

    def remove(self, comment: Comment) -> None:
        answer = self._api.send("DELETE", f"{self._all}/{comment.id}")
        if answer.status != 404:
            demand(answer, self._repository)

    def _comment(self, found: Any) -> Comment:
        note = number(found, "id")
        url = f"{self._root}/{self._repository}/-/merge_requests/{self._iid}#note_{note}"
        return Comment(note, str(at(found, "body") or ""), url)
