"""Metrics that a gate or the curve needs and the program did not report: which ones, how to report them. Pure."""

import difflib
from collections.abc import Collection, Iterable
from typing import Literal

from gangline.spec.record import Record
from gangline.spec.run_flags import stage

ProgramForm = Literal["task", "joined", "other"]
"""What trains: a task, a program with Program or Session, or one with neither."""
JOINED = "joined"
"""Output of the train stage: whether the program wrote a result, which Program and Session do."""
_BY_FILE = 'write it to a JSON file and name that in line.toml: project.metrics = "metrics.json"'
_SHOWN = 12


def form_of(record: Record) -> ProgramForm:
    """Form of the run's program, from its line and train stage; `joined` if an old record does not say."""
    if record.inputs.values.get("project.task"):
        return "task"
    return "joined" if stage(record, "train").outputs.get(JOINED, True) else "other"


def missing_metric(wanted: str, reported: Collection[str], form: ProgramForm) -> str:
    """Sentence about a metric that was not reported."""
    near = difflib.get_close_matches(wanted, sorted(reported), n=1)
    meant = f", did you mean {near[0]}?" if near else ""
    first = sorted(reported)[:_SHOWN]
    more = f" and {len(reported) - _SHOWN} more" if len(reported) > _SHOWN else ""
    return (
        f"{wanted} was not reported; reported: {(', '.join(first) or 'nothing') + more}{meant}; to report it,"
        f" {how_to_report([wanted], form)}"
    )


def how_to_report(metrics: Iterable[str], form: ProgramForm, *, curve: bool = False) -> str:
    """What to write in the program so that `metrics`, and with `curve` its losses, are recorded."""
    arguments = ", ".join(f"{name}=..." if name.isidentifier() else f"**{{{name!r}: ...}}" for name in metrics)
    match form:
        case "task":
            return "return it from evaluate(model, batch) of the task"
        case "joined":
            steps = ["call program.step(loss=...) after each step, or session.step(optimizer)"] if curve else []
            calls = f"call program.report({arguments}) of a Program, session.report({arguments}) of a Session"
            ends = [f"{calls}, or let the library of a GanglineCallback evaluate it"] if arguments else []
            return "; ".join(steps + ends) + (f"; or {_BY_FILE}" if arguments else "")
        case "other":
            steps = ["program.step(loss=...) after each step"] if curve else []
            ends = [f"program.report({arguments})"] if arguments else []
            lines = "; ".join(["from gangline.train import Program; program = Program().start()", *steps, *ends])
            return lines + (f"; or {_BY_FILE}" if arguments else "")


def missing_metrics_text(metrics: Iterable[str], *, has_curve: bool, form: ProgramForm, is_all: bool = False) -> str:
    """Sentence about a program that succeeded without `metrics` or a curve; empty if it reported all.

    `is_all`: it reported nothing at all, and left no file that is kept.
    """
    names = list(metrics)
    wanted = ([] if has_curve else ["no loss for the curve"]) + [f"no {name}, which a gate judges" for name in names]
    if not wanted:
        return ""
    advice = how_to_report(names, form, curve=not has_curve)
    known = ", which is all that is known of it," if is_all else ""
    return f"the program ended with exit 0{known} and reported {' and '.join(wanted)}; {advice}"
