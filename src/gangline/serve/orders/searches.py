"""Orders of a search: a pull request that carries the label, `gangline search` on its head, five rows in a comment.

The search is the command's: it is found again by its commit, so that an order that is driven twice searches once.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from gangline.errors import GanglineError, GateError
from gangline.forge.protocol import COMMENT_LIMIT, SEARCH_LABEL, RefHead
from gangline.git.repository import Repository
from gangline.report.search.pages import render_markdown_search
from gangline.report.search.text import headline, verdict_of
from gangline.report.text import markdown
from gangline.sanitize import clean
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.types import Order
from gangline.serve.orders.retry_policy import after_exit
from gangline.serve.orders.sources import CommitSource
from gangline.spec.search import SearchView

SEARCH_PROGRAM = (sys.executable, "-P", "-m", "gangline", "search", "--json", "--yes")
"""What searches; its budget is that of the line and of the site."""
_OVER = frozenset({0, GateError.exit_code})
log = structlog.get_logger()


def search_refusal(head: RefHead) -> str:
    """Why the head of a pull request is not searched; empty: it is.

    The label is read from the forge, which lets members of the project alone set it, never from the delivery.
    """
    if head.is_fork:
        return "the commits of a fork are not searched: push them to a branch of the repository first"
    if SEARCH_LABEL not in head.labels:
        return f"the pull request has no label {SEARCH_LABEL} (any more)"
    return ""


def search_arguments(place: Path, commit: str, *, site: Path) -> list[str]:
    """Arguments of `gangline search`."""
    return ["--repo", str(place), "--site", str(site), "--commit", commit]


def search_ended(
    context: ServiceContext, source: CommitSource, order: Order, place: Path, *, code: int, last_message: str
) -> Order:
    """The order after its search ended with `code`, or stopped before its end.

    A comment says what it found, or why it did not begin.
    """
    view = _view(context, order)
    ended = after_exit(order, code, record=None, last_message=last_message, now=context.clock())
    if view is not None:
        comment_on_search(source, order, lambda: _results(context, place, view))
    elif ended.state == "done" and code not in _OVER:  # else it ended, and cannot be read now
        comment_on_search(source, order, lambda: not_searched(order, ended.note))
    if view is None or code not in _OVER:
        return ended
    return replace(order, state="done", note=clean(f"{verdict_of(view)} {headline(view)}", limit=400))


def not_searched(order: Order, reason: str) -> str:
    """Text of a comment for the person who gave the label and waits."""
    return f"Commit {(order.commit or '')[:12]} is not searched: {markdown(reason)}"


def comment_marker(project: str) -> str:
    """Hidden line of the comment about searches of a project's pull request."""
    return f"<!-- gangline-search:{project} -->"


def _view(context: ServiceContext, order: Order) -> SearchView | None:
    """The newest search of the commit; None where none has begun, or it cannot be read."""
    from gangline.search.searches import list_searches, read_search  # Optuna is imported with it

    try:
        requests = [
            request for request in list_searches(context.store, order.project) if request.commit == order.commit
        ]
        return read_search(context.store, order.project, requests[0].id) if requests else None
    except GanglineError as error:
        log.warning("search_not_read", order=order.id, cause=str(error))
        return None


def _results(context: ServiceContext, place: Path, view: SearchView) -> str:
    from gangline.search.answer import proposed_change

    page = context.site.serve.public_url
    link = f"[{view.request.id}]({page}/searches/{view.request.id})\n" if page else ""
    return render_markdown_search(view, line=proposed_change(Repository.at(place), view)) + "\n" + link


def comment_on_search(source: CommitSource, order: Order, text: Callable[[], str]) -> None:
    """Write the one comment; a forge that fails is logged, and fails no order."""
    if source.forge is None or source.token is None or order.pull_request is None:
        return
    marker = comment_marker(order.project)
    try:
        source.forge.upsert_comment(
            source.repository, order.pull_request, marker, f"{marker}\n{text()}"[:COMMENT_LIMIT]
        )
    except GanglineError as error:
        log.warning("comment_not_written", order=order.id, cause=str(error))
