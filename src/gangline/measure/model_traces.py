"""Traces of a task's model, made in a child process with a time limit, and the sample that they are made with.

Rows of a data set are stood in for, from its columns alone: nothing is fetched to trace a model.
"""

import json
import multiprocessing
import re
import tempfile
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import default_collate

from gangline.errors import ConfigError
from gangline.measure.task_errors import raised
from gangline.spec.codec import canonical
from gangline.spec.dataset import COLUMNS
from gangline.spec.plan import Precision
from gangline.spec.profile import Trace
from gangline.train.runtime.data_splits import SHARD
from gangline.train.runtime.initialization import Initializer
from gangline.train.task import Task, forward_names, hints_of

SECONDS = 90.0
"""Time limit for all traces of one model."""
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
_MOST_LETTERS = 300

ROWS = 1024
_LIST = re.compile(r"fixed_size_list<\w+: (?P<of>.+)>\[(?P<size>\d+)\]")
_NUMBERS = {"float": "float32", "double": "float64", "halffloat": "float16"}
"""Names of numpy for those of Arrow, where they differ."""


def traces_of(
    task: Task, options: dict[str, Any], *, names: Sequence[str] = (), seconds: float = SECONDS
) -> dict[str, Any]:
    """Trace the model of `task` in a child process, which isolates user code.

    Returns:
        `traces`; `sequence`, the length of a sample; `untraced`, why there are no traces; `unstaged`, why a pipeline
        cannot train the model, empty if it can or if the check was not possible.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_send_traces, args=(sender, task, options, names), daemon=True
    )
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return _none(f"tracing a step took over {seconds:.0f} s")
        data = receiver.recv_bytes()
    except EOFError:
        return _none("the process that traced a step died")
    finally:
        child.kill()
        child.join()
    answer: dict[str, Any] = json.loads(data)
    return answer


def renew_threads() -> None:
    """Called first in a process that was forked from one with torch.

    torch renews its pool of threads at the first use after a fork. If threads of autograd come first, and two at once,
    one of them finds no pool and ends the process.
    """
    torch.set_num_threads(torch.get_num_threads())


def _send_traces(sender: Connection, task: Task, options: dict[str, Any], names: Sequence[str]) -> None:
    renew_threads()
    unstaged = ""
    try:
        sample = sample_of(task, options, names)
        unstaged = _unstaged(task, options, sample)
        found = {"traces": _traces(task, options, sample), "untraced": "", "sequence": _sequence(task, sample)}
    except Exception as error:  # any error of user code on fake tensors is a reason
        traceback.print_exc()
        found = _none(raised(error))
    sender.send_bytes(canonical(found | {"unstaged": unstaged}))


def _unstaged(task: Task, options: dict[str, Any], sample: dict[str, Any]) -> str:
    from gangline.train.parallel.pipeline.composition import Composition  # imports torch's compiler

    model = Initializer.build(lambda: task.build_model(dict(options)), seed=0).model
    try:
        Composition.of(model, hints_of(task)).require_same((), _inputs(model, sample))
    except ConfigError as error:
        return str(error)
    return ""


def _sequence(task: Task, sample: dict[str, Any]) -> int | None:
    """Length of a sample's sequence; None: the hints name no sequence dimension."""
    batch = default_collate([sample])
    lengths = (batch[key].shape[dim] for key, dim in hints_of(task).sequence.items() if key in batch)
    return next((int(length) for length in lengths), None)


def _inputs(model: nn.Module, sample: dict[str, Any]) -> dict[str, Any]:
    takes = forward_names(model)
    batch = default_collate([sample] * 2)
    return {key: each for key, each in batch.items() if takes is None or key in takes}


def _traces(task: Task, options: dict[str, Any], sample: dict[str, Any]) -> list[Trace]:
    from gangline.measure.model_profile import trace  # imports torch's compiler

    models = (Initializer.build(lambda: task.build_model(dict(options)), seed=0).model for _ in PRECISIONS)
    return [trace(task, model, sample, precision) for model, precision in zip(models, PRECISIONS, strict=True)]


def _none(reason: str) -> dict[str, Any]:
    return {"traces": [], "untraced": reason[:_MOST_LETTERS], "unstaged": ""}


MOST_NAMES = 8
"""Files of the data that stand-ins are made for."""


STAND_IN_BYTES = 1 << 20
"""Size of the text for tasks that cut theirs into windows."""


def sample_of(task: Task, options: dict[str, Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """A sample of the task; only its names, shapes and dtypes matter.

    Args:
        task: Its `example(options)`, if it has one, returns a sample like `build_data(...)[0]`.
        options: The table `model`.
        names: File names of the data, which generated files get; or the columns of a data set.

    Raises:
        ConfigError: The task does not return a dict of tensors.
    """
    example = getattr(task, "example", None)
    found = example(dict(options)) if callable(example) else _first(task, options, names)
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"a sample is a dict of tensors, {type(task).__name__} returns {type(found).__name__}")
    return found


class SampleRows:
    """What a task gets as `options["dataset"]` when its model is traced."""

    def __init__(self, columns: str) -> None:
        """`columns`: As `spec.dataset.columns_text` writes them."""
        self._row = {name: _value(kind) for name, kind in json.loads(columns.removeprefix(COLUMNS))}

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < ROWS:
            raise IndexError(index)
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in self._row.items()}


def _first(task: Task, options: dict[str, Any], names: Sequence[str]) -> Any:
    with tempfile.TemporaryDirectory(prefix="gangline-sample-") as folder:
        columns = [name for name in names if name.startswith(COLUMNS)]
        real = sorted(name for name in names if not name.endswith(SHARD) and name not in columns)[:MOST_NAMES]
        text = [Path(folder) / name for name in real or ["text.txt"]]
        for path in text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"every word is as good as another here.\n".ljust(64) * (STAND_IN_BYTES // 64))
        given: dict[str, Any] = {
            "text": [*map(str, text)], "shards": [], "holdout": 0.1, "seed": 1, "model": dict(options)
        }  # fmt: skip
        if columns:
            given |= {"text": [], "dataset": SampleRows(columns[0])}
        return task.build_data("train", given)[0]


def _value(kind: str) -> Any:
    """A value of the type that Arrow calls `kind`: zeros, empty text and bytes; lists of any length have one entry."""
    if kind in ("string", "large_string"):
        return ""
    if kind in ("binary", "large_binary"):
        return b""
    shape = []
    while match := _LIST.fullmatch(kind):
        shape.append(int(match["size"]))
        kind = match["of"]
    if "list<" in kind:
        shape, kind = [1], kind.rpartition(": ")[2].rstrip(">")
    dtype = np.dtype(_NUMBERS.get(kind, kind))
    is_wide = dtype.kind == "u" and dtype.itemsize > 1  # as `train.runtime.datasets` gives them
    return np.zeros(shape, dtype="int64" if is_wide else dtype)
