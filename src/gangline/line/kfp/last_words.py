"""Why a pipeline ended before its run did: the stage that is open, and what its task wrote last."""

from collections.abc import Iterable

from gangline.line.kfp.client import Client, FailedTask, PipelineRun
from gangline.line.states import FINAL, stage
from gangline.line.strangers import clean
from gangline.spec.record import STAGES, Record

MOST_LOGS = 8
_ERROR = "error: "
_MOST_LETTERS = 300


def last_words(client: Client, record: Record, ended: PipelineRun) -> str:
    """One clause: the first stage that has not ended, and the end of its task's log."""
    name = next((each for each in STAGES[2:] if stage(record, each).state not in FINAL), STAGES[-1])
    logs = (client.log(ended.id, node) for node in _nodes(ended.failed, name)[:MOST_LOGS])
    said = next(filter(None, map(_end, logs)), "")
    return f"stage {name} did not end" + (f": {said}" if said else ", and the server has no log of its task")


def _nodes(failed: tuple[FailedTask, ...], name: str) -> list[str]:
    """Failed tasks, those that stage `name` consists of first."""
    within = {child for task in failed if task.name == name for child in (task.node, *task.children)}
    while more := set(_children(failed, within)) - within:
        within |= more
    nodes = dict.fromkeys(task.node for task in failed if task.node)
    return sorted(nodes, key=lambda node: node not in within)


def _children(failed: tuple[FailedTask, ...], within: set[str]) -> Iterable[str]:
    return (child for task in failed if task.node in within for child in task.children)


def _end(log: str) -> str:
    """The error that a stage ended with, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(_ERROR)]
    return clean((errors or lines or [""])[-1].removeprefix(_ERROR), limit=_MOST_LETTERS)
