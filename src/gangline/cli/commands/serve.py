"""`gangline serve`: webhooks in, runs driven, an HTTP API and pages; until it is stopped."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import structlog
import typer

from gangline.cli.options import HERE, DatabaseOption, JsonOption, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import ConfigError
from gangline.spec.config.site import Site

if TYPE_CHECKING:
    from gangline.serve.startup import RunningService

log = structlog.get_logger()


def command(
    *,
    listen: Annotated[
        str | None, typer.Option("--listen", help="Listen on HOST:PORT in place of serve.listen.")
    ] = None,
    database: DatabaseOption = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of runs that are driven at the same time.")
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Serve webhooks, the API and the pages of a site. Ctrl-C stops it; runs that it started continue."""
    _require_packages()
    from gangline.serve.server import address_of, bind, serve_until_signal
    from gangline.serve.startup import open_service

    workspace = open_workspace(repo, site)
    with bind(_checked(listen or workspace.site.serve.listen)) as bound:
        wanted = _with_options(workspace.site, listen=address_of(bound), database=database, workers=workers)
        running = open_service(workspace.repo, site=wanted, environ=workspace.environ)
        try:
            running.start()
            _greet(running, as_json=json)
            serve_until_signal(running.app, bound, stopping=running.service.close, proxies=wanted.serve.proxies)
        finally:
            began = monotonic()
            running.close()
            log.info("stopped", seconds=round(monotonic() - began, 3))


def _require_packages() -> None:
    """Check the packages of the service, before anything starts."""
    for name in ("fastapi", "uvicorn"):
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(f"the service needs {name}, {error}; pip install 'gangline[serve]'") from error


def _with_options(site: Site, *, listen: str, database: str | None, workers: int | None) -> Site:
    return replace(
        site,
        serve=replace(
            site.serve,
            listen=listen,
            database=database or site.serve.database,
            workers=workers or site.serve.workers,
        ),
    )


def _checked(listen: str) -> str:
    """An address as site.toml would take it."""
    from gangline.spec.config.grammar import LISTEN

    if not LISTEN.fullmatch(listen):
        raise ConfigError(f"wanted HOST:PORT, found --listen {listen}; 127.0.0.1:8321 works")
    return listen


def _greet(running: "RunningService", *, as_json: bool) -> None:
    facts = _facts(running)
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for name, fact in facts.items():
        say(f"{name:<{width}}  {fact}")


def _facts(running: "RunningService") -> Mapping[str, str]:
    """Facts about a service that has just started, in the order in which they are printed."""
    context = running.context
    serve = context.site.serve
    url = (serve.public_url or f"http://{serve.listen}").rstrip("/")
    facts = {"pages": f"{url}/runs"}
    if running.local is not None:
        code = running.service.links.make(running.local.digest)
        facts["log in"] = f"http://{serve.listen}/login?once={code}   (once, within 10 minutes)"
        facts["token"] = f"{context.home / 'local-token'}   (of this machine's administrator)"
    else:
        facts["log in"] = f"{url}/login   with a token of {serve.tokens or 'gangline token add'}"
    facts["store"] = context.store.url
    facts["database"] = _without_password(serve.database) if serve.database else str(context.home / "serve.db")
    facts["builds"] = _forges(context.site)
    facts["workers"] = str(serve.workers)
    return facts


def _forges(site: Site) -> str:
    own = [f"{name} ({table.kind}): {', '.join(sorted(table.projects))}" for name, table in site.forge.items()]
    here = [f"this machine: {', '.join(sorted(site.serve.repositories))}"] if site.serve.repositories else []
    return "; ".join([*own, *here]) or "none; [forge.NAME] or serve.repositories of site.toml name repositories"


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]).geturl()
