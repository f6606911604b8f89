"""Role score: a published model answers every row of the shards that its driver names; outputs become Arrow files.

The model and the order lie with the data files of the plan. Shards are dealt out to the ranks in turn, and an output
that is in the store is not made again. Rows are taken in order from the first of a shard, so the batches, and with them
the bytes of an output, do not depend on how many ranks score or when they were killed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.data.versions import read_dataset
from gangline.errors import SIGTERM_CODE, ConfigError, TrainingError
from gangline.spec.gang.driver_orders import MODEL_FOLDER, ORDER_FILE, ScoreOrder
from gangline.train import heartbeat
from gangline.train.model.published import PublishedModel, open_published
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.data_splits import fetch_data
from gangline.train.runtime.datasets import SHARD_SECONDS
from gangline.train.runtime.shard_files import shard_files

if TYPE_CHECKING:
    from numpy import ndarray

    Arrays = dict[str, ndarray]

LOAD_SECONDS = 600.0
"""Silence announced while the model is opened."""


def run(context: RankContext) -> int:
    """Exit code of this rank; it waits for the others until the files of its node are there, and no longer."""
    fetch_data(context)
    heartbeat.expect(LOAD_SECONDS)
    order = ScoreOrder.from_json((context.data_folder / ORDER_FILE).read_bytes())
    model = open_published(context.data_folder / MODEL_FOLDER, None)
    check_columns(model, order.columns)
    assert context.store is not None
    [use] = context.plan.data.sets
    shards = {shard.sha256: shard for shard in read_dataset(context.store, use).shards}
    files = shard_files(context)
    for digest, name in order.shards[context.rank :: context.plan.world_size]:
        if context.stop_asked:
            return SIGTERM_CODE
        if context.store.head(key := order.output_key(context.plan.run_prefix, name)) is None:
            heartbeat.expect(SHARD_SECONDS)
            into = context.scratch / f"outputs-{context.rank}.arrow"
            path = files.file(shards[digest])
            score_shard(model, path, into, batch=order.batch, outputs=order.outputs)
            context.store.put_if_absent(key, into.read_bytes())
            files.hold(())
        context.events.emit("scored", shard=name)
    return 0


def check_columns(model: PublishedModel, columns: Sequence[str]) -> None:
    """Raises ConfigError unless the data set has what the model takes."""
    if not model.inputs:
        raise ConfigError(
            "the version has neither golden sample nor infer.handler, so its inputs are not known: publish it again"
        )
    if missing := sorted(model.inputs.keys() - set(columns)):
        raise ConfigError(
            f"the model takes {', '.join(sorted(model.inputs))}, the data set has {', '.join(columns)}:"
            f" {', '.join(missing)} missing; pack the data with these columns"
        )


def score_shard(model: PublishedModel, shard: Path, into: Path, *, batch: int, outputs: Sequence[str] = ()) -> int:
    """Write the outputs for all rows of `shard`; the number of rows.

    Args:
        model: Answers.
        shard: An Arrow file.
        into: Path of the file to write; it appears whole.
        batch: Rows of one forward pass.
        outputs: Names of those that are kept; none: all.
    """
    from gangline.data.arrow_shards import write_outputs  # imports pyarrow, which other roles lack

    return write_outputs(_answers(model, shard, batch, outputs), into)


def _answers(model: PublishedModel, shard: Path, batch: int, outputs: Sequence[str]) -> "Iterator[Arrays]":
    """Outputs of the model, batch by batch."""
    from gangline.data.arrow_rows import ArrowRows

    with ArrowRows(shard) as rows:
        for start in range(0, len(rows), batch):
            heartbeat.beat(phase="forward")
            given = _inputs(model, [rows[index] for index in range(start, min(start + batch, len(rows)))], start)
            try:
                found = model.predict(given)
            except Exception as error:  # code of a model raises anything
                raise TrainingError(f"the model failed at row {start}: {type(error).__name__}: {error}") from error
            if missing := sorted(set(outputs) - found.keys()):
                raise ConfigError(f"wanted the outputs {', '.join(missing)}, the model has {', '.join(sorted(found))}")
            yield {name: array for name, array in sorted(found.items()) if not outputs or name in outputs}


def _inputs(model: PublishedModel, rows: Sequence[dict[str, Any]], start: int) -> "Arrays":
    """Columns that the model takes, of some rows, with its dtypes."""
    import numpy as np

    try:
        return {
            name: np.stack([np.asarray(row[name]) for row in rows]).astype(spec.dtype, casting="same_kind")
            for name, spec in model.inputs.items()
        }
    except (TypeError, ValueError) as error:
        raise ConfigError(f"rows {start} to {start + len(rows) - 1} are no inputs of the model: {error}") from error
