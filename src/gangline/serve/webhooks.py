"""`POST /hooks/{forge}`: a signed delivery becomes one order, answered once the order is on the disk.

The content of a delivery is a hint only: a push, a pull request and a deleted branch all become the same order, to look
at the ref. The worker that takes the order up reads the ref from the forge.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import structlog
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gangline.errors import ConfigError, GanglineError, UsageError
from gangline.forge.protocol import Forge, InvalidSignatureError, MalformedDeliveryError, WebhookEvent
from gangline.git.remote import check_ref
from gangline.sanitize import clean, shown_name
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.context.telemetry import DeliveryEvent, DeliveryOutcome
from gangline.serve.database.types import Order
from gangline.serve.web.body_limits import MAX_BYTES, MODEST_BYTES, BodyMemory, bounded_body
from gangline.serve.web.client_address import peer_address
from gangline.serve.web.rate_limits import ConcurrencyLimit, TokenBuckets
from gangline.serve.web.responses import RETRY_SECONDS, RequestRefused, problem

AT_ONCE = 16
"""Bodies of one address whose signature is looked at."""
FORGED_PER_SECOND = 1.0
FORGED_BURST = 60
"""Bad signatures of one address; above it they are no longer logged, and large bodies are not read."""
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DeliveryResponse:
    """The answer to a sender, and what is counted."""

    status: int
    outcome: DeliveryOutcome
    event: DeliveryEvent = "other"
    detail: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """HTTP response: 202 and 204 are plain, the others are problems."""
        if self.status == 204:
            return Response(status_code=204)
        if self.status == 202:
            return JSONResponse({"detail": self.detail}, status_code=202)
        retry = {"Retry-After": RETRY_SECONDS} if self.status == 503 else {}
        return problem(RequestRefused(self.status, self.detail, {**retry, **self.headers}), page=False)


def router(context: ServiceContext, body_memory: BodyMemory) -> APIRouter:
    """The one route, for the application; bodies take their memory from `body_memory`."""
    routes = APIRouter()
    receiver = WebhookReceiver(context, body_memory)

    @routes.post("/hooks/{forge}", include_in_schema=False)
    async def deliver(forge: str, request: Request) -> Response:
        began = time.monotonic()
        answer = await receiver.receive(forge, request)
        if context.telemetry is not None:
            context.telemetry.webhook(forge, answer.event, answer.outcome, time.monotonic() - began)
        return answer.response()

    return routes


class WebhookReceiver:
    """Accepts deliveries; remembers only the addresses that sent forged ones.

    A delivery with a valid signature counts against no limit of its address, which may be shared with
    forged ones. What it shares with them is the turn of its address, and each turn is short.
    """

    def __init__(self, context: ServiceContext, body_memory: BodyMemory) -> None:
        self._context = context
        self._room = body_memory
        self._turns = ConcurrencyLimit(AT_ONCE)
        self._forged = TokenBuckets(FORGED_PER_SECOND, FORGED_BURST)
        self._projects = {
            name: {repository.casefold(): project for repository, project in table.projects.items()}
            for name, table in context.site.forge.items()
        }
        """Project by forge and repository; forges do not tell `Team/Model` from `team/model`."""

    async def receive(self, name: str, request: Request) -> DeliveryResponse:
        """Everything from the first byte to the durable write; no exception leaves it."""
        forge = self._context.forges.get(name)
        if forge is None:
            return DeliveryResponse(404, "unknown", detail="this service knows no such forge")
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            return DeliveryResponse(
                415, "malformed", detail="wanted application/json; set it as the webhook's content type"
            )
        address = peer_address(request)
        peer = f"{name} {address}"
        try:
            limit = MODEST_BYTES if self._forged.is_empty(peer) else MAX_BYTES
            async with bounded_body(request, self._room, limit=limit) as body, self._turns.of(address):
                return await run_in_threadpool(self._take_in, forge, request.headers, body, peer)
        except RequestRefused as refused:
            outcome: DeliveryOutcome = "oversize" if refused.status == 413 else "failed"
            return DeliveryResponse(refused.status, outcome, detail=refused.detail, headers=refused.headers)

    def _take_in(self, forge: Forge, headers: Mapping[str, str], body: bytes, peer: str) -> DeliveryResponse:
        try:
            hint = forge.verify(headers, body)
        except InvalidSignatureError:
            if not self._forged.take(peer):
                log.warning("delivery_forged", forge=forge.name, peer=peer.partition(" ")[2])
            return DeliveryResponse(401, "forged", detail="wanted the signature of the webhook's secret")
        except MalformedDeliveryError as error:
            return DeliveryResponse(400, "malformed", detail=clean(str(error), limit=200))
        except ConfigError as error:
            log.warning("forge_not_ready", forge=forge.name, cause=str(error))
            return DeliveryResponse(503, "failed", detail="this forge is not set up yet; its log says what is missing")
        return self._accept(forge, hint, body)

    def _accept(self, forge: Forge, hint: WebhookEvent, body: bytes) -> DeliveryResponse:
        if hint.event == "other":
            return DeliveryResponse(204, "ignored")
        project = self._projects.get(forge.name, {}).get(hint.repository.casefold())
        if project is None:
            log.warning("repository_unknown", forge=forge.name, repository=clean(hint.repository, limit=120))
            return DeliveryResponse(204, "unknown", hint.event)
        try:
            order = _order_of(forge, hint, project)
            is_new = self._context.database.deliveries.take_in(
                forge=forge.name, delivery=hint.delivery, body_digest=sha256(body).hexdigest(), order=order,
                now=self._context.clock(),
            )  # fmt: skip
        except UsageError as error:
            return DeliveryResponse(400, "malformed", hint.event, clean(str(error), limit=200))
        except GanglineError as error:
            log.warning("delivery_not_kept", forge=forge.name, cause=str(error))
            return DeliveryResponse(503, "failed", hint.event, "the delivery could not be kept; send it again")
        if not is_new:
            return DeliveryResponse(202, "repeated", hint.event, "repeated delivery: nothing was done")
        log.info("delivery_accepted", forge=forge.name, project=project, ref=order.ref, delivery=hint.delivery)
        return DeliveryResponse(202, "accepted", hint.event, "accepted")


def _order_of(forge: Forge, hint: WebhookEvent, project: str) -> Order:
    """Order to look at the ref of a hint; raises UsageError for a ref that git would not take."""
    return Order(
        project=project,
        forge=forge.name,
        repository=hint.repository,
        ref=check_ref(hint.ref),
        branch=None if hint.branch is None else shown_name(hint.branch),
        pull_request=hint.pull_request,
        trust="fork" if hint.is_fork else "own",
        cause="pull_request" if hint.event == "pull_request" else "push",
        kind="search" if hint.asks_search else "run",
        asked_by=f"{forge.name} {hint.delivery}",
    )
