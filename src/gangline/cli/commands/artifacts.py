"""`gangline artifacts`: what a run left, and how to have it here."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.output import answer, columns, print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import UsageError
from gangline.registry.run_artifacts import fetch_artifacts, list_artifacts, select_artifacts
from gangline.spec.globs import matches
from gangline.storage.objects.paths import is_of_git
from gangline.units import format_bytes


def command(
    run: LastRunArgument = None,
    *,
    get: Annotated[
        str | None, typer.Option("--get", metavar="PATTERN", help="Fetch the files of this path or glob: 'out/**'.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Folder for the files.", show_default="this folder")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Show only this kind: output, metrics, checkpoint or model.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace other files that are in the way.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """List what a run left, its program's outputs too; with --get fetch files, each verified by its digest."""
    if get is None and (to is not None or overwrite):
        raise UsageError("--to and --overwrite are for --get, which says what to fetch: --get 'out/**'")
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    items = [artifact for artifact in list_artifacts(workspace.store, record) if kind in (None, artifact.kind)]
    if get is None:
        rows = [
            (artifact.kind, format_bytes(artifact.size_bytes), artifact.sha256[:12], artifact.path)
            for artifact in items
        ]
        text = columns(rows) if rows else f"{record.run.id} left nothing yet"
        answer({"run": record.run.id, "artifacts": items}, text, json=json)
        return
    fetched = []
    for item, path in fetch_artifacts(workspace.store, select_artifacts(items, get), to or Path(), overwrite=overwrite):
        fetched.append({"path": str(path), "size_bytes": item.size_bytes, "sha256": item.sha256})
        if not json:
            say(f"{path}  {format_bytes(item.size_bytes)}  {item.sha256[:12]} as recorded")
    left_out = [artifact.path for artifact in items if matches(artifact.path, get) and is_of_git(artifact.path)]
    if json:
        print_json({"run": record.run.id, "fetched": fetched, "left_out": left_out})
    elif left_out:
        say(f"left out: {', '.join(left_out[:8])}: of a git folder, and git obeys what is in one")
