"""Routes of the HTML pages, for browsers; `pages` renders them from index rows and records."""

import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gangline.report.run.html import render_html
from gangline.report.search.pages import render_html_search
from gangline.serve import pages
from gangline.serve.api.dependencies import RUN, CallerDep, ServiceDep
from gangline.serve.api.run import approve_fork_run, stop
from gangline.serve.api.runs import decode_cursor, page_of
from gangline.serve.api.service import Service
from gangline.serve.context.accounts import digest_of
from gangline.serve.database.types import RunFilter
from gangline.serve.runs.searches import SEARCH
from gangline.serve.web.client_address import peer_address
from gangline.serve.web.permissions import readable_projects
from gangline.serve.web.responses import DOCUMENT_POLICY, RequestRefused
from gangline.serve.web.sessions import form_of
from gangline.spec.record import Record

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
ROWS = 50
QUEUED = 50
REFUSED = 10
RunName = Annotated[str, Path(pattern=RUN)]
SearchName = Annotated[str, Path(pattern=SEARCH)]
_FIELDS = ("project", "branch", "verdict", "text", "pull_request", "commit")
_OPEN_ORDERS = ("queued", "driving", "parked", "quarantined")
_PLACE = re.compile(r"/(runs|compare|searches)([/?][A-Za-z0-9/?&=%._~-]{0,400})?")
"""Where a login may lead on to."""


@router.get("/")
def front() -> RedirectResponse:
    """Redirect to the list of runs."""
    return RedirectResponse("/runs", 303)


@router.get("/static/{name}")
def static(name: str) -> Response:
    """A style sheet, script or icon of the pages."""
    if name not in pages.STATIC:
        raise RequestRefused(404, "no such file")
    media_type, body = pages.STATIC[name]
    return Response(body, headers={"Content-Type": media_type, "Cache-Control": "public, max-age=300"})


@router.get("/runs")
def runs(service: ServiceDep, caller: CallerDep, request: Request) -> str:
    """The list, by its form's fields."""
    wanted = _wanted(request.query_params, readable_projects(caller))
    database = service.context.database
    rows, following = page_of(database.runs.search(wanted), ROWS)
    orders = [] if wanted.projects == () else database.orders.list(
        states=_OPEN_ORDERS, projects=wanted.projects, limit=QUEUED
    )  # fmt: skip
    problem = service.context.health.problem()
    return pages.render_runs(
        rows,
        wanted=wanted,
        orders=[*orders, *database.orders.refused(projects=wanted.projects, limit=REFUSED)],
        next_page=following,
        principal=caller,
        now=service.context.clock(),
        counts=service.run_counts.of(wanted.projects),
        notice=f"The store is away, so this list may be old: {problem}" if problem else "",
        searches=service.searches.of(wanted.project, wanted.projects),
        refused=service.context.quarantine.list_refused(wanted.projects, wanted.project),
    )


@router.get("/runs/{run}")
def run_page(service: ServiceDep, caller: CallerDep, request: Request, run: RunName) -> str:
    """The page of one run."""
    record = service.record(run)
    cookie = request.cookies.get(service.sessions.cookie)
    return pages.render_run(
        record,
        base=_base(service, record),
        principal=caller,
        live=True,
        now=service.context.clock(),
        csrf=service.sessions.csrf(cookie) if cookie else "",
        progress=service.watchers.progress(run),
    )


@router.get("/runs/{run}/report")
def report(service: ServiceDep, run: RunName) -> HTMLResponse:
    """The report, drawn from the record as it is."""
    record = service.record(run)
    text = render_html(record, _base(service, record))
    return HTMLResponse(text, headers={"Content-Security-Policy": DOCUMENT_POLICY})


@router.get("/compare")
def compare(service: ServiceDep, caller: CallerDep, request: Request) -> str:
    """Two to ten runs, beginning with the one the others are held against."""
    names = list(dict.fromkeys(request.query_params.getlist("run")))[:11]
    for name in names:
        row = service.find_row(name)
        if row is None or not caller.may("reader", row.project):
            raise RequestRefused(404, "one of these runs is not there, or not yours to see")
    reference = request.query_params.get("reference")
    return pages.render_compare(
        [service.record(name) for name in names], principal=caller, reference=reference if reference in names else None
    )


@router.get("/searches/{search}")
def search_page(service: ServiceDep, caller: CallerDep, search: SearchName) -> HTMLResponse:
    """A search as it stands, with links to the runs of its trials."""
    view = service.searches.view(search, may_read=lambda project: caller.may("reader", project))
    return HTMLResponse(render_html_search(view, live=True), headers={"Content-Security-Policy": DOCUMENT_POLICY})


@router.post("/runs/{run}/cancel")
async def cancel(service: ServiceDep, caller: CallerDep, request: Request, run: RunName) -> RedirectResponse:
    """Cancel a run from the form of its page."""
    reason = form_of(await request.body()).get("reason", "")
    await run_in_threadpool(stop, service, caller, run, re.sub(r"[\x00-\x1f\x7f]", " ", reason)[:200])
    return RedirectResponse(f"/runs/{run}", 303)


@router.post("/runs/{run}/approve")
def approve(service: ServiceDep, caller: CallerDep, run: RunName) -> RedirectResponse:
    """Approve a fork's run from the form of its page."""
    approve_fork_run(service, caller, run)
    return RedirectResponse(f"/runs/{run}", 303)


@router.get("/login")
def login_page(service: ServiceDep, request: Request) -> Response:
    """The form; with a link's code, in at once."""
    onward = _onward(request.query_params.get("next", ""))
    code = request.query_params.get("once")
    if code is None:
        return HTMLResponse(pages.render_login(onward=onward))
    digest = service.links.use(code)
    if digest is None:
        return HTMLResponse(pages.render_login("This link was used, or is over ten minutes old."), 401)
    return _logged_in(service, digest, onward)


@router.post("/login")
async def login(service: ServiceDep, request: Request) -> Response:
    """Exchange a token for a session."""
    form = form_of(await request.body())
    token, onward = form.get("token", "").strip(), _onward(form.get("next", ""))
    if await run_in_threadpool(service.context.accounts.of_token, token) is None:
        service.count_failed_login(peer_address(request))
        return HTMLResponse(pages.render_login("There is no such token, or it has expired.", onward=onward), 401)
    return _logged_in(service, digest_of(token), onward)


@router.post("/logout")
def logout(service: ServiceDep, request: Request) -> RedirectResponse:
    """End the session of the browser."""
    cookie = request.cookies.get(service.sessions.cookie, "")
    return RedirectResponse("/login", 303, {"Set-Cookie": service.sessions.end(cookie)})


def _logged_in(service: Service, digest: str, onward: str) -> RedirectResponse:
    return RedirectResponse(onward or "/runs", 303, {"Set-Cookie": service.sessions.begin(digest)})


def _onward(place: str) -> str:
    """A page of ours, or nothing."""
    return place if _PLACE.fullmatch(place) else ""


def _wanted(asked: Mapping[str, str], projects: tuple[str, ...] | None) -> RunFilter:
    """What the form says; a field that says nothing sensible is as good as empty."""
    fields = {name: re.sub(r"[\x00-\x1f\x7f]", "", asked.get(name, "")).strip()[:200] or None for name in _FIELDS}
    pull = fields.pop("pull_request")
    number = int(pull) if pull and re.fullmatch(r"[0-9]{1,9}", pull) else None
    commit = (fields.pop("commit") or "").lower() or None
    cursor = decode_cursor(asked.get("cursor") or None)
    return RunFilter(projects=projects, **fields, commit=commit, pull_request=number, before=cursor, limit=ROWS + 1)


def _base(service: Service, record: Record) -> Record | None:
    """The base's record, where it still is in the store."""
    if record.commit.base is None or service.find_row(record.commit.base.run) is None:
        return None
    try:
        base = service.record(record.commit.base.run)
    except RequestRefused:  # it is gone, or cannot be read: this run's page is drawn without it
        return None
    return base if base.run.project == record.run.project else None
