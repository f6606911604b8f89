"""Kill of a rank to the end of its next step, by this runtime and by torchrun, with a device to take up again.

The comparison of `train/restart.py`, by as many ranks as there are devices here. Bound: a task takes at most 0.6 of
torchrun, a program of one's own no more than torchrun. A task in a fresh interpreter is shown.
"""

from figures import Report
from shapes import Shapes

PROGRAM = 1.0


def names(_: Shapes) -> tuple[str, ...]:
    return "task / torchrun", "program / torchrun"


def run(report: Report, shapes: Shapes) -> None:
    from restart import TARGET, measured, medians

    found = measured(shapes.rounds, device=shapes.device, ranks=shapes.restart_ranks)
    middle = medians(found)
    report.tell("seconds", {"rounds": found, "medians": middle, "ranks": shapes.restart_ranks})
    torchrun = middle["torchrun"]
    report.add("task / torchrun", middle["gangline task"] / torchrun, at_most=TARGET, source="torchrun in this run")
    ratio = middle["gangline program"] / torchrun
    report.add("program / torchrun", ratio, at_most=PROGRAM, source="torchrun in this run")
