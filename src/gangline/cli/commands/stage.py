"""`gangline stage`: one stage of one run, for drivers that call stage by stage; checks a Jenkins workspace."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from gangline.cli.options import HERE, AgainOption, CommitOption, JsonOption, RepoOption, SetOption, SiteOption
from gangline.cli.origin_options import BranchOption, PullRequestOption, TrustOption, origin_of
from gangline.cli.output import print_json
from gangline.cli.terminal import say
from gangline.cli.view.run_view import attended_view, choose_view
from gangline.cli.workspace import open_workspace
from gangline.errors import ConfigError, UsageError
from gangline.git.repository import Repository
from gangline.line.request.targets import launcher_of
from gangline.line.stages.run_line import resolve_run
from gangline.line.stages.run_stage import run_stage
from gangline.spec.config.grammar import URL
from gangline.spec.config.site import Site
from gangline.spec.record import STAGES, Record
from gangline.storage import site_paths

_SECOND_WORKSPACE = re.compile(r"@[0-9]+")


def check_jenkins_workspace(repo: Path, site: Site, environ: Mapping[str, str]) -> None:
    """Jenkins names the workspace in WORKSPACE; without it there is nothing to say.

    Raises:
        ConfigError: The store lies in it, or it is a second workspace of the branch, whose gangs are not found again.
    """
    if not (name := environ.get("WORKSPACE")):
        return
    workspace = Path(name).resolve()
    if launcher_of(site.launch.target).is_here and _SECOND_WORKSPACE.search(workspace.name):
        raise ConfigError(
            f"wanted the one workspace of this branch, found {workspace.name}, made for a second build at"
            " the same time: gangs of this machine are found only where they were started; give the agent one executor,"
            " as jenkins/plain/agent.yaml does"
        )
    url = site_paths.store_url(repo, site)
    if url.startswith("file:") and Path(url.removeprefix("file:")).is_relative_to(workspace):
        raise ConfigError(
            f"store.url: wanted a store that outlives the workspace, found {url} in {workspace}, which Jenkins"
            " discards; set store.url in site.toml to a folder elsewhere, as file:/srv/gangline/store, or to s3://BUCKET"
        )


def require_commit(repo: Path, record: Record) -> None:
    """A stage of an open run reads its commit; begun without it, the stage would fail and end the run.

    Raises:
        UsageError: No repository is here, or it lacks the commit.
    """
    if record.run.state == "open" and not (repository := Repository.at(repo)).has(record.commit.sha):
        raise UsageError(
            f"wanted commit {record.commit.sha} of {record.run.id} in {repository.root}, found none; fetch it first"
        )


def command(
    name: Annotated[str, typer.Argument(help="Stage to run, one of " + ", ".join(STAGES) + ".", metavar="NAME")],
    *,
    run: Annotated[str | None, typer.Option("--run", help="Run id; `resolve` makes it and prints it.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0, help="Exit with 75 after so many seconds; call again.")
    ] = None,
    commit: CommitOption = None,
    set_: SetOption = None,
    again: AgainOption = False,
    pushed: Annotated[
        bool,
        typer.Option(
            "--pushed",
            help="Let `resolve` make a run only if [trigger] starts one; it prints `not triggered: WHY` if not.",
        ),
    ] = False,
    branch: BranchOption = None,
    pull_request: PullRequestOption = None,
    trust: TrustOption = "own",
    driver: Annotated[
        Literal["stage", "jenkins"], typer.Option("--driver", help="Name of the caller, for the record.")
    ] = "stage",
    url: Annotated[str | None, typer.Option("--url", help="Page of the caller, for the record's links.")] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Run one stage and exit with its code; a stage that is done already says so and does nothing."""
    if name not in STAGES:
        raise UsageError(f"wanted a stage, found {name!r}; stages are {', '.join(STAGES)}")
    if run is None and name != "resolve":
        raise UsageError(f"stage {name} needs --run ID; gangline stage resolve prints one")
    if (again or pushed) and (name != "resolve" or run is not None):
        raise UsageError("--again and --pushed are options of gangline stage resolve, without --run")
    if url is not None and not URL.fullmatch(url):
        raise UsageError(f"wanted --url of http or https, found {url!r}")
    workspace = open_workspace(repo, site)
    if driver == "jenkins":
        check_jenkins_workspace(workspace.repo, workspace.site, workspace.environ)
    with attended_view(choose_view(json=json)) as view:
        if run is None:
            found = resolve_run(
                workspace.repo, site=workspace.site, environ=workspace.environ, commit=commit,
                overrides=tuple(set_ or ()), again=again, pushed=pushed,
                origin=origin_of(branch, pull_request, trust), observer=view,
            )  # fmt: skip
            if isinstance(found, str) and json:
                print_json({"not_triggered": found})
            said = f"not triggered: {found}" if isinstance(found, str) else found.run.id
        else:
            record = workspace.run(run)
            said = record.run.id
            require_commit(workspace.repo, record)
            run_stage(
                workspace.repo, name, said, site=workspace.site, environ=workspace.environ, observer=view,
                max_seconds=max_seconds, follow_seconds=max_seconds, kind=driver, url=url,
            )  # fmt: skip
    if name == "resolve" and not json:
        say(said)
