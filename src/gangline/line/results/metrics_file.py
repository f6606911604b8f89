"""Metrics file of a program (`project.metrics`), in the formats of DVC: JSON, JSON lines, or CSV with a header.

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
from gangline.storage.objects.code_layer import read_layer
from gangline.storage.objects.protocol import get_bounded

STEP, LOSS = "step", "loss"
Row = Mapping[str, Any]


@dataclass(kw_only=True)
class MetricsFile:
    """Content of a metrics file."""

    metrics: dict[str, float] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    """Loss by step, of rows with both."""
    broken: list[int] = field(default_factory=list)
    """Steps whose loss is not finite."""
    not_finite: dict[str, str] = field(default_factory=dict)
    """Metric -> `nan`, `inf` or `-inf`."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Name -> the text found instead of a number."""

    @property
    def last_step(self) -> int:
        """Highest step with a loss; 0 without any."""
        return max(self.losses, default=0)

    def add_loss(self, step: int, loss: float) -> None:
        """Add the loss of the next row; the program restarted from its step if there are later ones."""
        while self.losses and next(reversed(self.losses)) >= step:
            self.losses.popitem()
        while self.broken and self.broken[-1] >= step:
            self.broken.pop()
        if isfinite(loss):
            self.losses[step] = loss
        else:
            self.broken.append(step)


def rows_added(name: str, data: bytes, committed: bytes) -> bytes:
    """`data` without the rows of the commit if the program appended to them; else all of it.

    Equal content was rewritten by the program, because the collector takes only files that the program wrote.
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
        ConfigError: It is not in the format of its suffix, has a name twice, is too long, or has no number.
    """
    try:
        content = _read(name, data.decode("utf-8-sig"))
        _require_numbers(content)
    except (ValueError, RecursionError, csv.Error) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"project.metrics: {name}: {reason[:300]}") from error
    return content


def _read(name: str, text: str) -> MetricsFile:
    """Raises ValueError, like the functions below."""
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > MOST_METRIC_LINES:
        raise ValueError(f"wanted at most {MOST_METRIC_LINES:,} lines, found {lines:,}; write every n-th step")
    if name.endswith(".json"):
        return _from_rows([_flatten(_parse_json(text))])
    if name.endswith(".jsonl"):
        return _from_rows(_flatten(_parse_json(line)) for line in text.splitlines() if line.strip())
    return _from_rows(_parse_csv(text))


def _require_numbers(found: MetricsFile) -> None:
    if len(found.metrics) > MOST_METRICS:
        raise ValueError(f"wanted at most {MOST_METRICS} metrics, found {len(found.metrics)}")
    if not found.metrics and not found.not_finite:
        raise ValueError("wanted at least one number, found none")


def _from_rows(rows: Iterable[Row]) -> MetricsFile:
    """The last value of each name, and the losses by step; a row with an earlier step drops the later steps."""
    file = MetricsFile()
    last: dict[str, Any] = {}
    for row in rows:
        last |= {name: value for name, value in row.items() if name != STEP and value not in (None, "")}
        step, loss = step_of({STEP: _whole(row.get(STEP))}), number(row.get(LOSS))
        if step is not None and loss is not None:
            file.add_loss(step, loss)
    for name, value in last.items():
        if (parsed := number(value)) is None or not 0 < len(name) <= MOST_NAME:
            file.left_out[name[:MOST_NAME]] = f"{value!r:.60}"
        elif isfinite(parsed):
            file.metrics[name] = parsed
        else:
            file.not_finite[name] = str(parsed)
    return file


def _whole(value: Any) -> Any:
    """A step of 5.0 is 5, because cells of CSV are parsed as float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_names)
    except json.JSONDecodeError as error:
        raise ValueError(f"wanted JSON, found {text[:40]!r}: {error}") from error


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"wanted each name once, found {twice!r} {names.count(twice)} times")
    return table


def _flatten(table: Any) -> dict[str, Any]:
    """Nested tables as dotted names."""
    flat: dict[str, Any] = {}
    if not isinstance(table, dict):
        raise ValueError(f"wanted a table of names and numbers, found {str(table)[:40]!r}")  # noqa: TRY004  # of a text
    for name, value in _leaves(table, ""):
        if name in flat:
            raise ValueError(f"wanted each name once, found {name!r} twice, as a table and as a dotted name")
        flat[name] = value
    return flat


def _leaves(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parse_csv(text: str) -> Iterator[Row]:
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


_SHOWN = 5


def read_program_metrics(ctx: RunContext, finished: FinishedGang, collected: CollectedOutputs | None) -> MetricsFile:
    """The metrics file of a finished gang; empty if the line names none, or the gang failed.

    Raises:
        ConfigError: The program wrote none, or an invalid one.
        IntegrityError: The store does not have the file that the gang listed.
    """
    name = ctx.line.project.metrics
    if name is None or collected is None or finished.error is not None:
        return MetricsFile()
    file = collected.outputs.metrics
    if file is None:
        reason = next(
            (omitted_file.reason for omitted_file in collected.outputs.left_out if omitted_file.path == name), ""
        )
        reason = reason or "the program wrote no such file in its working folder"
        raise ConfigError(f"project.metrics: {name}: {reason}")
    if file.path != name:
        raise IntegrityError(f"{collected.artifact.key}: wanted {name} as metrics, found {file.path!r}")
    key = f"{collected.artifact.key.rpartition('/')[0]}/{FOLDER}/{file.sha256}"
    blob = get_bounded(ctx.store, key, most_bytes=MOST_METRICS_BYTES)
    if blob is None or sha256(blob.data).hexdigest() != file.sha256:
        raise IntegrityError(f"{key}: wanted {name} as it was collected, found {'other bytes' if blob else 'nothing'}")
    committed = _committed(ctx, name)
    data = blob.data if committed is None else rows_added(name, blob.data, committed)
    if len(data) < len(blob.data):
        ctx.record_event("train", "metrics", f"{name}: rows of the commit are left out, the rows after them count")
    metrics_file = read_metrics_file(name, data)
    if metrics_file.left_out:
        shown = ", ".join(f"{each} ({what})" for each, what in list(metrics_file.left_out.items())[:_SHOWN])
        more = f" and {len(metrics_file.left_out) - _SHOWN} more" if len(metrics_file.left_out) > _SHOWN else ""
        ctx.record_event("train", "metrics", f"{name}: left out, not numbers: {shown}{more}")
    for metric, text in list(metrics_file.not_finite.items())[:_SHOWN]:
        ctx.record_event("train", "metrics", f"{name}: {metric} is {text}, which is not finite")
    return metrics_file


def metrics_writers_text(ctx: RunContext, collected: CollectedOutputs | None) -> str:
    """Sentence about several ranks that wrote the metrics file: its numbers are those of the last; empty if one alone
    did."""
    ranks = collected.outputs.metrics_writers if collected is not None else ()
    if len(ranks) < 2:
        return ""
    named = ", ".join(map(str, ranks[:_SHOWN])) + ", ..." * (len(ranks) > _SHOWN)
    return (
        f"{ctx.line.project.metrics} was written by {len(ranks)} ranks ({named}): it has the numbers of the last one;"
        " write it on rank 0 alone"
    )


def _committed(ctx: RunContext, name: str) -> bytes | None:
    """The metrics file in the code layer; None if the commit has none."""
    path = posixpath.normpath(posixpath.join(ctx.plan.program.folder, name))
    files = read_layer(get_blob(ctx.store, str(ctx.output("build", "code"))))
    return next((bytes(file.data) for file in files if file.path == path), None)


def with_program_metrics(own: Mapping[str, float], written: MetricsFile) -> dict[str, float]:
    """Metrics of `program.report` and of the file together.

    Raises:
        ConfigError: They have different values of one metric.
    """
    for name in sorted(own.keys() & written.metrics.keys()):
        if own[name] != written.metrics[name]:
            raise ConfigError(
                f"project.metrics: wanted one value of {name}, found {own[name]} by program.report and"
                f" {written.metrics[name]} in the file; leave one out"
            )
    return {**own, **written.metrics}
