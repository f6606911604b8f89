"""`gangline plan`: what a line would get here and why, launching nothing."""

from typing import Annotated

import typer

from gangline.cli.desk import open_desk
from gangline.cli.options import HERE, CommitOption, JsonOption, PathArgument, SetOption, SiteOption, StrategyOption
from gangline.cli.output import columns, print_json
from gangline.cli.view.waiting import waiting
from gangline.errors import GateError
from gangline.line.preview import Preview, preview
from gangline.line.targets import with_target
from gangline.report.facts import MARKS
from gangline.report.text import step_time
from gangline.spec.plan import Candidate, Forecast
from gangline.units import format_bytes, format_count, format_seconds

HEADER = ("PLAN", "", "STEP", "MEMORY", "TIME", "WHY")


def command(
    path: PathArgument = HERE,
    *,
    commit: CommitOption = None,
    set_: SetOption = None,
    strategy: StrategyOption = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Where ranks run: local, kubernetes, kfp-local, kfp.", show_default="the site's"),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Where each number comes from, too.")] = False,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show the plans that were considered, the one that won, and a reason for every one that lost."""
    desk = open_desk(path, site)
    overrides = tuple(set_ or ())
    with waiting("looking at the model and at what there is to train on"):
        found = preview(
            desk.repo,
            site=with_target(desk.site, target),
            environ=desk.environ,
            commit=commit,
            overrides=overrides,
            strategy=strategy,
        )
    if json:
        print_json(_document(found))
    else:
        typer.echo(_page(found, why=why))
    if found.budget.verdict == "no":
        raise typer.Exit(GateError.exit_code)


def _page(found: Preview, *, why: bool) -> str:
    choice = found.choice
    rows = [HEADER, *(_row(candidate) for candidate in choice.candidates)]
    lines = [
        f"{found.run} · {_have(found)}",
        "",
        columns(rows, last=160),
        "",
        f"chosen    {choice.name}: {choice.reason}",
        f"          {choice.micro_batch} samples a rank and pass · {choice.precision} on {choice.device.upper()}",
        f"budget    {MARKS[found.budget.verdict]} {found.budget.reason}",
    ]
    if why:
        lines += [f"known     {c.name}: {c.forecast.origin}" for c in choice.candidates]
    return "\n".join(lines)


def _have(found: Preview) -> str:
    """What there is to train on, and how large the model is."""
    inventory = found.inventory
    gpus = inventory.gpus
    machine = f"{gpus.count} x {gpus.name or 'GPU'}" if gpus else f"{inventory.cores} cores"
    nodes = f"{inventory.num_nodes} nodes of " if inventory.num_nodes > 1 else ""
    parameters = found.choice.forecast.parameters
    model = f"{format_count(parameters)} parameters" if parameters is not None else "model size not known yet"
    return f"{nodes}{machine} · {model}"


def _row(candidate: Candidate) -> tuple[str, ...]:
    forecast = candidate.forecast
    mark = {"chosen": "✓ chosen", "runner_up": "runner-up"}.get(candidate.verdict, candidate.verdict.replace("_", " "))
    return (candidate.name, mark, *_numbers(forecast), candidate.reason)


def _numbers(forecast: Forecast) -> tuple[str, str, str]:
    """Step, memory, time; what is not known is a dash, never a guess."""
    return (
        step_time(forecast.step_seconds) if forecast.step_seconds is not None else "-",
        format_bytes(forecast.memory_bytes) if forecast.memory_bytes is not None else "-",
        format_seconds(forecast.wall_seconds) if forecast.wall_seconds is not None else "-",
    )


def _document(found: Preview) -> dict[str, object]:
    return {
        "run": found.run,
        "commit": found.question.commit,
        "choice": found.choice,
        "inventory": found.inventory,
        "profile": found.profile,
        "budget": found.budget,
    }
