"""Upsert of the one comment on a pull request: found by marker and author, edited, duplicates removed.

Creating a comment is not idempotent and two drivers may do it at once. So a driver that created one lists them again;
of several, the oldest is kept and gets the text, the others are deleted. Both drivers decide alike, so one comment is
left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.forge.protocol import COMMENT_LIMIT


@dataclass(frozen=True, slots=True)
class ForgeComment:
    """A comment as the forge has it."""

    id: int
    text: str
    url: str


class CommentThread(Protocol):
    """Comments of one pull request that our own account wrote."""

    def ours(self) -> Sequence[ForgeComment]:
        """Comments of our own user."""

    def make(self, text: str) -> ForgeComment:
        """A new comment that reads `text`."""

    def edit(self, comment: ForgeComment, text: str) -> ForgeComment | None:
        """None: it is gone."""
        ...

    def remove(self, comment: ForgeComment) -> None:
        """Delete `comment`; one that is missing is fine."""


def upsert_in_thread(comments: CommentThread, marker: str, text: str) -> str:
    """URL of the one comment that carries `marker` and now reads `text`."""
    assert marker in text, "the comment lacks its marker and could not be updated later"
    assert len(text) <= COMMENT_LIMIT, f"{len(text)} characters"
    return _edit_oldest(comments, marker, text) or _create_comment(comments, marker, text)


def _create_comment(comments: CommentThread, marker: str, text: str) -> str:
    made = comments.make(text)
    return _edit_oldest(comments, marker, text) or made.url


def _edit_oldest(comments: CommentThread, marker: str, text: str) -> str | None:
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
