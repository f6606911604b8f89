"""`result.json`: what the program of a gang came to, written once by rank 0."""

import json
from collections.abc import Sequence

from gangline.spec.codec import canonical
from gangline.spec.gang import GangResult
from gangline.storage.durable import sync_folder, write_synced
from gangline.train.context import METRICS, Context
from gangline.train.loop.engine import Course

MAX_LOSSES = 4096


def all_losses(context: Context, course: Course) -> list[tuple[int, float]]:
    """Loss by step of one training, over all generations, as the curve in `metrics.jsonl` has them."""
    if context.metrics is None or context.out is None:
        return []
    context.metrics.flush()
    lines = map(json.loads, (context.out / METRICS).read_text().splitlines())
    found = {each["step"]: each["loss"] for each in lines if each["job"] == course.job and each["seed"] == course.seed}
    return [(step, loss) for step, loss in sorted(found.items()) if loss is not None]


def thin(losses: Sequence[tuple[int, float]], most: int = MAX_LOSSES) -> tuple[tuple[int, float], ...]:
    """All of `losses` up to `most`, then `most` of them evenly, the first and the last among them."""
    if len(losses) <= most:
        return tuple(losses)
    return tuple(losses[index * (len(losses) - 1) // (most - 1)] for index in range(most))


def write_result(context: Context, result: GangResult) -> None:
    """Local; every rank may call."""
    if context.rank != 0 or context.out is None:
        return
    path = context.out / "result.json"
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    write_synced(part, canonical(result))
    part.replace(path)
    sync_folder(path.parent)
