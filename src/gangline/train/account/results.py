"""Results of a gang: its loss curve and `result.json`, both written by rank 0. No torch.

`metrics` is the file of the curve, which only rank 0 of a gang has; without it nothing is read or written.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from gangline.spec.codec import canonical
from gangline.spec.gang.status import GangResult, JobResult
from gangline.storage.folder.durable_files import sync_folder, write_synced
from gangline.train.account.event_log import LineFile

METRICS = "metrics.jsonl"
"""One JSON line a step; a line of an earlier step replaces all lines from that step on."""
MAX_LOSSES = 4096


def losses_of(metrics: LineFile | None, *, seed: int, job: int | None) -> tuple[tuple[int, float], ...]:
    """Loss by step of one training, thinned; of a repeated step the last generation's counts."""
    if metrics is None:
        return ()
    metrics.flush()
    lines = map(json.loads, metrics.path.read_text().splitlines())
    found: list[tuple[int, float | None]] = []
    for line in lines:
        if line["job"] == job and line["seed"] == seed:
            while found and found[-1][0] >= line["step"]:
                found.pop()
            found.append((line["step"], line["loss"]))
    return thin([(step, loss) for step, loss in found if loss is not None])


def thin(losses: Sequence[tuple[int, float]], most: int = MAX_LOSSES) -> tuple[tuple[int, float], ...]:
    """All of `losses` if there are at most `most`; else `most` of them, evenly, with the first and the last."""
    if len(losses) <= most:
        return tuple(losses)
    return tuple(losses[index * (len(losses) - 1) // (most - 1)] for index in range(most))


def _with_numbers_only(job: JobResult) -> JobResult:
    wild = {name: str(value) for name, value in job.metrics.items() if not isfinite(value)}
    metrics = {name: value for name, value in job.metrics.items() if name not in wild}
    evaluations = tuple(
        replace(evaluation, metrics={name: value for name, value in evaluation.metrics.items() if isfinite(value)})
        for evaluation in job.evaluations
    )
    return replace(job, metrics=metrics, not_finite=wild, evaluations=evaluations)


def write_result(metrics: LineFile | None, result: GangResult) -> None:
    """Durable when it returns."""
    if metrics is None:
        return
    path = metrics.path.with_name("result.json")
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    jobs = tuple(_with_numbers_only(job) for job in result.jobs)
    write_synced(part, canonical(replace(result, jobs=jobs)))
    part.replace(path)
    sync_folder(path.parent)
