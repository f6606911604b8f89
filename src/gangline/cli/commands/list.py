"""`gangline list`: runs, newest first."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import answer, columns, dash
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.line.record.runs import list_runs
from gangline.report.facts import headline, plan_words, total_seconds, verdict_reason, verdict_text, verdict_word
from gangline.report.text import clean
from gangline.spec.record import Record
from gangline.spec.run_flags import flags_of
from gangline.units import format_number, format_seconds

LONGEST = 300
"""Characters of a reason why a record could not be read."""
HEADER = ("RUN", "VERDICT", "BRANCH", "PLAN", "METRIC", "TIME", "CREATED", "SUBJECT")


def command(
    *,
    branch: Annotated[str | None, typer.Option("--branch", help="Show only runs of this branch.")] = None,
    commit: Annotated[
        str | None, typer.Option("--commit", help="Show only runs of this commit, or of the beginning of one.")
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option("--verdict", help="Show only runs of this verdict: passed, refused, failed, cancelled or open."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most so many runs.")] = 30,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """List the runs of this store, newest first."""
    workspace = open_workspace(repo, site)
    refused: list[str] = []
    runs = list_runs(workspace.store, commit=commit, on_refused=lambda key, error: refused.append(f"{key}: {error}"))
    records = sorted(runs, key=lambda record: record.run.created, reverse=True)
    _tell_refused(refused)
    wanted = (r for r in records if branch in (None, r.commit.branch) and verdict in (None, verdict_word(r)))
    chosen = list(islice(wanted, limit))
    absent = "no run here matches; gangline run makes one" if records else "no runs yet; gangline run makes one"
    table = columns([HEADER, *map(_row, chosen)], last=50)
    answer([_summary(record) for record in chosen], table if chosen else absent, json=json)


def _tell_refused(refused: Sequence[str]) -> None:
    """One line on stderr about records that cannot be read."""
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        count = f"{len(refused)} record{'s' if len(refused) > 1 else ''}"
        say(clean(f"{count} could not be read: {refused[0][:LONGEST]}{more}", 2 * LONGEST), err=True)


def _row(record: Record) -> tuple[str, ...]:
    judged = headline(record)
    metric = f"{judged.name} {format_number(judged.metric.value)}" if judged else "-"
    spent = format_seconds(total_seconds(record))
    created = record.run.created[:16].replace("T", " ")
    verdict = " · ".join((verdict_text(record), *flags_of(record)))
    return (
        record.run.id, verdict, dash(record.commit.branch), dash(plan_words(record)), metric, spent,
        created, record.commit.subject,
    )  # fmt: skip


def _summary(record: Record) -> dict[str, object]:
    return {
        "run": record.run.id,
        "verdict": verdict_word(record),
        "marks": list(flags_of(record)),
        "verdict_text": verdict_text(record),
        "reason": verdict_reason(record),
        "exit_code": record.run.exit_code,
        "commit": record.commit.sha,
        "branch": record.commit.branch,
        "subject": record.commit.subject,
        "plan": record.plan.name if record.plan else None,
        "metrics": {name: metric.value for name, metric in record.metrics.items()},
        "seconds": round(total_seconds(record), 3),
        "created": record.run.created,
        "prefix": record.prefix,
    }
