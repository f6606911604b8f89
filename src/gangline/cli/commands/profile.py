"""`gangline profile`: a few steps of a running gang under the profiler, and what earlier windows found."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.commands.logs import read_ranks
from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.output import print_json, terminal_width
from gangline.cli.terminal import say, show_in_browser
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import storage_errors
from gangline.line.results.profiles import Profile, read_profiles, request_profile, trace_key, wait_for_profile
from gangline.report.profile import render_profile
from gangline.spec.gang.profiling import parse_window
from gangline.spec.model_picture import ModelPicture, picture_key
from gangline.spec.output_limits import MOST_PICTURE_BYTES, MOST_TRACE_BYTES
from gangline.spec.record import Record
from gangline.storage.objects.protocol import get_bounded
from gangline.storage.site_paths import home

WAIT_SECONDS = 900.0


def command(
    run: LastRunArgument = None,
    *,
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="A:B", help="Profile these steps of the gang that runs now.")
    ] = None,
    rank: Annotated[str, typer.Option("--rank", help="Ranks to profile, as 0,3,7.")] = "0",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for pages and whole traces.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the newest page in the browser.")] = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the answer.")] = WAIT_SECONDS,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Profile steps of a run while it trains, or show the windows that were profiled.

    The picture of the model is written too, with how the plan cuts its weights. A window that is over already begins at
    once. The ranks answer when it is done; their files reach the store within half a minute.
    """
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    profiles = (_ask(workspace, record, steps, rank, wait),) if steps else read_profiles(workspace.store, record)
    if json:
        print_json([{"steps": each.name, "ranks": each.summaries} for each in profiles])
        return
    folder = out or home(workspace.repo) / "reports" / f"{record.run.id}-profile"
    if model := _draw_model(workspace, record, folder):
        say(f"the model, and how the plan cuts it: {model}")
    if not profiles:
        say(f"no window of {record.run.id} was profiled; while it trains: --steps A:B", err=True)
        return
    pages = [_write(workspace, record, each, folder, with_traces=out is not None) for each in profiles]
    width = terminal_width()
    for profile, page in zip(profiles, pages, strict=True):
        say(f"{render_profile(profile.name, profile.summaries, width=width)}\n\n{page}\n")
    if open_:
        show_in_browser(pages[-1].resolve())


def _ask(workspace: Workspace, record: Record, steps: str, rank: str, wait: float) -> Profile:
    first, last = parse_window(steps)
    request = request_profile(workspace.store, record, first=first, last=last, ranks=read_ranks(rank))

    def tell(there: int, wanted: int) -> None:
        say(f"steps {first} to {last}: {there} of {wanted} ranks have answered", err=True)

    return wait_for_profile(workspace.store, record, request, seconds=wait, on_progress=tell)


def _draw_model(workspace: Workspace, record: Record, folder: Path) -> Path | None:
    """The page of the model; None: the run has drawn none yet, as a program without torch never does."""
    blob = get_bounded(workspace.store, picture_key(record.gang_prefix), most_bytes=MOST_PICTURE_BYTES)
    if blob is None:
        return None
    from gangline.report.model_page import render_model_page

    page = folder / "model.html"
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        page.write_text(render_model_page(record.run.id, ModelPicture.from_json(blob.data)), "utf-8")
    return page


def _write(workspace: Workspace, record: Record, profile: Profile, folder: Path, *, with_traces: bool) -> Path:
    """Write the page of one window, and its traces next to it if requested."""
    from gangline.report.profile import render_profile_page

    keys = {summary.rank: key for summary in profile.summaries if (key := trace_key(profile, summary))}
    links = keys
    page = folder / f"{profile.name}.html"
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if with_traces:
            links = {rank: _fetch(workspace, key, folder / profile.name) for rank, key in keys.items()}
        page.write_text(render_profile_page(record.run.id, profile.name, profile.summaries, links), "utf-8")
    return page


def _fetch(workspace: Workspace, key: str, folder: Path) -> str:
    """Download a trace; returns its path relative to the page."""
    folder.mkdir(parents=True, exist_ok=True)
    name = key.rsplit("/", 1)[-1]
    blob = get_bounded(workspace.store, key, most_bytes=MOST_TRACE_BYTES)
    if blob is None:
        return f"{name} is no longer in the store"
    (folder / name).write_bytes(blob.data)
    return f"{folder.name}/{name}"
