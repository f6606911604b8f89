"""Metrics that a gate or the curve needs and that the program did not report: which ones, and how to report them.

A run without base is another case: there the metric is known, but there is nothing to compare it with. Pure.
"""

import difflib
from collections.abc import Collection, Iterable
from typing import Literal

from gangline.spec.record import Record
from gangline.spec.run_flags import stage

Form = Literal["task", "joined", "other"]
"""What trains: a task, a program that joined its gang by Program or Session, or one that did neither."""
JOINED = "joined"
"""Output of the train stage: whether the program left a result, which Program and Session do."""
STEPS = "steps_told"
"""Output of the train stage: whether the program told of any step, by its result or by heartbeats of all ranks."""
_BY_FILE = 'write it to a JSON file and name that in line.toml: project.metrics = "metrics.json"'
_SHOWN = 12


def form_of(record: Record) -> Form:
    """As the line and the gang's result tell; a record that does not say is taken to have joined."""
    if record.inputs.values.get("project.task"):
        return "task"
    return "joined" if stage(record, "train").outputs.get(JOINED, True) else "other"


def reported_no_steps(record: Record) -> bool:
    """Did its training end well, and its program tell of no step?"""
    train = stage(record, "train")
    return train.state in ("done", "taken") and train.outputs.get(STEPS) is False


def missing_metric(wanted: str, reported: Collection[str], form: Form) -> str:
    """One sentence about a metric that no one reported."""
    near = difflib.get_close_matches(wanted, sorted(reported), n=1)
    meant = f", did you mean {near[0]}?" if near else ""
    return (
        f"no one reported {wanted}; reported: {_listed(reported)}{meant}; to report it, {how_to_report([wanted], form)}"
    )


def how_to_report(metrics: Iterable[str], form: Form, *, curve: bool = False) -> str:
    """What to write, and where, so that `metrics`, and losses for the curve, are in the record."""
    given = ", ".join(f"{name}=..." if name.isidentifier() else f"**{{{name!r}: ...}}" for name in metrics)
    match form:
        case "task":
            return "return it from evaluate(model, batch) of the task"
        case "joined":
            steps = ["call program.step(loss=...) after each step, or session.step(optimizer)"] if curve else []
            calls = f"call program.report({given}) of a Program, session.report({given}) of a Session"
            ends = [f"{calls}, or let the library of a GanglineCallback evaluate it"] if given else []
            return "; ".join(steps + ends) + (f"; or {_BY_FILE}" if given else "")
        case "other":
            steps = ["program.step(loss=...) after each step"] if curve else []
            ends = [f"program.report({given})"] if given else []
            said = "; ".join(["from gangline.train import Program; program = Program().start()", *steps, *ends])
            return said + (f"; or {_BY_FILE}" if given else "")


def missing_metrics_text(metrics: Iterable[str], *, has_curve: bool, form: Form) -> str:
    """One sentence about a program that ended well without `metrics` or a curve; empty: it reported all of it."""
    names = list(metrics)
    wanted = ([] if has_curve else ["no loss for the curve"]) + [f"no {name}, which a gate judges" for name in names]
    if not wanted:
        return ""
    works = how_to_report(names, form, curve=not has_curve)
    return f"the program ended with exit 0 and reported {' and '.join(wanted)}; {works}"


def _listed(names: Collection[str]) -> str:
    first = sorted(names)[:_SHOWN]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(first) or "nothing") + more
