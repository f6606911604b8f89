"""Role score: a published model answers every row of the shards that its parent names; outputs become Arrow files.

python -m gangline.train.roles.score FOLDER --code DIR --columns a,b --batch N [--outputs x,y]

It reads one order a line, `{"shard": PATH, "into": PATH}`, and answers each by a line with the number of rows; the end
of its orders is its own. Rows are taken in order from the first of a shard, so the batches, and with them the bytes of
an output, do not depend on how many processes score or when they were killed.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gangline.errors import ConfigError, GanglineError, TrainingError
from gangline.train.model.published import PublishedModel, open_published

if TYPE_CHECKING:
    from numpy import ndarray

    Arrays = dict[str, ndarray]


def main(arguments: list[str] | None = None) -> int:
    """Score what stdin names; the exit code."""
    parser = argparse.ArgumentParser(prog="gangline.train.roles.score")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--code", type=Path)
    parser.add_argument("--columns", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--outputs", default="")
    options = parser.parse_args(arguments)
    with os.fdopen(os.dup(1), "w") as reports:
        os.dup2(2, 1)  # code of the model prints to stderr from here on
        return _score_orders(options, reports)


def _score_orders(options: argparse.Namespace, reports: IO[str]) -> int:
    try:
        model = open_published(options.folder, options.code)
        check_columns(model, options.columns.split(","))
        for line in sys.stdin:
            order = json.loads(line)
            rows = score_shard(
                model, Path(order["shard"]), Path(order["into"]), batch=options.batch,
                outputs=tuple(filter(None, options.outputs.split(","))),
            )  # fmt: skip
            reports.write(json.dumps({"rows": rows}) + "\n")
            reports.flush()
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except SystemExit as error:  # a code that the model chose is none of ours
        sys.stderr.write(f"the model called sys.exit({error.code!r})\n")
        return TrainingError.exit_code
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
    from gangline.data.output_shards import write_outputs  # imports pyarrow, which other roles lack

    return write_outputs(_answers(model, shard, batch, outputs), into)


def _answers(model: PublishedModel, shard: Path, batch: int, outputs: Sequence[str]) -> "Iterator[Arrays]":
    """Outputs of the model, batch by batch."""
    from gangline.data.arrow_rows import ArrowRows

    with ArrowRows(shard) as rows:
        for start in range(0, len(rows), batch):
            given = _inputs(model, [rows[index] for index in range(start, min(start + batch, len(rows)))], start)
            try:
                found = model.predict(given)
            except Exception as error:  # code of a model raises anything
                raise TrainingError(f"the model failed at row {start}: {type(error).__name__}: {error}") from error
            if missing := sorted(set(outputs) - found.keys()):
                raise ConfigError(f"wanted the outputs {', '.join(missing)}, the model has {', '.join(sorted(found))}")
            yield {name: each for name, each in sorted(found.items()) if not outputs or name in outputs}


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


if __name__ == "__main__":
    sys.exit(main())
