"""`/api/v1/runs/{run}/metrics`: what was measured step by step, thinned to as many points as are wanted."""

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from gangline.errors import IntegrityError
from gangline.line.results.loss_curve import by_step, each_line
from gangline.metrics.step_table import StepTable, finite
from gangline.serve.api.dependencies import ApiModel, RunPath, ServiceDep, problems
from gangline.serve.web.responses import RequestRefused
from gangline.spec.record import gang_prefix
from gangline.storage.objects.growing_file import find_growing_file

router = APIRouter(prefix="/api/v1/runs/{run}/metrics", tags=["run"])
MOST_BYTES = 64 * 1024 * 1024
MOST_STEPS = 300_000
"""Steps that a file of MOST_BYTES has, at 220 bytes a line."""
NAME = r"^[A-Za-z_][A-Za-z0-9_./-]{0,63}$"


class Points(ApiModel):
    """Columns of one length: `steps[i]` is the last step of share i, each value the mean of its share."""

    run: str
    steps: list[int]
    values: dict[str, list[float | None]]
    of: int = Field(description="Steps that were measured.")


@router.get("", responses=problems(404, 413, 503))
def get_metrics(
    service: ServiceDep,
    run: RunPath,
    *,
    name: Annotated[list[Annotated[str, Field(pattern=NAME)]] | None, Query(max_length=32)] = None,
    max_points: Annotated[int, Query(ge=1, le=5000)] = 500,
    seed: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
) -> Points:
    """Points of metrics.jsonl; of a running run, those that are in the store."""
    row = service.row(run)
    with service.store() as store:
        file = find_growing_file(store, f"{gang_prefix(row.prefix)}/metrics.jsonl")
        try:
            if file is not None:
                file.demand(MOST_BYTES)
            measured = by_step(each_line(file or ()), seed, names=name, most_steps=MOST_STEPS)
        except IntegrityError as error:
            raise RequestRefused(
                413, "metrics.jsonl is too large to be thinned here; GET .../artifacts/metrics has it whole"
            ) from error
    steps, values = thinned(measured, max_points=max_points, names=name)
    return Points(run=run, steps=steps, values=values, of=len(measured))


def thinned(
    rows: StepTable, *, max_points: int, names: Sequence[str] | None = None
) -> tuple[list[int], dict[str, list[float | None]]]:
    """Last step and means of at most `max_points` shares of the rows; None where a share has no finite value."""
    steps = list(rows)
    size = -(-len(steps) // max_points) or 1
    shares = [steps[at : at + size] for at in range(0, len(steps), size)]
    shown = [name for name in rows.names if name not in {"step", "seed", "job"} and (not names or name in names)]
    values = {each: [_mean([rows.value(each, step) for step in share]) for share in shares] for each in shown}
    measured = {each: means for each, means in values.items() if any(mean is not None for mean in means)}
    return [share[-1] for share in shares], measured


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean of those that are finite, and not too large to be summed up."""
    found = [number for value in values if (number := finite(value)) is not None and abs(number) < 1e300]
    return fmean(found) if found else None
