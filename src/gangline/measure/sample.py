"""One sample of a task before there is data: from the task's own `example`, else from `build_data` over a stand-in."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError
from gangline.train.runtime.data_splits import SHARD
from gangline.train.task import Task

MOST_NAMES = 8
"""Files of the data that stand-ins are made for."""
STAND_IN_BYTES = 1 << 20
"""Of text, for tasks that cut theirs into windows."""


def sample_of(task: Task, options: dict[str, Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """Only its names, shapes and types matter.

    Args:
        task: Its `example(options)`, where it has one, gives a sample as `build_data(...)[0]` would.
        options: The table `model`.
        names: Of files of the data: stand-ins are called so.

    Raises:
        ConfigError: What the task gives is no sample.
    """
    example = getattr(task, "example", None)
    found = example(dict(options)) if callable(example) else _first(task, options, names)
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"a sample is a dict of tensors, {type(task).__name__} gives {type(found).__name__}")
    return found


def _first(task: Task, options: dict[str, Any], names: Sequence[str]) -> Any:
    with tempfile.TemporaryDirectory(prefix="gangline-sample-") as folder:
        real = sorted(name for name in names if not name.endswith(SHARD))[:MOST_NAMES]
        text = [Path(folder) / name for name in real or ["text.txt"]]
        for path in text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"every word is as good as another here.\n".ljust(64) * (STAND_IN_BYTES // 64))
        data = task.build_data(
            "train", {"text": [*map(str, text)], "shards": [], "holdout": 0.1, "seed": 1, "model": dict(options)}
        )
        return data[0]
