"""Next commands: what a reader does after a run, at a terminal or in a comment, and after a comparison. Pure."""

import json
import re
from collections.abc import Sequence
from shlex import quote
from typing import Any

from gangline.errors import CancelledError, ConfigError, GateError, IntegrityError
from gangline.report.facts import verdict_word
from gangline.report.text import short
from gangline.spec.identity import ROLES
from gangline.spec.record import RETRAINED, Record
from gangline.spec.run_flags import reported_no_steps, stage

_METRIC = re.compile(r"[A-Za-z0-9_.@-]{1,60}")
"""Names of metrics that a command may hold."""


def next_steps(record: Record) -> list[str]:
    """Next commands at the terminal, by the class of the run's error."""
    run = record.run.id
    if record.run.state == "open":
        return [f"gangline follow {run}", "gangline run resumes it"]
    if record.run.verdict == "passed":
        drills = [] if reported_no_steps(record) else ["gangline drill kill-rank"]
        return ["gangline report --open", *_serving(record), *drills]
    if _unreported_gates(record):
        return ["report that metric, or name another in gate.quality", "gangline run for a new commit"]
    by_code = {
        ConfigError.exit_code: ["put it right", "gangline run for a new commit", "gangline run --again for this one"],
        GateError.exit_code: _explaining(record),
        CancelledError.exit_code: ["gangline run --again"],
        IntegrityError.exit_code: [f"gangline verify {run}", _report(record)],
    }
    return by_code.get(record.run.exit_code or 0, [*_explaining(record), "gangline run --again"])


def next_of_comment(record: Record) -> str:
    """The one command of a comment: it shows what a commit that passed changed, or why a run was refused or failed."""
    if record.run.verdict == "passed":
        return next(iter(_difference(record)), "")
    return _explaining(record)[0] if verdict_word(record) in ("refused", "failed") else ""


def bisection(metric: str, good: str, bad: str) -> str:
    """The search for the commit between `good` and `bad` that made `metric` worse."""
    return f"gangline bisect {quote(metric)} --good {short(good)} --bad {short(bad)}"


def _explaining(record: Record) -> list[str]:
    """Commands that show why a run was refused or failed, the most telling first."""
    if verdict_word(record) == "refused":
        judged = [] if _unreported_gates(record) else [*_search(record), *_difference(record)]
        return [*judged, _report(record)]
    of_ranks = any(record.stages[name].state == "failed" for name in ROLES if name in record.stages)
    return [*([f"gangline logs {record.run.id} --failed"] if of_ranks else []), _report(record)]


def _report(record: Record) -> str:
    return f"gangline report {record.run.id} --open"


def _serving(record: Record) -> list[str]:
    """The command that lets the published model answer, for a task or a handler."""
    model, values = stage(record, "publish").outputs.get("model"), record.inputs.values
    answers = model is not None and (values.get("project.task") or values.get("infer.handler"))
    return [f"gangline infer {model}"] if answers else []


def _refused_metrics(record: Record) -> list[str]:
    return [gate.name.removeprefix("quality:") for gate in record.gates if gate.verdict == "no" and ":" in gate.name]


def _unreported_gates(record: Record) -> bool:
    """Whether a gate refused because a metric was not reported, which no comparison explains."""
    return any(name not in record.metrics for name in _refused_metrics(record))


def _search(record: Record) -> list[str]:
    """The search for the commit that made the first refused metric worse; undeclared files are no commit's."""
    base, refused = record.commit.base, [name for name in _refused_metrics(record) if name in record.metrics]
    is_of_commit = all(event.kind != RETRAINED for event in record.events)
    if base is None or not refused or not is_of_commit or not _METRIC.fullmatch(refused[0]):
        return []
    return [bisection(refused[0], base.commit, record.commit.sha)]


def _difference(record: Record) -> list[str]:
    base = record.commit.base
    return [f"gangline diff {base.run} {record.run.id}"] if base else []


def next_of_comparison(
    base: Record, this: Record, *, worse: str | None, is_comparable: bool, needs_band: bool, missing: Sequence[str]
) -> str:
    """The next step after a comparison, or towards one.

    Args:
        base: Is compared with.
        this: Is judged.
        worse: Metric that a commit between them may have made worse.
        is_comparable: They were judged.
        needs_band: They have metrics in common, and nothing judges them.
        missing: Metrics that `base` was judged on and `this` lacks.
    """
    if worse:
        return bisection(worse, base.commit.sha, this.commit.sha)
    if is_comparable:
        return _report(this)
    return _way_to_compare(base, this, needs_band=needs_band, missing=missing)


def _way_to_compare(base: Record, this: Record, *, needs_band: bool, missing: Sequence[str]) -> str:
    """What must happen before the two can be compared."""
    if base.run.project != this.run.project or not base.metrics or not this.metrics:
        return f"gangline show {(base if not base.metrics else this).run.id}"
    if base.inputs.data != this.inputs.data:
        return _same_data(base, this)
    if needs_band:
        if not base.inputs.values.get("project.command"):
            return f"set evaluate.seeds = 3, then: gangline run --commit {short(base.commit.sha)} --again"
        works = "evaluate.seeds = 3 where the program reads its seed, else tolerance_percent in [[gate.quality]]"
        return f"set {works}, commit, then: gangline run; gangline diff"
    if missing:
        return f"report {missing[0]}, too, in one commit: its run has both names"
    return f"gangline show {this.run.id}"


def _same_data(base: Record, this: Record) -> str:
    """The base on the data of `this`, as far as a command gives it them."""
    names = ("data.text", "data.shards")
    again = f"gangline run --commit {short(base.commit.sha)}"
    other = [name for name in names if _list(base, name) != _list(this, name)]
    if any(str(text).startswith("repo:") for record in (base, this) for text in _list(record, "data.text")):
        return "each commit has data of its own; a limit in [[gate.quality]] judges without a base"
    if other:
        keys = " ".join(f"--set {quote(f'{name}={json.dumps(_list(this, name))}')}" for name in other)
        return f"the base on the data of this: {again} {keys}; then gangline diff with that run"
    return f"the base on the data of today: {again} --again"


def _list(record: Record, key: str) -> list[Any]:
    values = record.inputs.values.get(key)
    return list(values) if isinstance(values, (list, tuple)) else []
