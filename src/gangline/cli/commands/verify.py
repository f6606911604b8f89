"""`gangline verify`: is this what was signed?"""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import answer, columns
from gangline.cli.terminal import spinner
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import IntegrityError, UsageError, storage_errors
from gangline.line.results.verification import verify
from gangline.registry.version_checks import CheckResult


def command(
    target: Annotated[str, typer.Argument(help="MODEL/VERSION, MODEL@ALIAS, a run, a checkpoint key or a folder.")],
    *,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", metavar="FOLDER", help="Put the verified files of a version there; without a clone, for a server."
        ),
    ] = None,
    code: Annotated[
        Path | None, typer.Option("--code", metavar="FOLDER", help="Unpack the code of that version there; for --into.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Delete first what the folders of --into and --code hold."),
    ] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Check signature, digests, provenance and tag; exit 50 where one of them does not hold."""
    if into is None and (replace or code is not None):
        raise UsageError("--code and --replace are for --into, which says where the verified version goes")
    workspace = open_workspace(repo, site)
    with spinner("reading and checking every part"):
        checks = (
            verify(target, store=workspace.store, repo=workspace.repo, site=workspace.site, environ=workspace.environ)
            if into is None
            else _fetch(target, workspace, into, code, replace=replace)
        )
    is_whole = all(check.ok for check in checks)
    table = columns([("✓" if check.ok else "✗", check.name, check.text) for check in checks])
    answer({"target": target, "ok": is_whole, "checks": checks}, table, json=json)
    if not is_whole:
        raise typer.Exit(IntegrityError.exit_code)


def _fetch(
    target: str, workspace: Workspace, into: Path, code: Path | None, *, replace: bool
) -> tuple[CheckResult, ...]:
    from gangline.line.results.served_version import fetch_code, fetch_verified, find_version

    named = find_version(target, workspace.store)
    for folder in (into, code) if replace else ():
        if folder is not None and folder.exists():
            with storage_errors(folder):
                shutil.rmtree(folder)
    checks = fetch_verified(named, into, store=workspace.store, site=workspace.site, environ=workspace.environ)
    if code is not None and all(check.ok for check in checks):
        fetch_code(into, code, workspace.store)
    return checks
