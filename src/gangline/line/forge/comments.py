"""One comment of ours under a pull request, whoever races: found by marker and author, edited, doubles removed.

Making a comment is not idempotent and two drivers may do it at once. So whoever made one looks again; of several, the
oldest stays and gets the text, the others go. Both racers decide alike, so one comment is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.line.forge.protocol import COMMENT_LIMIT


@dataclass(frozen=True, slots=True)
class Comment:
    id: int
    text: str
    url: str


class Comments(Protocol):
    """Comments of one pull request that our own account wrote."""

    def ours(self) -> Sequence[Comment]: ...

    def make(self, text: str) -> Comment: ...

    def edit(self, comment: Comment, text: str) -> Comment | None:
        """None: it is gone."""
        ...

    def remove(self, comment: Comment) -> None: ...


def upsert(comments: Comments, marker: str, text: str) -> str:
    """URL of the one comment that carries `marker` and now reads `text`."""
    assert marker in text, "a comment that could never be found again"
    assert len(text) <= COMMENT_LIMIT, f"{len(text)} characters"
    return _settle(comments, marker, text) or _settle_new(comments, marker, text)


def _settle_new(comments: Comments, marker: str, text: str) -> str:
    made = comments.make(text)
    return _settle(comments, marker, text) or made.url


def _settle(comments: Comments, marker: str, text: str) -> str | None:
    """URL of the oldest of our comments, with `text`; None where there is none."""
    found = sorted((each for each in comments.ours() if marker in each.text), key=lambda comment: comment.id)
    for double in found[1:]:
        comments.remove(double)
    if not found:
        return None
    if found[0].text == text:
        return found[0].url
    edited = comments.edit(found[0], text)
    return edited.url if edited else None
