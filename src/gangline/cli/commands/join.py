"""`gangline join`: one more worker for a run with a parameter server, at this site."""

from gangline.cli.options import HERE, JsonOption, RepoOption, RunArgument, SiteOption, TargetOption
from gangline.cli.view.run_view import JsonView, PlainView, attended_view
from gangline.cli.workspace import open_workspace
from gangline.line.request.targets import with_target
from gangline.line.stages.join_run import join_run


def command(
    run: RunArgument,
    *,
    target: TargetOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Add a worker of this site to a run with a parameter server, and follow it until every block is trained.

    The site needs the run's store and signing key, the repository its commit. Ctrl-C stops a worker of this machine,
    which sends what it has trained and gives the rest back; a worker of a cluster runs on. Called again after that,
    it follows the same worker.
    """
    workspace = open_workspace(repo, site)
    with attended_view(JsonView() if json else PlainView(), drives=False) as view:
        join_run(
            workspace.repo, run, site=with_target(workspace.site, target), environ=workspace.environ, observer=view
        )
