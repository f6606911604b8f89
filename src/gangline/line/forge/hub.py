"""What the APIs of GitHub and Gitea have in common, which is nearly all: the adapters beside it fill in the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

from gangline.errors import ConfigError
from gangline.line.forge import delivery
from gangline.line.forge.comments import Comment, upsert
from gangline.line.forge.delivery import at, number, text
from gangline.line.forge.http import Answer, Api, segment, understood
from gangline.line.forge.protocol import Head, Status

MOST_CHANGES = 3000
"""Paths of one pull request; GitHub tells no more."""


class Hub(ABC):
    """Base of both."""

    page_size: ClassVar[int]
    page_size_name: ClassVar[str]
    branch_commit: ClassVar[str]
    """Where a branch of a list holds its object name."""

    def __init__(self, *, name: str, api: Api, root: str, secret: Callable[[], str]) -> None:
        self.name = name
        self._api = api
        self._root = root
        self._secret = secret

    def head(self, repository: str, ref: str) -> Head | None:
        branch, pull_request = delivery.branch_ref(ref), pull_number(ref)
        path = repo_path(repository)
        with understood(self.name):
            if branch is not None:
                head = self._branch(repository, branch)
            else:
                found = self._api.get(f"{path}/pulls/{pull_request}") if pull_request else None
                head = _pull_head(found) if found is not None and text(found, "state") == "open" else None
        if head is None:
            self._api.demand(path, repository)
        return head

    def heads(self, repository: str) -> list[tuple[str, Head]]:
        path = repo_path(repository)
        with understood(self.name):
            branches = [self._listed_branch(each) for each in self._pages(f"{path}/branches")]
            pulls = [_pull_head(each) for each in self._pages(f"{path}/pulls", state="open")]
        return branches + [(f"refs/pull/{head.pull_request}/head", head) for head in pulls]

    def clone_url(self, repository: str) -> str:
        repo_path(repository)
        return f"{self._root}/{repository}.git"

    def commit_url(self, repository: str, commit: str) -> str:
        repo_path(repository)
        return f"{self._root}/{repository}/commit/{segment(commit)}"

    def pull_ref(self, pull_request: int) -> str:
        return f"refs/pull/{pull_request}/head"

    def set_status(self, repository: str, commit: str, status: Status) -> None:
        body = {"context": status.context, "state": status.state, "description": status.description}
        if status.url:
            body["target_url"] = status.url
        demand(self._api.send("POST", f"{repo_path(repository)}/statuses/{segment(commit)}", body), repository)

    def upsert_comment(self, repository: str, pull_request: int, marker: str, text: str) -> str:
        with understood(self.name):
            return upsert(_Thread(self._api, repository, pull_request, self._author, self._pages), marker, text)

    def changes(self, repository: str, pull_request: int) -> list[str] | None:
        paths: set[str] = set()
        with understood(self.name):
            for count, each in enumerate(self._pages(f"{repo_path(repository)}/pulls/{pull_request}/files"), 1):
                if count >= MOST_CHANGES:
                    return None
                name = text(each, "filename")
                paths |= {name, str(at(each, "previous_filename") or name)}
        return sorted(paths)

    @cached_property
    def _author(self) -> int:
        """Id of the account that our token belongs to."""
        return number(self._api.get("/user"), "id")

    def _listed_branch(self, found: Any) -> tuple[str, Head]:
        name = text(found, "name")
        return f"refs/heads/{name}", Head(commit=text(found, "commit", self.branch_commit), branch=name)

    def _pages(self, path: str, **query: str) -> Iterator[Any]:
        return self._api.pages(path, size=self.page_size, size_name=self.page_size_name, **query)

    @abstractmethod
    def _branch(self, repository: str, branch: str) -> Head | None: ...


def repo_path(repository: str) -> str:
    """`/repos/owner/name`, of a name that stays one in a URL.

    Raises:
        ConfigError: It would not.
    """
    owner, slash, name = repository.partition("/")
    if not slash or "/" in name or not delivery.is_repository(repository):
        raise ConfigError(f"wanted a repository as owner/name, found {repository[:100]!r}")
    return f"/repos/{owner}/{name}"


def pull_number(ref: str) -> int | None:
    """Number in `refs/pull/7/head`."""
    parts = ref.split("/")
    ok = len(parts) == 4 and parts[:2] == ["refs", "pull"] and parts[3] == "head"
    return int(parts[2]) if ok and parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 12 else None


def demand(answer: Answer, repository: str) -> None:
    """Refuse an answer that says no."""
    if answer.status >= 400:
        raise ConfigError(
            f"the forge has no such place in {repository}, or hides it from our token: {answer.status} {answer.said}"
        )


def _pull_head(pull: Any) -> Head:
    source, target = at(pull, "head", "repo", "full_name"), at(pull, "base", "repo", "full_name")
    return Head(
        commit=text(pull, "head", "sha"),
        pull_request=number(pull, "number"),
        is_fork=source is None or source != target,
        branch=at(pull, "head", "ref"),
        target=at(pull, "base", "ref"),
    )


class _Thread:
    """Our comments under one pull request; on these forges a pull request is an issue, too."""

    def __init__(
        self, api: Api, repository: str, pull_request: int, author: int, pages: Callable[[str], Iterator[Any]]
    ) -> None:
        self._api = api
        self._repository = repository
        self._pull_request = pull_request
        self._author = author
        self._pages = pages

    @property
    def _all(self) -> str:
        return f"{repo_path(self._repository)}/issues/{self._pull_request}/comments"

    def ours(self) -> list[Comment]:
        return [_comment(each) for each in self._pages(self._all) if at(each, "user", "id") == self._author]

    def make(self, text: str) -> Comment:
        answer = self._api.send("POST", self._all, {"body": text})
        demand(answer, self._repository)
        return _comment(answer.data)

    def edit(self, comment: Comment, text: str) -> Comment | None:
        answer = self._api.send("PATCH", self._one(comment), {"body": text})
        if answer.status == 404:
            return None
        demand(answer, self._repository)
        return _comment(answer.data)

    def remove(self, comment: Comment) -> None:
        answer = self._api.send("DELETE", self._one(comment))
        if answer.status != 404:
            demand(answer, self._repository)

    def _one(self, comment: Comment) -> str:
        return f"{repo_path(self._repository)}/issues/comments/{comment.id}"


def _comment(found: Any) -> Comment:
    return Comment(number(found, "id"), str(at(found, "body") or ""), str(at(found, "html_url") or ""))
