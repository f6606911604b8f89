"""Metrics file of a program (`project.metrics`), as DVC reads them: JSON, JSON lines, or CSV with a header.

    {"eval": {"accuracy": 0.97}}      the metric `eval.accuracy`
    step,loss,eval_loss               the curve by `step` and `loss`; each column's last value is its metric
    1,4.13,
    2,3.92,3.99

If the commit holds the file and the program only appends to it, the rows of the commit are left out.
"""

import csv
import io
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from typing import Any

from gangline.errors import ConfigError, IntegrityError
from gangline.line.gangs.attempts import FinishedGang
from gangline.line.record.context import RunContext
from gangline.line.results.outputs import CollectedOutputs
from gangline.metrics.step_table import number, step_of
from gangline.spec.output_limits import MOST_METRIC_LINES, MOST_METRICS, MOST_NAME
from gangline.spec.program_files import FOLDER, MOST_METRICS_BYTES
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.code_layer import read
from gangline.storage.objects.protocol import get_bounded

STEP, LOSS = "step", "loss"
Row = Mapping[str, Any]


@dataclass(kw_only=True)
class MetricsFile:
    """What such a file says."""

    metrics: dict[str, float] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    """By step, where it has both."""
    not_finite: dict[str, str] = field(default_factory=dict)
    """Metric -> `nan`, `inf` or `-inf`."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Name -> what stands there instead of a number."""

    @property
    def last_step(self) -> int:
        return max(self.losses, default=0)


def rows_added(name: str, data: bytes, committed: bytes) -> bytes:
    """`data` without the rows that stand in the commit; all of it where the program wrote the file anew.

    A file that is equal was written anew: the collector takes none that the program did not write.
    """
    if data == committed:
        return data
    ends = committed.endswith(b"\n") or data[len(committed) :].startswith((b"\n", b"\r\n"))
    if name.endswith(".json") or not committed.strip() or not data.startswith(committed) or not ends:
        return data
    header = committed.partition(b"\n")[0].removesuffix(b"\r") + b"\n" if name.endswith(".csv") else b""
    return header + data[len(committed) :].lstrip(b"\r\n")


def read_metrics_file(name: str, data: bytes) -> MetricsFile:
    """The numbers of the file `name`.

    Raises:
        ConfigError: It is not what its ending says, names something twice, is too long, or holds no number.
    """
    try:
        found = _read(name, data.decode("utf-8-sig"))
        _demand_numbers(found)
    except (ValueError, RecursionError, csv.Error) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"project.metrics: {name}: {said[:300]}") from error
    return found


def _read(name: str, text: str) -> MetricsFile:
    """Raises ValueError, which the others below raise, too."""
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > MOST_METRIC_LINES:
        raise ValueError(f"wanted at most {MOST_METRIC_LINES:,} lines, found {lines:,}; write every n-th step")
    if name.endswith(".json"):
        return _of_rows([_flat(_json(text))])
    if name.endswith(".jsonl"):
        return _of_rows(_flat(_json(line)) for line in text.splitlines() if line.strip())
    return _of_rows(_csv(text))


def _demand_numbers(found: MetricsFile) -> None:
    if len(found.metrics) > MOST_METRICS:
        raise ValueError(f"wanted at most {MOST_METRICS} metrics, found {len(found.metrics)}")
    if not found.metrics and not found.not_finite:
        raise ValueError("wanted at least one number, found none")


def _of_rows(rows: Iterable[Row]) -> MetricsFile:
    """Each name's last value that is there, and the losses of the rows that have a step, as far as none goes back."""
    found = MetricsFile()
    last: dict[str, Any] = {}
    for row in rows:
        last |= {name: value for name, value in row.items() if name != STEP and value not in (None, "")}
        step, loss = step_of({STEP: _whole(row.get(STEP))}), number(row.get(LOSS))
        if step is not None and loss is not None and isfinite(loss):
            while found.losses and next(reversed(found.losses)) >= step:
                found.losses.popitem()  # the program began anew from here
            found.losses[step] = loss
    for name, value in last.items():
        if (measured := number(value)) is None or not 0 < len(name) <= MOST_NAME:
            found.left_out[name[:MOST_NAME]] = f"{value!r:.60}"
        elif isfinite(measured):
            found.metrics[name] = measured
        else:
            found.not_finite[name] = str(measured)
    return found


def _whole(value: Any) -> Any:
    """CSV knows no whole numbers: a step of 5.0 is 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"wanted JSON, found {text[:40]!r}: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"wanted each name once, found {twice!r} {names.count(twice)} times")
    return made


def _flat(table: Any) -> dict[str, Any]:
    """Nested tables as dotted names."""
    flat: dict[str, Any] = {}
    if not isinstance(table, dict):
        raise ValueError(f"wanted a table of names and numbers, found {str(table)[:40]!r}")  # noqa: TRY004  # of a text
    for name, value in _each(table, ""):
        if name in flat:
            raise ValueError(f"wanted each name once, found {name!r} twice, as a table and as a dotted name")
        flat[name] = value
    return flat


def _each(table: dict[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _each(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _csv(text: str) -> Iterator[Row]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [name.strip() for name in next(rows, [])]
    if twice := next((name for name in header if header.count(name) > 1), None):
        raise ValueError(f"wanted each column once, found {twice!r} {header.count(twice)} times")
    if header and not any(isinstance(_cell(name), str) for name in header):
        raise ValueError(f"wanted a header of names, found numbers: {','.join(header)[:60]}")
    for line, row in enumerate(rows, 2):
        if row and len(row) != len(header):
            raise ValueError(f"line {line}: wanted {len(header)} values, found {len(row)}")
        yield dict(zip(header, map(_cell, row), strict=False))


def _cell(text: str) -> float | str | None:
    try:
        return float(text) if text.strip() else None
    except ValueError:
        return text


NOT_FINITE = "not_finite"
"""Output of the train stage: metrics that the program wrote as nan or inf; a gate that asks for one says no."""
_SHOWN = 5


def read_program_metrics(ctx: RunContext, finished: FinishedGang, collected: CollectedOutputs | None) -> MetricsFile:
    """What the file says; nothing where the line names none, or the gang failed.

    Raises:
        ConfigError: The program wrote none, or not what its ending says.
        IntegrityError: What the store has is not what the gang listed.
    """
    name = ctx.line.project.metrics
    if name is None or collected is None or finished.error is not None:
        return MetricsFile()
    file = collected.outputs.metrics
    if file is None:
        said = next((each.reason for each in collected.outputs.left_out if each.path == name), "")
        said = said or "the program wrote no such file in the folder that it starts in"
        raise ConfigError(f"project.metrics: {name}: {said}")
    if file.path != name:
        raise IntegrityError(f"{collected.artifact.key}: wanted {name} as metrics, found {file.path!r}")
    key = f"{collected.artifact.key.rpartition('/')[0]}/{FOLDER}/{file.sha256}"
    blob = get_bounded(ctx.store, key, most_bytes=MOST_METRICS_BYTES)
    if blob is None or sha256(blob.data).hexdigest() != file.sha256:
        raise IntegrityError(f"{key}: wanted {name} as it was collected, found {'other bytes' if blob else 'nothing'}")
    committed = _committed(ctx, name)
    data = blob.data if committed is None else rows_added(name, blob.data, committed)
    if len(data) < len(blob.data):
        ctx.record_event("train", "metrics", f"{name}: rows that the commit holds are left out, those after them count")
    found = read_metrics_file(name, data)
    if found.left_out:
        shown = ", ".join(f"{each} ({what})" for each, what in list(found.left_out.items())[:_SHOWN])
        more = f" and {len(found.left_out) - _SHOWN} more" if len(found.left_out) > _SHOWN else ""
        ctx.record_event("train", "metrics", f"{name}: no numbers, left out: {shown}{more}")
    for metric, what in list(found.not_finite.items())[:_SHOWN]:
        ctx.record_event("train", "metrics", f"{name}: {metric} is {what}, no finite number")
    return found


def _committed(ctx: RunContext, name: str) -> bytes | None:
    """What the code layer holds at the place of the metrics file; None: nothing."""
    path = posixpath.normpath(posixpath.join(ctx.plan.program.folder, name))
    files = read(get_blob(ctx.store, str(ctx.output("build", "code"))))
    return next((bytes(file.data) for file in files if file.path == path), None)


def with_program_metrics(own: Mapping[str, float], written: MetricsFile) -> dict[str, float]:
    """Both ways of reporting together.

    Raises:
        ConfigError: They say different numbers of one metric.
    """
    for name in sorted(own.keys() & written.metrics.keys()):
        if own[name] != written.metrics[name]:
            raise ConfigError(
                f"project.metrics: wanted one value of {name}, found {own[name]} by program.report and"
                f" {written.metrics[name]} in the file; leave one out"
            )
    return {**own, **written.metrics}
