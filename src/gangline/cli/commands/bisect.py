"""`gangline bisect`: the commit that made a metric worse, by records first and short trainings where they end."""

from typing import Annotated

import typer

from gangline.bisect.bisection import BisectForecast, Bisection, BisectRequest, prepare, read_culprit
from gangline.cli.budget import YesOption, budget_hours, confirm_cost, hours_text
from gangline.cli.options import HERE, FormatOption, JsonOption, OutOption, RepoOption, SiteOption, TargetOption
from gangline.cli.output import print_json, print_or_write, terminal_width
from gangline.cli.terminal import say
from gangline.cli.view.bisect_view import BisectView
from gangline.cli.view.comparison_page import require_format
from gangline.cli.workspace import open_workspace
from gangline.errors import GateError, UsageError
from gangline.git.repository import Repository
from gangline.line.gangs.follow import Interrupted
from gangline.line.run import driver
from gangline.line.run.sigterm import exit_on_sigterm
from gangline.report.bisection.text import Culprit, render_bisection
from gangline.spec.bisect import BisectState


def command(
    metric: Annotated[
        str, typer.Argument(help="Metric to judge by: loss, eval_loss, ...; loss@500 measures at a step.")
    ],
    good: Annotated[str, typer.Option("--good", help="Commit, branch, tag or run where it was good.")],
    *,
    bad: Annotated[str, typer.Option("--bad", help="Commit, branch, tag or run where it is bad.")] = "HEAD",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of trainings of each end at first.")] = 3,
    error: Annotated[float, typer.Option("--error", help="Chance of a wrong answer that you accept.")] = 0.05,
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="Most that trainings may cost: 2 or 2h (of GPUs, else cores), 30EUR."),
    ] = None,
    yes: YesOption = False,
    target: TargetOption = None,
    format_: FormatOption = "text",
    out: OutOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Halve the history between GOOD and BAD until one commit is left; called again, resume the search.

    Records answer first; then commits are trained, only to where the courses of both ends part, with as many seeds as
    it takes. Exit 60: the budget is spent, or the bad end is not worse.
    """
    require_format(format_)
    if not 0 < error < 0.5:
        raise UsageError(f"wanted --error between 0 and 0.5, found {error:g}; 0.05 is wrong once in twenty")
    workspace = open_workspace(repo, site)
    view = BisectView(quiet=json)
    here = driver.open_run_workspace(workspace.repo, site=workspace.site, environ=workspace.environ, observer=view)
    asked = BisectRequest(
        metric=metric, good=good, bad=bad, seeds=seeds, error=error, target=target,
        budget_hours=None if budget is None else budget_hours(budget, workspace.site),
    )  # fmt: skip
    search = prepare(here, asked)
    _agree(search, asked, yes=yes)
    state = _run(search, view)
    culprit = read_culprit(Repository.at(workspace.repo), state)
    if json:
        print_json(state)
    else:
        print_or_write(_render(state, culprit, format_), out)
    if state.ending in {"budget", "same", "unfit"}:
        raise typer.Exit(GateError.exit_code)


def _run(search: Bisection, view: BisectView) -> BisectState:
    """Run it to its end; an interrupt prints how to continue."""
    again = f"the same command resumes {search.state.id}"
    try:
        with exit_on_sigterm():
            return search.run(tell=view.tell)
    except Interrupted as error:
        raise Interrupted(f"stopped by Ctrl-C; {again}") from error
    except (KeyboardInterrupt, SystemExit):
        say(f"interrupted: {again}", err=True)
        raise


def _agree(search: Bisection, asked: BisectRequest, *, yes: bool) -> None:
    """Print the expected cost; without a budget the user has to confirm it."""
    forecast, state = search.forecast, search.state
    if state.ending not in {None, "budget"} or not forecast.trainings:
        return
    unit = state.resource.upper()
    cost = "cost not known before the first" if forecast.hours is None else f"about {hours_text(forecast.hours, unit)}"
    where = f"step {state.at:,} of {state.steps:,}" if state.at < state.steps else "the end"
    limit = "" if asked.budget_hours is None else f", at most {hours_text(asked.budget_hours, unit)}"
    say(f"{len(state.suspects)} commits · {_trainings(forecast)} to {where} · {cost}{limit} · {state.id}", err=True)
    if not yes and asked.budget_hours is None:
        confirm_cost()


def _trainings(forecast: BisectForecast) -> str:
    """`about 6 to 10 trainings, up to 46 where values are noisy,`: how many seeds a commit takes is seen later."""
    low, high = forecast.least, forecast.trainings
    about = f"{low} to {high}" if low < high else str(high)
    return f"about {about} trainings, up to {forecast.most} where values are noisy,"


def _render(state: BisectState, culprit: Culprit | None, format_: str) -> str:
    if format_ == "markdown":
        from gangline.report.bisection.pages import render_markdown_bisection

        return render_markdown_bisection(state, culprit)
    if format_ == "html":
        from gangline.report.bisection.pages import render_html_bisection

        return render_html_bisection(state, culprit)
    return render_bisection(state, culprit, width=terminal_width()) + "\n"
