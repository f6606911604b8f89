"""Smoke test of a published model: a fresh process builds it from its folder and the code layer and runs one batch.

python -m gangline.train.roles.smoke_test FOLDER [--code DIR --options OPTIONS.json]
"""

import argparse
import json
import math
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.checkpoint.format.safetensors import TensorEntry, header_length, parse_header
from gangline.checkpoint.host_tensors import DTYPES
from gangline.errors import GanglineError, IntegrityError, TrainingError
from gangline.spec.codec import from_plain
from gangline.spec.dataset import DatasetShard
from gangline.train.runtime.datasets import DatasetRows, OpenShards, SplitPiece
from gangline.train.task import Task, export_names_of, forward_names, load_task

if TYPE_CHECKING:
    from torch import Tensor, nn

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


def smoke(folder: Path, *, code: Path | None, options: Path | None) -> dict[str, float]:
    """Load `folder`; with code and options also run a batch.

    Raises:
        IntegrityError: The weights cannot be read, or do not fit the model that config.json describes.
        TrainingError: They are not finite, or the loss is not.
    """
    config = json.loads((folder / "config.json").read_bytes())
    weights = {name: each for file in sorted(folder.glob("*.safetensors")) for name, each in read_weights(file).items()}
    broken = sorted(name for name, each in weights.items() if each.is_floating_point() and not each.isfinite().all())
    if broken:
        raise TrainingError(f"weights are not finite: {', '.join(broken[:5])}")
    found: dict[str, float] = {"parameters": sum(each.numel() for each in weights.values())}
    if code is None or options is None or not config["task"]:
        return found
    sys.path.insert(0, str(code))
    task = load_task(config["task"])
    model = task.build_model(dict(config["model"]))
    own = {published: name for name, published in export_names_of(task).items()}
    _fill(model, {own.get(name, name): each for name, each in weights.items()})
    return found | _answer(task, model, json.loads(options.read_bytes()))


def read_weights(file: Path) -> "dict[str, Tensor]":
    """Tensors of one safetensors file by name; the header is checked before anything is allocated."""
    import torch

    data = bytearray(file.read_bytes())
    entries = parse_header(bytes(data[: header_length(bytes(data[:8]), len(data))]), len(data))

    def tensor(entry: TensorEntry) -> "Tensor":
        if not entry.size_bytes:
            return torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
        count = entry.size_bytes // DTYPES[entry.dtype].itemsize
        flat = torch.frombuffer(data, dtype=DTYPES[entry.dtype], count=count, offset=entry.start)
        return flat.reshape(entry.shape)

    return {name: tensor(entry) for name, entry in entries.items()}


def _fill(model: "nn.Module", weights: "dict[str, Tensor]") -> None:
    try:
        model.load_state_dict(weights, strict=True, assign=True)
    except RuntimeError as error:
        raise IntegrityError(f"the weights do not fit the model: {' '.join(str(error).split())[:400]}") from error


def _answer(task: Task, model: "nn.Module", options: dict[str, Any]) -> dict[str, float]:
    import torch

    if shards := options.pop("dataset", None):
        options["dataset"] = _rows_of(shards)
    data = task.build_data("holdout", options)
    samples = [data[index] for index in range(min(SAMPLES, len(data)))]
    if not samples:
        raise TrainingError("the held-out data has no samples")
    batch = {name: torch.stack([torch.as_tensor(each[name]) for each in samples]) for name in samples[0]}
    taken = forward_names(model)
    model.eval()
    with torch.no_grad():
        outputs = model(**{name: each for name, each in batch.items() if taken is None or name in taken})
        loss = task.loss(outputs, batch)
    mean = float(loss.total) / float(loss.weight)
    if not math.isfinite(mean):
        raise TrainingError(f"the loss of {len(samples)} held-out samples is {mean}")
    return {"samples": len(samples), "loss": mean}


class _Folder:
    """Shards that lie next to the code, by digest."""

    def file(self, shard: DatasetShard) -> Path:
        return Path("../data", shard.sha256)

    def hold(self, shards: Collection[DatasetShard]) -> None:
        """Nothing is fetched, and nothing let go."""


def _rows_of(shards: list[dict[str, Any]]) -> DatasetRows:
    found = [from_plain(DatasetShard, each) for each in shards]
    pieces = [SplitPiece(number, shard, 0, shard.rows) for number, shard in enumerate(found)]
    return DatasetRows(pieces, OpenShards(_Folder(), most=len(pieces)))


if __name__ == "__main__":
    sys.exit(main())
