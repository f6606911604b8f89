"""Forges of a site, opened from its configuration; and which of them holds a project."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.forge.protocol import Forge
from gangline.http.address_check import Resolve, read_origin, system_resolve
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import ForgeTable, Site

if TYPE_CHECKING:
    from gangline.forge.client import RequestCounter

_PUBLIC = {"github": "https://api.github.com", "gitlab": "https://gitlab.com"}
_API = {"github": "/api/v3", "gitlab": "/api/v4", "gitea": "/api/v1"}
_ROOT_OF = {"https://api.github.com": "https://github.com"}
"""Base URL of pages and clones, if it is not the API's own server."""


def open_forges(
    site: Site,
    environ: Mapping[str, str],
    *,
    counted: "RequestCounter | None" = None,
    resolve: Resolve = system_resolve,
) -> dict[str, Forge]:
    """Open the forges of the site. Nothing is asked and no secret is read yet: calls read them, so they may change.

    Args:
        site: Names them.
        environ: For secret references.
        counted: Called for every request with the forge's name and ok, refused, limited or failed.
        resolve: Addresses of a name.

    Raises:
        ConfigError: A URL at which no forge may be.
    """
    return {name: _open(name, table, environ, counted=counted, resolve=resolve) for name, table in site.forge.items()}


def forge_of_project(site: Site, project: str) -> tuple[str, str] | None:
    """(forge, repository) of a project; None: no forge of this site holds it."""
    places = ((name, repo) for name, table in site.forge.items() for repo, p in table.projects.items() if p == project)
    return next(places, None)


def _open(
    name: str, table: ForgeTable, environ: Mapping[str, str], *, counted: "RequestCounter | None", resolve: Resolve
) -> Forge:
    try:
        from gangline.forge.client import ForgeClient
    except ImportError as error:
        raise ConfigError(f"forge.{name} needs urllib3; install it: pip install 'gangline[serve]'") from error
    from gangline.forge.github_compatible import Gitea, GitHub
    from gangline.forge.gitlab import GitLab

    api_url, root = _urls(name, table)
    origin = read_origin(api_url, key=f"forge.{name}.url", named_by_site=table.url is not None)
    api = ForgeClient(
        name=name, origin=origin, token_header=_token_header(table, environ), resolve=resolve, counted=counted
    )
    adapters: dict[str, Callable[..., Forge]] = {"github": GitHub, "gitlab": GitLab, "gitea": Gitea}
    return adapters[table.kind](name=name, api=api, root=root, secret=_hook_secret(name, table, environ))


def _urls(name: str, table: ForgeTable) -> tuple[str, str]:
    """URLs of the API, and of pages and clones; the site may name either."""
    url = (table.url or _PUBLIC.get(table.kind, "")).rstrip("/")
    if not url:
        raise ConfigError(
            f'forge.{name}.url: a {table.kind} has no public service; write url = "https://git.example.org"'
        )
    if url in _ROOT_OF:
        return url, _ROOT_OF[url]
    root = url.removesuffix(_API[table.kind])
    return root + _API[table.kind], root


def _token_header(table: ForgeTable, environ: Mapping[str, str]) -> Callable[[], Mapping[str, str]]:
    def header() -> Mapping[str, str]:
        if table.token is None:
            return {}
        token = resolve_secret(table.token, environ)
        forms = {"github": ("Authorization", f"Bearer {token}"), "gitea": ("Authorization", f"token {token}")}
        key, value = forms.get(table.kind, ("PRIVATE-TOKEN", token))
        return {key: value}

    return header


def _hook_secret(name: str, table: ForgeTable, environ: Mapping[str, str]) -> Callable[[], str]:
    def secret() -> str:
        if table.hook_secret is None:
            raise ConfigError(f"forge.{name}.hook_secret: wanted a reference to the webhook's secret, found none")
        return resolve_secret(table.hook_secret, environ)

    return secret
