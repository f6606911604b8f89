"""The numbers that a program wrote into the file of `project.metrics`, beside those that it reported in other ways."""

import posixpath
from collections.abc import Mapping
from hashlib import sha256

from gangline.errors import ConfigError, IntegrityError
from gangline.line.context import Context
from gangline.line.gangs import Finished
from gangline.line.metrics_file import MetricsFile, read_metrics_file, rows_added
from gangline.line.outputs import Collected
from gangline.spec.outputs import FOLDER, MOST_METRICS_BYTES
from gangline.storage.blobs import get_blob
from gangline.storage.bounded import get_bounded
from gangline.storage.layer import read

NOT_FINITE = "not_finite"
"""Output of the train stage: metrics that the program wrote as nan or inf; a gate that asks for one says no."""
_SHOWN = 5


def read_written(ctx: Context, finished: Finished, collected: Collected | None) -> MetricsFile:
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
        ctx.remember("train", "metrics", f"{name}: rows that the commit holds are left out, those after them count")
    found = read_metrics_file(name, data)
    if found.left_out:
        shown = ", ".join(f"{each} ({what})" for each, what in list(found.left_out.items())[:_SHOWN])
        more = f" and {len(found.left_out) - _SHOWN} more" if len(found.left_out) > _SHOWN else ""
        ctx.remember("train", "metrics", f"{name}: no numbers, left out: {shown}{more}")
    for metric, what in list(found.not_finite.items())[:_SHOWN]:
        ctx.remember("train", "metrics", f"{name}: {metric} is {what}, no finite number")
    return found


def _committed(ctx: Context, name: str) -> bytes | None:
    """What the code layer holds at the place of the metrics file; None: nothing."""
    path = posixpath.normpath(posixpath.join(ctx.plan.program.folder, name))
    files = read(get_blob(ctx.store, str(ctx.output("build", "code"))))
    return next((bytes(file.data) for file in files if file.path == path), None)


def with_written(own: Mapping[str, float], written: MetricsFile) -> dict[str, float]:
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
