"""`/api/v1/tokens`: who may call; only digests are kept, so a token is shown once."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Path
from pydantic import Field

from gangline.serve.api.dependencies import ApiModel, CallerDep, ServiceDep, problems
from gangline.serve.context.accounts import digest_of, new_token
from gangline.serve.database.types import Principal, Role
from gangline.serve.web.responses import RequestRefused

log = structlog.get_logger()
router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])
Beginning = Annotated[str, Path(pattern=r"^[0-9a-f]{8,64}$", description="First 8 or more of its digest.")]


class Wanted(ApiModel):
    """A token to be created."""

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]*$", examples=["ci"])
    roles: dict[Annotated[str, Field(pattern=r"^([a-z][a-z0-9-]{0,19}|\*)$")], Role] = Field(
        min_length=1, max_length=100, description="By project; `*` is every project.", examples=[{"bytegpt": "runner"}]
    )
    seconds: float | None = Field(None, gt=0, le=10 * 365 * 86400, description="Lifetime; null: no end.")


class Made(ApiModel):
    """A token that was created."""

    token: str = Field(description="Shown this once.")
    digest: str = Field(description="First 8 of its SHA-256, its name from now on.")


class Known(ApiModel):
    """A token as it is listed: everything but the token itself."""

    digest: str
    name: str
    roles: dict[str, Role]
    expires: float | None = Field(description="Seconds since the epoch.")


class AllTokens(ApiModel):
    """All tokens of the service."""

    tokens: list[Known]


@router.get("", responses=problems())
def list_tokens(service: ServiceDep) -> AllTokens:
    """Tokens of the database; those of the site's file are not among them."""
    return AllTokens(
        tokens=[
            Known(digest=beginning, name=principal.name, roles=principal.roles, expires=expires)
            for beginning, principal, expires in service.context.accounts.tokens.list()
        ]
    )


@router.post("", status_code=201, responses=problems())
def add_token(service: ServiceDep, caller: CallerDep, wanted: Wanted) -> Made:
    """A new token."""
    token, now = new_token(), service.context.clock()
    principal = Principal(name=wanted.name, roles=wanted.roles)
    service.context.accounts.tokens.add(
        digest=digest_of(token), principal=principal, expires=now + wanted.seconds if wanted.seconds else None, now=now
    )
    log.info("token_added", name=wanted.name, by=caller.name)
    return Made(token=token, digest=digest_of(token)[:8])


@router.delete("/{beginning}", status_code=204, responses=problems(404))
def revoke_token(service: ServiceDep, caller: CallerDep, beginning: Beginning) -> None:
    """End a token, and every session that began with it."""
    if not service.context.accounts.tokens.revoke(beginning):
        raise RequestRefused(404, "no token's digest begins so")
    log.info("token_revoked", digest=beginning[:8], by=caller.name)
