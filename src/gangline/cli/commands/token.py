"""`gangline token`: who may call the service; only digests of tokens are kept."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from gangline.cli.options import HERE, DatabaseOption, JsonOption, RepoOption, SiteOption, command_group
from gangline.cli.output import answer, columns, dash
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gangline.serve.database.tokens import Tokens
    from gangline.serve.database.types import Principal

app = command_group("Give, list and end tokens of the service.")


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="User of the token, which records name as the requester.")],
    *,
    role: Annotated[
        list[str],
        typer.Option(
            "--role", metavar="PROJECT=ROLE", help="Role and projects: reader, runner, maintainer or admin; * is all."
        ),
    ],
    days: Annotated[float | None, typer.Option("--days", help="Days until the token ends.")] = None,
    digest_only: Annotated[
        bool, typer.Option("--file", help="Keep nothing: print a [[token]] table for the file of serve.tokens.")
    ] = False,
    database: DatabaseOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token and print it, this once."""
    from gangline.serve.context.accounts import digest_of, new_token

    principal, token = _principal(name, role), new_token()
    digest = digest_of(token)
    if digest_only:
        say(_table(principal, digest))
        say(f"token {token}", err=True)
        return
    now = time.time()
    with _tokens(repo, site, database) as tokens:
        tokens.add(digest=digest, principal=principal, expires=now + days * 86400 if days else None, now=now)
    answer({"name": name, "token": token, "digest": digest[:8]}, token, json=json)


@app.command("list")
def list_(
    *, database: DatabaseOption = None, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False
) -> None:
    """List tokens by the first 8 letters of their digest."""
    with _tokens(repo, site, database) as tokens:
        found = tokens.list()
    plain = [{"digest": d, "name": p.name, "roles": p.roles, "expires": end} for d, p, end in found]
    rows = [(d, p.name, dash(_day(end)), _roles(p)) for d, p, end in found]
    table = columns([("DIGEST", "NAME", "ENDS", "ROLES"), *rows])
    answer(plain, table if rows else "no tokens yet; gangline token add NAME --role PROJECT=ROLE makes one", json=json)


@app.command()
def revoke(
    digest: Annotated[
        str, typer.Argument(help="First 8 or more letters of the digest, as gangline token list shows them.")
    ],
    *,
    database: DatabaseOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """End a token, at once and with all its sessions."""
    if len(digest) < 8 or set(digest) - set("0123456789abcdef"):
        raise UsageError(f"wanted 8 or more letters of a digest, found {digest!r}; gangline token list shows them")
    with _tokens(repo, site, database) as tokens:
        count = tokens.revoke(digest)
    if not count:
        raise UsageError(f"no token has a digest that begins with {digest}; gangline token list shows all")
    say(f"{count} ended")


@contextmanager
def _tokens(repo: "Path", site: "Path | None", database: str | None) -> Iterator["Tokens"]:
    """Tokens of the service's database; the service may be running."""
    from gangline.serve.context.home import ServiceHome
    from gangline.serve.database.open import open_database

    workspace = open_workspace(repo, site)
    home = ServiceHome.of(workspace.repo, workspace.site, workspace.environ)
    opened = open_database(database or workspace.site.serve.database or str(home.database))
    try:
        yield opened.tokens
    finally:
        opened.close()


def _principal(name: str, roles: list[str]) -> "Principal":
    from gangline.serve.database.types import Principal, Role

    pairs = [text.partition("=") for text in roles]
    wrong = [f"{project}={role}" for project, _, role in pairs if not project or role not in get_args(Role)]
    if wrong:
        raise UsageError(
            f"wanted --role PROJECT=ROLE with one of {', '.join(get_args(Role))}, found {', '.join(wrong)}"
        )
    return Principal(name=name, roles={project: cast(Role, role) for project, _, role in pairs})


def _table(principal: "Principal", digest: str) -> str:
    import json

    roles = ", ".join(f"{json.dumps(project)} = {json.dumps(role)}" for project, role in principal.roles.items())
    return f'[[token]]\nname = {json.dumps(principal.name)}\ndigest = "{digest}"\nroles = {{ {roles} }}'


def _roles(principal: "Principal") -> str:
    return " ".join(f"{project}={role}" for project, role in principal.roles.items())


def _day(end: float | None) -> str | None:
    return datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M") if end else None
