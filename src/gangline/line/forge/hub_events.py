"""Deliveries of GitHub and Gitea as hints. Pure: whoever calls has checked the signature."""

from collections.abc import Mapping
from typing import Any

from gangline.line.forge import delivery
from gangline.line.forge.delivery import at, number, text
from gangline.line.forge.protocol import Hint, MalformedError

_BUILDS = {"opened", "reopened", "synchronize", "synchronized", "edited", "ready_for_review"}
"""Actions on a pull request after which its head or its target may be another."""


def push_hint(payload: Mapping[str, Any], *, event_id: str) -> Hint:
    """Of a push; tags are no business of ours."""
    repository = delivery.repository(payload, "repository", "full_name")
    ref = text(payload, "ref")
    branch = delivery.branch_ref(ref)
    if branch is None:
        return Hint(delivery=event_id, event="other", repository=repository)
    after = text(payload, "after")
    gone = at(payload, "deleted") is True or delivery.NO_COMMIT.fullmatch(after) is not None
    return Hint(delivery=event_id, event="push", repository=repository, ref=ref, branch=branch, deleted=gone)


def pull_hint(payload: Mapping[str, Any], *, event_id: str) -> Hint:
    """What an event of a pull request is a hint at; one that changes no commit is none."""
    repository = delivery.repository(payload, "repository", "full_name")
    action = text(payload, "action")
    if action not in _BUILDS | {"closed"}:
        return Hint(delivery=event_id, event="other", repository=repository)
    pull_request = number(payload, "pull_request", "number")
    branch = text(payload, "pull_request", "head", "ref")
    source = at(payload, "pull_request", "head", "repo", "full_name")
    return Hint(
        delivery=event_id,
        event="pull_request",
        repository=repository,
        ref=f"refs/pull/{pull_request}/head",
        branch=branch,
        pull_request=pull_request,
        is_fork=source != repository,
        deleted=action == "closed",
    )


def branch_gone_hint(payload: Mapping[str, Any], *, event_id: str) -> Hint:
    """Of a `delete` event, for forges that send no push then."""
    repository = delivery.repository(payload, "repository", "full_name")
    ref = f"refs/heads/{text(payload, 'ref').removeprefix('refs/heads/')}"
    branch = delivery.branch_ref(ref)
    if at(payload, "ref_type") != "branch" or branch is None:
        return Hint(delivery=event_id, event="other", repository=repository)
    return Hint(delivery=event_id, event="push", repository=repository, ref=ref, branch=branch, deleted=True)


def other_hint(payload: Mapping[str, Any], *, event_id: str) -> Hint:
    """Of an event that asks for nothing; a ping of an organization names no repository."""
    try:
        name = delivery.repository(payload, "repository", "full_name")
    except MalformedError:
        name = ""
    return Hint(delivery=event_id, event="other", repository=name)
