"""What a refusal looks like: `application/problem+json` for programs, a page for people. No secret is in either."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import HTMLResponse, JSONResponse, Response

from gangline.errors import (
    CapacityError,
    ConfigError,
    GanglineError,
    StorageError,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"
_STATUS: tuple[tuple[type[GanglineError], int], ...] = (
    (UsageError, 422),
    (ConfigError, 409),
    (CapacityError, 409),
    (StorageError, 503),
)
RETRY_SECONDS = "5"


class Refused(Exception):
    """A request that ends here."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def status_of(error: GanglineError) -> int:
    """How HTTP says what an error class means; what nobody foresaw is ours: 500."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def refusal(error: Refused | GanglineError) -> Refused:
    if isinstance(error, Refused):
        return error
    status = status_of(error)
    return Refused(status, str(error), {"Retry-After": RETRY_SECONDS} if status == 503 else {})


def problem(refused: Refused, *, page: bool) -> Response:
    """The answer to a request that was refused."""
    if page:
        from gangline.serve.pages import render_problem

        return HTMLResponse(render_problem(refused.status, refused.detail), refused.status, refused.headers)
    body = {"title": HTTPStatus(refused.status).phrase, "status": refused.status, "detail": refused.detail}
    return JSONResponse(body, refused.status, refused.headers, media_type=MEDIA_TYPE)
