"""FastAPI dependencies and parameter types of the handlers: the service, the caller, patterns, problem responses."""

from typing import Annotated, Any

from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from gangline.serve.api.service import Service
from gangline.serve.database.types import Principal
from gangline.serve.web.responses import MEDIA_TYPE


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _caller(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


ServiceDep = Annotated[Service, Depends(_service)]
CallerDep = Annotated[Principal, Depends(_caller)]
RUN = r"^[a-z][a-z0-9-]{0,19}-[0-9a-f]{8}-[a-z2-7]{6}$"
RunPath = Annotated[str, Path(pattern=RUN, description="Run id.", examples=["bytegpt-9f31c2a0-k7q2mx"])]
PLAIN = r"^[^\x00-\x1f\x7f]*$"
"""One line without control characters."""
Text = Annotated[str | None, Query(max_length=200, pattern=PLAIN)]
PROJECT = r"^[a-z][a-z0-9-]{0,19}$"


class ApiModel(BaseModel):
    """Data of the API; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """Why a request was refused (RFC 9457)."""

    title: str
    status: int
    detail: str
    errors: list[str] = []
    """One error of a request's form: the place, and what was expected."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Refusals of a route, for the OpenAPI document; some every route has."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    said = {
        400: "Not HTTP that can be read", 401: "No token, or an unknown one", 403: "The token does not allow this",
        404: "Not there, or not yours to see", 405: "No such method here", 408: "The body did not arrive in time",
        409: "The current state does not allow it", 413: "The body is too large", 416: "The range is outside the file",
        421: "Not our Host", 422: "Not the shape that is wanted", 429: "Too many requests",
        503: "The store is away",
    }  # fmt: skip
    always = (400, 401, 403, 405, 408, 413, 421, 422, 429)
    return {each: {"description": said[each], "content": {MEDIA_TYPE: schema}} for each in (*always, *statuses)}
