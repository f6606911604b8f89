"""`/api/v1/runs/{run}/metrics`: what was measured step by step, thinned to as many points as are wanted."""

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from gangline.line.curve import by_step, read_lines
from gangline.serve.api.given import Given, Model, RunPath, problems
from gangline.serve.problems import Refused
from gangline.storage.growing import find_grown

router = APIRouter(prefix="/api/v1/runs/{run}/metrics", tags=["run"])
MOST_BYTES = 64 * 1024 * 1024
NAME = r"^[A-Za-z_][A-Za-z0-9_./-]{0,63}$"


class Points(Model):
    """Columns of one length: `steps[i]` is the last step of share i, each value the mean of its share."""

    run: str
    steps: list[int]
    values: dict[str, list[float | None]]
    of: int = Field(description="Steps that were measured.")


@router.get("", responses=problems(404, 413, 503))
def get_metrics(
    service: Given,
    run: RunPath,
    *,
    name: Annotated[list[Annotated[str, Field(pattern=NAME)]] | None, Query(max_length=32)] = None,
    max_points: Annotated[int, Query(ge=1, le=5000)] = 500,
    seed: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
) -> Points:
    """Points of metrics.jsonl, of a run that goes on as far as they are in the store."""
    row = service.row(run)
    with service.store() as store:
        found = find_grown(store, f"{row.prefix}/metrics.jsonl")
        if found is not None and found.size_bytes > MOST_BYTES:
            raise Refused(413, "metrics.jsonl is too large to be thinned here; GET .../artifacts/metrics has it whole")
        text = found.read() if found else b""
    measured = by_step(read_lines(text), seed)
    steps, values = thinned(measured, max_points=max_points, names=name)
    return Points(run=run, steps=steps, values=values, of=len(measured))


def thinned(
    rows: Mapping[int, Mapping[str, Any]], *, max_points: int, names: Sequence[str] | None = None
) -> tuple[list[int], dict[str, list[float | None]]]:
    """Last step and means of at most `max_points` shares of the rows; None where a share has no finite value."""
    steps = list(rows)
    size = -(-len(steps) // max_points) or 1
    shares = [steps[at : at + size] for at in range(0, len(steps), size)]
    known = sorted({key for row in rows.values() for key, value in row.items() if _number(value) is not None})
    shown = [each for each in known if each not in {"step", "seed", "job"} and (not names or each in names)]
    return [share[-1] for share in shares], {
        each: [_mean([_number(rows[step].get(each)) for step in share]) for share in shares] for each in shown
    }


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and isfinite(value) else None


def _mean(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None
