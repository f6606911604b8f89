"""`gangline logs`: what ranks wrote, from the gang while it is there, else from the store."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.terminal import say
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import UsageError
from gangline.launch.protocol import Launcher, LogLine
from gangline.line.gangs.launchers import open_launcher
from gangline.line.gangs.logs import gang_of_role, lines_left, parse_since
from gangline.line.record.joined_workers import read_joined
from gangline.line.request.targets import site_of, with_target
from gangline.report.text import visible
from gangline.sanitize import to_json
from gangline.spec.record import Record


def command(
    run: LastRunArgument = None,
    *,
    rank: Annotated[str | None, typer.Option("--rank", help="Ranks to show, as 3,7; rank 0 by default.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all ranks.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Show the rank that failed first.")] = False,
    since: Annotated[str | None, typer.Option("--since", help="Show only the last while, as 90s, 5m, 2h.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue while the gang runs.")] = False,
    role: Annotated[str, typer.Option("--role", help="Role of the gang: train, evaluate, prove or seed-2.")] = "train",
    worker: Annotated[
        int | None, typer.Option("--worker", help="Worker of a parameter server, from 1; also one that joined.")
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Print the logs of a run's ranks, each line behind `r03│`."""
    if sum((rank is not None, every, failed)) > 1:
        raise UsageError("wanted one of --rank, --all and --failed, found more; leave the others out")
    role = role if worker is None else f"worker-{worker}"
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    joined = None if worker is None else read_joined(workspace.store, record, worker)
    there = site_of(record, workspace.site) if joined is None else with_target(workspace.site, joined.target)
    launcher = open_launcher(workspace.repo, site=there, environ=workspace.environ, store=workspace.store)
    gang = gang_of_role(record, role, joined=() if joined is None else (joined.worker,))
    ranks = _failed_rank(launcher, record, gang) if failed else None if every else read_ranks(rank)
    since_seconds = parse_since(since)
    try:
        log_lines = launcher.logs(gang, ranks=ranks, since_seconds=since_seconds, follow=follow)
        lines: Iterable[LogLine] = chain([first], log_lines) if (first := next(log_lines, None)) is not None else ()
    except UsageError as error:
        if joined is not None:
            error = UsageError(f"{error}; worker {worker} joined from {joined.host}, and the site there has its log")
        lines = _left(workspace, record, role, ranks=ranks, unknown=error)
    width = len(str(max(record.plan.world_size - 1, 10))) if record.plan else 2
    line = None
    for line in lines:
        if json:
            say(to_json({"rank": line.rank, "source": line.source, "text": line.text}))
        else:
            say(f"r{line.rank:0{width}d}│ {visible(line.text)}")
    if line is None:
        say(f"no line of these ranks yet; gangline show {record.run.id} shows the state of the run", err=True)


def _left(
    workspace: Workspace, record: Record, role: str, *, ranks: Sequence[int] | None, unknown: UsageError
) -> Iterable[LogLine]:
    """Stored log lines of a swept gang; raises `unknown` if there are none."""
    lines = lines_left(workspace.store, record, role, ranks=ranks)
    first = next(lines, None)
    if first is None:
        raise unknown
    return chain([first], lines)


def read_ranks(text: str | None) -> tuple[int, ...]:
    """Ranks of `--rank`, such as "3,7"; rank 0 where it is not given. Raises UsageError for any other text."""
    if text is None:
        return (0,)
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"wanted ranks such as 3,7, found --rank {text}") from error


def _failed_rank(launcher: Launcher, record: Record, gang: str) -> tuple[int, ...]:
    try:
        culprit = launcher.collect(gang).culprit
    except UsageError as error:
        raise UsageError(f"{error}; which rank failed first went with it: --all prints what each one left") from error
    if culprit is None:
        raise UsageError(f"no rank of {record.run.id} failed; leave --failed out, or use --all")
    return (culprit,)
