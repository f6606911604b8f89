"""`gangline run`: run all stages of a commit, or the remaining ones."""

import sys
from typing import Annotated, cast, get_args

import typer

from gangline.cli.background_driver import start_driver
from gangline.cli.options import (
    HERE,
    AgainOption,
    CommitOption,
    JsonOption,
    PathArgument,
    RepoOption,
    SetOption,
    SiteOption,
    StrategyOption,
)
from gangline.cli.origin_options import BranchOption, PullRequestOption, TrustOption, origin_of
from gangline.cli.output import answer
from gangline.cli.view.run_view import attended_view, choose_view
from gangline.cli.workspace import open_workspace
from gangline.errors import UsageError
from gangline.line.record.observer import Observer, ObserverRelay
from gangline.line.request.targets import parse_target, with_target
from gangline.line.results.profiles import write_profile_request
from gangline.line.stages.run_line import RunArguments, run_line
from gangline.spec.config.site import Site
from gangline.spec.gang.profiling import parse_window
from gangline.spec.launchers import Driving
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore


class ProfileRequester(ObserverRelay):
    """Asks an open run for a profile."""

    def __init__(self, inner: Observer, store: ObjectStore, window: tuple[int, int]) -> None:
        super().__init__(inner)
        self._store, self._window = store, window

    def run_started(self, record: Record) -> None:
        super().run_started(record)
        if record.run.state == "open":
            first, last = self._window
            write_profile_request(self._store, record, first=first, last=last, ranks=(0,))


_TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Place where ranks run: local, kubernetes; kfp-local and kfp run them there, driven by a pipeline.",
        show_default="the site's",
    ),
]


def command(
    path: PathArgument = HERE,
    *,
    commit: CommitOption = None,
    set_: SetOption = None,
    strategy: StrategyOption = None,
    again: AgainOption = False,
    start: Annotated[str | None, typer.Option("--from", help="First stage to run; earlier ones must be done.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last stage to run.")] = None,
    target: _TargetOption = None,
    driver: Annotated[
        str | None,
        typer.Option("--driver", help="Caller of the stages: here, kfp-local or kfp.", show_default="the target's"),
    ] = None,
    branch: BranchOption = None,
    pull_request: PullRequestOption = None,
    trust: TrustOption = "own",
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="A:B", help="Profile these steps on rank 0.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Drive it in the background and return.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Take a commit through all stages; called again, resume it.

    Ctrl-C stops a gang of this machine with a checkpoint, a second one leaves at once; a cluster's gang keeps running.
    SIGTERM leaves every gang running.
    """
    workspace = open_workspace(repo / path, site)
    there = with_target(workspace.site, target)
    driving = who_drives(driver, there)
    if detach:
        _detach(json=json)
        return
    asked: RunArguments = {
        "commit": commit, "overrides": tuple(set_ or ()), "again": again, "strategy": strategy, "start": start,
        "until": until, "origin": origin_of(branch, pull_request, trust),
    }  # fmt: skip
    window = parse_window(profile) if profile else None
    with attended_view(choose_view(json=json)) as view:
        observer = ProfileRequester(view, workspace.store, window) if window else view
        if driving == "here":
            run_line(
                workspace.repo, site=workspace.site, environ=workspace.environ, target=target,
                observer=observer, **asked,
            )  # fmt: skip
        else:
            from gangline.kfp.driver import drive

            ranks_at = parse_target(target)[0] if target else None
            drive(
                workspace.repo, driving=driving, site=there, environ=workspace.environ, ranks_at=ranks_at,
                observer=observer, **asked,
            )  # fmt: skip


def who_drives(driver: str | None, site: Site) -> Driving:
    """What `--driver` says, else what the target means.

    Raises:
        UsageError: An unknown driver.
    """
    if driver is None:
        return parse_target(site.launch.target)[1]
    if driver not in get_args(Driving):
        raise UsageError(f"wanted one of {', '.join(get_args(Driving))}, found --driver {driver}")
    return cast(Driving, driver)


def _detach(*, json: bool) -> None:
    """The same command once more, as it was typed, in the background."""
    typed = sys.argv[sys.argv.index("run") + 1 :]
    driver = start_driver([argument for argument in typed if argument not in ("--detach", "--json")])
    text = f"{driver.run} in the background: gangline follow {driver.run} · stop: gangline cancel {driver.run}"
    answer({"run": driver.run, "pid": driver.process.pid, "log": str(driver.log)}, text, json=json)
