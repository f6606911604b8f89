"""Smoke test of a published model: a fresh process builds it from its folder and the code layer and runs one batch.

python -m gangline.train.roles.smoke_test FOLDER [--code DIR --options OPTIONS.json]
"""

import argparse
import json
import math
import sys
from base64 import b64encode
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.errors import GanglineError, TrainingError
from gangline.spec.codec import from_plain
from gangline.spec.dataset import DatasetShard
from gangline.train.model.golden import Golden, golden_bytes
from gangline.train.model.published import (
    PublishedModel,
    as_arrays,
    fill,
    open_published,
    read_all_weights,
    read_config,
)
from gangline.train.runtime.datasets import DatasetRows, OpenShards, ShardSpan
from gangline.train.task import Task, forward_names, load_task

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import nn

    Arrays = dict[str, ndarray]

SAMPLES = 2


def main(arguments: list[str] | None = None) -> int:
    """Check the weights of a published model, run a batch if code is given, print JSON; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gangline.train.roles.smoke_test")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--code", type=Path)
    parser.add_argument("--options", type=Path)
    options = parser.parse_args(arguments)
    try:
        answer = smoke(options.folder, code=options.code, options=options.options)
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except SystemExit as error:  # a code that the model chose is none of ours
        sys.stderr.write(f"the model called sys.exit({error.code!r})\n")
        return TrainingError.exit_code
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return 0


def smoke(folder: Path, *, code: Path | None, options: Path | None) -> dict[str, float | str]:
    """Load `folder`; with code and options also run a batch, whose outputs are `golden`, base64.

    Where members hold the data, `example(options)` of the task is the batch; without it the model is built and filled.

    Raises:
        IntegrityError: The weights cannot be read, or do not fit the model that config.json describes.
        TrainingError: They are not finite, or the loss is not.
    """
    config = read_config(folder)
    weights = read_all_weights(folder)
    broken = sorted(
        name for name, weight in weights.items() if weight.is_floating_point() and not weight.isfinite().all()
    )
    if broken:
        raise TrainingError(f"weights are not finite: {', '.join(broken[:5])}")
    found: dict[str, float | str] = {"parameters": sum(weight.numel() for weight in weights.values())}
    if code is None or options is None or not config["task"]:
        return found
    sys.path.insert(0, str(code))
    task = load_task(config["task"])
    model = task.build_model(dict(config["model"]))
    fill(task, model, weights)
    has_handler = bool((config.get("infer") or {}).get("handler"))
    served = open_published(folder, code) if has_handler else None
    return found | _answer(task, model, json.loads(options.read_bytes()), served)


def _answer(
    task: Task, model: "nn.Module", options: dict[str, Any], served: PublishedModel | None
) -> dict[str, float | str]:
    """Loss of the model; the golden sample is answered by it, or by the handler that serves in its place."""
    import torch

    if shards := options.pop("dataset", None):
        options["dataset"] = _rows_of(shards)
    if options.pop("data_of_members", False):
        example = getattr(task, "example", None)
        if not callable(example):
            return {}
        samples = [example(dict(options["model"]))]
    else:
        data = task.build_data("holdout", options)
        samples = [data[index] for index in range(min(SAMPLES, len(data)))]
    if not samples:
        raise TrainingError("the held-out data has no samples")
    batch = {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in samples[0]}
    taken = forward_names(model)
    model.eval()
    with torch.no_grad():
        inputs = {name: tensor for name, tensor in batch.items() if taken is None or name in taken}
        outputs = model(**inputs)
        loss = task.loss(outputs, batch)
    mean = float(loss.total) / float(loss.weight)
    if not math.isfinite(mean):
        raise TrainingError(f"the loss of {len(samples)} held-out samples is {mean}")
    golden = Golden(as_arrays(inputs), as_arrays(outputs)) if served is None else _by_handler(served, as_arrays(batch))
    kept = golden_bytes(golden)
    return {"samples": len(samples), "loss": mean} | ({} if kept is None else {"golden": b64encode(kept).decode()})


def _by_handler(served: PublishedModel, batch: "Arrays") -> Golden:
    """Golden sample of a handler: the held-out samples where it takes such, else zeros; any other size is 1."""
    import numpy as np

    has_all = all(name in batch and spec.fits(batch[name]) for name, spec in served.inputs.items())
    given = {
        name: batch[name] if has_all else np.zeros([SAMPLES, *(max(1, size) for size in spec.shape[1:])], spec.dtype)
        for name, spec in served.inputs.items()
    }
    try:
        answer = served.predict(dict(given))
    except Exception as error:  # code of a model raises anything
        raise TrainingError(f"infer.handler fails on the golden sample: {type(error).__name__}: {error}") from error
    if not isinstance(answer, dict) or not all(isinstance(array, np.ndarray) for array in answer.values()):
        raise TrainingError(f"infer.handler: wanted a dict of arrays from predict, found {str(answer)[:80]}")
    return Golden(given, answer)


class _Folder:
    """Shards that lie next to the code, by digest."""

    def file(self, shard: DatasetShard) -> Path:
        return Path("../data", shard.sha256)

    def hold(self, shards: Collection[DatasetShard]) -> None:
        """Nothing is fetched, and nothing let go."""


def _rows_of(shards: list[dict[str, Any]]) -> DatasetRows:
    dataset_shards = [from_plain(DatasetShard, shard) for shard in shards]
    pieces = [ShardSpan(number, shard, 0, shard.rows) for number, shard in enumerate(dataset_shards)]
    return DatasetRows(pieces, OpenShards(_Folder(), most=len(pieces)))


if __name__ == "__main__":
    sys.exit(main())
