"""The login page, and error pages that say what went wrong and what to do."""

from http import HTTPStatus

from gangline.serve.pages.layout import draw

_FORBIDDEN = (
    "The token that you logged in with may not do this in this project. An administrator gives roles: "
    "gangline token add NAME --role PROJECT=ROLE."
)
_MISSING = (
    "There is no such page, or it is of a project that your token may not read. A run is found by the beginning of its "
    "id, by branch or by subject with the filter above the list of runs."
)
_BROKEN = (
    "The service could not finish this page; no record or run was changed. The log of gangline serve says what "
    "happened. Load the page again."
)
_AWAY = (
    "Records cannot be read now. Runs continue, and write once the store is back; nothing is lost. On the service's "
    "machine gangline doctor says what does not answer. The page can be loaded again."
)
_ADVICE_BY_STATUS = {
    401: ("Who are you?", "The session has ended, or there was none. Log in again."),
    403: ("Not for this token", _FORBIDDEN),
    404: ("Not found", _MISSING),
    413: ("Too large", "The request is larger than the service allows: send less at once."),
    429: ("Too many requests", "This token has sent too many requests: wait a moment, then try again."),
    500: ("Internal error", _BROKEN),
    503: ("The store is away", _AWAY),
}
"""Advice for each status: what happened, and what works."""


def render_login(message: str = "", *, onward: str = "") -> str:
    """A field for a token; `message` says why it is asked for again, `onward` is the page wanted before."""
    return draw("login.html.j2", message=message, onward=onward)


def render_problem(status: int, message: str) -> str:
    """What happened, and what works instead."""
    known = {http_status.value: http_status.phrase for http_status in HTTPStatus}
    title, way = _ADVICE_BY_STATUS.get(status, (known.get(status, "It did not work"), ""))
    return draw("problem.html.j2", status=status, title=title, message=message, way=way)
