"""What the adapters of all forges share: refs and their heads, statuses, changed paths, comments, events of pushes.

Creating a comment is not idempotent and two drivers may do it at once. So a driver that created one lists them again;
of several, the oldest is kept and gets the text, the others are deleted. Both drivers decide alike, so one comment is
left.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from gangline.errors import ConfigError
from gangline.forge.client import ForgeClient, ForgeResponse, path_segment, reading_response
from gangline.forge.protocol import (
    COMMENT_LIMIT,
    CommitStatus,
    MalformedDeliveryError,
    RefHead,
    StatusState,
    WebhookEvent,
)
from gangline.forge.webhook_delivery import branch_ref, number_at, repository_at, text_at
from gangline.git.branches import LOCAL

MOST_CHANGES = 3000
"""Most paths of one pull request that GitHub lists."""


class RestForge(ABC):
    """Base of the adapters, over an API of paths below that of a repository."""

    pull_refs: ClassVar[str]
    """Beginning of the ref that the forge keeps for the head of a pull request."""
    branches: ClassVar[str]
    """Path of the branches, below that of the repository."""
    branch_commit: ClassVar[str]
    """Where a branch of a list holds its object name."""
    pulls: ClassVar[str]
    """Path of the pull requests, below that of the repository."""
    changed_files: ClassVar[str]
    """Path of the changed files, below that of the pull request."""
    open_state: ClassVar[str]
    """State of an open pull request."""
    commit_page: ClassVar[str]
    """Path of the pages of commits, below that of the repository."""
    status_name: ClassVar[str]
    """Field for the context of a status."""
    states: ClassVar[Mapping[StatusState, str]] = {}
    """States of a status that the forge calls otherwise."""
    repository_place: ClassVar[tuple[str, ...]]
    """Where a delivery names its repository."""
    page_size: ClassVar[int] = 100
    page_size_name: ClassVar[str] = "per_page"

    def __init__(self, *, name: str, api: ForgeClient, root: str, secret: Callable[[], str]) -> None:
        self.name = name
        self._api = api
        self._root = root
        self._secret = secret

    def head(self, repository: str, ref: str) -> RefHead | None:
        branch, pull = branch_ref(ref), re.fullmatch(rf"{self.pull_refs}/([0-9]{{1,11}})/head", ref)
        path, head = self._path(repository), None
        with reading_response(self.name):
            if branch is not None:
                head = self._branch(path, branch)
            elif pull is not None:
                found = self._api.get(f"{path}{self.pulls}/{int(pull[1])}")
                is_open = found is not None and text_at(found, "state") == self.open_state
                head = self._pull_head(found) if is_open else None
        if head is None:
            self._api.demand(path, repository)
        return head

    def heads(self, repository: str) -> list[tuple[str, RefHead]]:
        path = self._path(repository)
        with reading_response(self.name):
            branches = [self._branch_head(page, text_at(page, "name")) for page in self._pages(path + self.branches)]
            pulls = [self._pull_head(each) for each in self._open_pulls(path)]
        return [(f"{LOCAL}{head.branch}", head) for head in branches] + [
            (f"{self.pull_refs}/{head.pull_request}/head", head) for head in pulls
        ]

    def clone_url(self, repository: str) -> str:
        self._path(repository)
        return f"{self._root}/{repository}.git"

    def commit_url(self, repository: str, commit: str) -> str:
        self._path(repository)
        return f"{self._root}/{repository}/{self.commit_page}/{path_segment(commit)}"

    def pull_ref(self, pull_request: int) -> str:
        return f"{self.pull_refs}/{pull_request}/head"

    def set_status(self, repository: str, commit: str, status: CommitStatus) -> None:
        """GitLab refuses the state that a status already has, and so keeps the older description; that is not an
        error."""
        state = self.states.get(status.state, status.state)
        body = {self.status_name: status.context, "state": state, "description": status.description}
        if status.url:
            body["target_url"] = status.url
        answer = self._api.send("POST", f"{self._path(repository)}/statuses/{path_segment(commit)}", body)
        if not (answer.status == 400 and "cannot transition" in answer.said.lower()):
            check_response(answer, repository)

    def upsert_comment(self, repository: str, pull_request: int, marker: str, text: str) -> str:
        assert marker in text, "the comment lacks its marker and could not be updated later"
        assert len(text) <= COMMENT_LIMIT, f"{len(text)} characters"
        with reading_response(self.name):
            return self._comments(repository, pull_request).upsert(marker, text)

    def changes(self, repository: str, pull_request: int) -> list[str] | None:
        paths: set[str] = set()
        listed = self._pages(f"{self._path(repository)}{self.pulls}/{pull_request}/{self.changed_files}")
        with reading_response(self.name):
            for count, each in enumerate(listed, 1):
                if count >= MOST_CHANGES:
                    return None
                paths |= self._changed_paths(each)
        return sorted(paths)

    @cached_property
    def _author(self) -> int:
        """Id of the account that our token belongs to."""
        return number_at(self._api.get("/user"), "id")

    def _pages(self, path: str, **query: str) -> Iterator[Any]:
        return self._api.pages(path, size=self.page_size, size_name=self.page_size_name, **query)

    def _open_pulls(self, path: str) -> Iterator[Any]:
        return self._pages(path + self.pulls, state=self.open_state)

    def _branch(self, path: str, branch: str) -> RefHead | None:
        found = self._api.get(f"{path}{self.branches}/{path_segment(branch)}")
        return None if found is None else self._branch_head(found, branch)

    def _branch_head(self, found: Any, branch: str) -> RefHead:
        return RefHead(commit=text_at(found, "commit", self.branch_commit), branch=branch)

    def _push(self, payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
        """Event of a push to a branch; that of a tag is `other`."""
        return push_event(repository_at(payload, *self.repository_place), text_at(payload, "ref"), event_id=event_id)

    def _other(self, payload: Mapping[str, Any], *, event_id: str) -> WebhookEvent:
        """Event that is ignored; the ping of an organization names no repository."""
        try:
            name = repository_at(payload, *self.repository_place)
        except MalformedDeliveryError:
            name = ""
        return WebhookEvent(delivery=event_id, event="other", repository=name)

    @abstractmethod
    def _path(self, repository: str) -> str:
        """Path of a repository, of a name that stays one in a URL; raises ConfigError for any other."""

    @abstractmethod
    def _pull_head(self, pull: Any) -> RefHead: ...

    @abstractmethod
    def _changed_paths(self, file: Any) -> set[str]: ...

    @abstractmethod
    def _comments(self, repository: str, pull_request: int) -> "CommentThread": ...


def push_event(repository: str, ref: str, *, event_id: str) -> WebhookEvent:
    """Event of a ref that was moved or deleted; of anything but a branch it is `other`."""
    branch = branch_ref(ref)
    if branch is None:
        return WebhookEvent(delivery=event_id, event="other", repository=repository)
    return WebhookEvent(delivery=event_id, event="push", repository=repository, ref=ref, branch=branch)


def check_response(answer: ForgeResponse, repository: str) -> None:
    """Raise for a response that refuses the request."""
    if answer.status >= 400:
        raise ConfigError(
            f"the forge has no such place in {repository}, or hides it from this token: {answer.status} {answer.said}"
        )


@dataclass(frozen=True, slots=True)
class ForgeComment:
    """A comment as the forge has it."""

    id: int
    text: str
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommentThread:
    """Comments of one pull request, of which those of our own account are read and written."""

    api: ForgeClient
    repository: str
    path: str
    """Where a new one is made."""
    below: str
    """Path of one of them, up to its id."""
    edit_method: Literal["PATCH", "PUT"]
    ours: Callable[[], list[ForgeComment]]
    """Lists those of our own account."""
    read: Callable[[Any], ForgeComment]

    def upsert(self, marker: str, text: str) -> str:
        """URL of the one comment that carries `marker` and now reads `text`."""
        return self._edit_oldest(marker, text) or self._make(marker, text)

    def _make(self, marker: str, text: str) -> str:
        answer = self.api.send("POST", self.path, {"body": text})
        check_response(answer, self.repository)
        made = self.read(answer.data)
        return self._edit_oldest(marker, text) or made.url

    def _edit_oldest(self, marker: str, text: str) -> str | None:
        """URL of the oldest of our comments, with `text`; None where there is none."""
        comments = sorted(
            (forge_comment for forge_comment in self.ours() if marker in forge_comment.text),
            key=lambda comment: comment.id,
        )
        for double in comments[1:]:
            answer = self.api.send("DELETE", f"{self.below}/{double.id}")
            if answer.status != 404:
                check_response(answer, self.repository)
        if not comments:
            return None
        if comments[0].text == text:
            return comments[0].url
        answer = self.api.send(self.edit_method, f"{self.below}/{comments[0].id}", {"body": text})
        if answer.status == 404:
            return None
        check_response(answer, self.repository)
        return self.read(answer.data).url
