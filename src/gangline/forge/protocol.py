"""Interface of a code forge, and its data. A webhook event is a hint only: after a push, `head` is asked.

Adapters speak HTTP and hold no state; when a call is made, and what follows from a failed one, is left to the
callers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

StatusState = Literal["pending", "success", "failure", "error"]
SEARCH_LABEL = "search"
"""Label of a pull request that orders a search of its head; a forge lets members of the project set it, no stranger."""
STATUS_CONTEXTS = ("gangline/build", "gangline/train", "gangline/gate", "gangline/publish")
"""One status per stage group, on the commit."""
COMMENT_LIMIT = 60_000
"""Characters; the smallest forge takes 65,536."""


class InvalidSignatureError(Exception):
    """A delivery that its sender cannot have signed: 401 for its sender, without a reason."""


class MalformedDeliveryError(Exception):
    """A signed delivery that cannot be read: 400, with one sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookEvent:
    """What a delivery reports; only its repository and ref are used, to look up the commit there."""

    delivery: str
    """The forge's own id of the delivery, which it does not sign."""
    event: Literal["push", "pull_request", "other"]
    repository: str
    """`owner/name` of the repository that was pushed to; for a pull request, of its target."""
    ref: str = ""
    """`refs/heads/<branch>`, or the ref that the forge keeps for the head of a pull request."""
    branch: str | None = None
    """The branch pushed to, or the one that the pull request comes from; text of a stranger."""
    pull_request: int | None = None
    is_fork: bool = False
    """The commits of this pull request come from another repository."""
    asks_search: bool = False
    """The pull request was given the label `search`; no commit of it changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RefHead:
    """The commit at a ref."""

    commit: str
    """Full object name."""
    pull_request: int | None = None
    is_fork: bool = False
    branch: str | None = None
    target: str | None = None
    """Target branch of a pull request."""
    labels: tuple[str, ...] = ()
    """Labels of a pull request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitStatus:
    """State of one stage group on a commit."""

    context: str
    state: StatusState
    description: str
    """One line, at most 140 characters."""
    url: str | None = None


class Forge(Protocol):
    """One forge. Calls raise StorageError if it is unavailable or rate limited, ConfigError if it refuses the token."""

    name: str
    """NAME of the site's table `[forge.NAME]`."""

    def verify(self, headers: Mapping[str, str], body: bytes) -> WebhookEvent:
        """Check the signature over the raw body in constant time, then parse; no I/O.

        Raises:
            InvalidSignatureError: Signature wrong or absent.
            MalformedDeliveryError: Signed, but no delivery of this forge.
        """
        ...

    def head(self, repository: str, ref: str) -> RefHead | None:
        """The commit at `ref`; None: the ref is gone."""
        ...

    def heads(self, repository: str) -> list[tuple[str, RefHead]]:
        """(ref, head) of every branch and open pull request, for events that were never sent."""
        ...

    def clone_url(self, repository: str) -> str:
        """URL for cloning over https (http on loopback), without any credential."""
        ...

    def commit_url(self, repository: str, commit: str) -> str:
        """Page of a commit."""
        ...

    def pull_ref(self, pull_request: int) -> str:
        """The ref that the forge keeps for the head of a pull request."""
        ...

    def set_status(self, repository: str, commit: str, status: CommitStatus) -> None:
        """Set the status of `commit` in its context."""

    def upsert_comment(self, repository: str, pull_request: int, marker: str, text: str) -> str:
        """Edit our comment that carries `marker` (found by it and by our author id), or make it; its URL."""
        ...

    def changes(self, repository: str, pull_request: int) -> list[str] | None:
        """Paths that a pull request changes; None if there are more than the forge lists."""
        ...
