"""Weights & Biases: one run by its id, online, or offline in a folder that `wandb sync` sends later.

Nothing is sent but the run's own numbers and texts: no git state, no code, no console, no packages, no use of the
machine, no metadata of a cloud. Steps that were sent before are ignored by the library and by the server.
"""

import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.trackers.protocol import Mirrored, Point, TrackedRun, TrackerError, WriterSettings

if TYPE_CHECKING:
    import wandb

OWNER = "gangline.project"
"""Key of the run's configuration that says which project of gangline it is of."""


class WandbWriter:
    """Writes one run; offline each writer has a folder of its own, and a finished run has one."""

    def __init__(self, settings: WriterSettings) -> None:
        import wandb

        self._wandb, self._settings = wandb, settings
        self._folder = Path(settings.path) / "wandb"
        self._run: wandb.Run | None = None

    def begin(self, run: TrackedRun) -> None:
        """Find the run by its id or make it; raises TrackerError if the id is another project's run."""
        Path(self._settings.path).mkdir(parents=True, exist_ok=True)
        entity, _, project = run.experiment.rpartition("/")
        self._run = self._wandb.init(
            entity=entity or None, project=project, id=run.id, name=run.name, group=run.group or None, resume="allow",
            dir=self._settings.path, mode=self._settings.mode, settings=self._quiet(run),
        )  # fmt: skip
        owner = dict(self._run.config).get(OWNER, run.project)
        if owner != run.project:
            raise TrackerError(f"wanted run {run.id} of project {run.project}, found one of {owner}; name another")
        self._describe(run)

    def _quiet(self, run: TrackedRun) -> "wandb.Settings":
        server: dict[str, Any] = {"base_url": self._settings.url, "api_key": self._settings.token}
        return self._wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, save_code=False, disable_job_creation=True,
            x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True, x_save_requirements=False,
            x_start_time=run.started_ms / 1000, init_timeout=8.0, symlink=False,
            **{name: value for name, value in server.items() if value},
        )  # fmt: skip

    def write(self, points: Sequence[Point]) -> None:
        """Write one row for the points of one event; none where the program itself writes the run's history."""
        assert self._run is not None
        if self._settings.prefix:
            return
        for (step, time_ms), group in groupby(points, key=lambda point: (point.step, point.time_ms)):
            row = {point.metric: point.value for point in group}
            self._run.log(row | {"_timestamp": time_ms / 1000}, step=step)

    def finish(self, run: TrackedRun) -> None:
        """Write tags and end; earlier folders of an offline run are superseded, for this one has all of it."""
        assert self._run is not None
        self._describe(run)
        self._run.finish(exit_code=0 if run.status == "finished" else 1)
        self._run = None
        if self._settings.mode == "offline":
            for earlier in sorted(self._folders(run))[:-1]:
                shutil.rmtree(earlier)

    def look(self, run: TrackedRun) -> Mirrored | None:
        """Folders of an offline run, or the server's summary of an online one."""
        if self._settings.mode == "offline":
            folders = list(self._folders(run))
            size = sum(file.stat().st_size for folder in folders for file in folder.rglob("*.wandb"))
            return Mirrored(place=str(self._folder), size_bytes=size) if folders else None
        entity, _, project = run.experiment.rpartition("/")
        api = self._wandb.Api(api_key=self._settings.token, timeout=8, overrides={"base_url": self._settings.url or ""})
        found: Any = api.run(f"{entity + '/' if entity else ''}{project}/{run.id}")
        step, seconds = found.summary.get("_step"), found.summary.get("_timestamp")
        return Mirrored(place=found.url, step=step, time_ms=round(1000 * seconds) if seconds else None)

    def close(self) -> None:
        """End the upload; a run that goes on is marked as interrupted and not as finished."""
        if self._run is not None:
            self._run.mark_preempting()
            self._run.finish(exit_code=1)

    def _describe(self, run: TrackedRun) -> None:
        assert self._run is not None
        config: Any = self._run.config
        config.update({**run.parameters, OWNER: run.project, **run.tags}, allow_val_change=True)

    def _folders(self, run: TrackedRun) -> Iterator[Path]:
        return (folder for folder in self._folder.glob("offline-run-*") if folder.name.endswith(f"-{run.id}"))


def open_writer(settings: WriterSettings) -> WandbWriter:
    """Raises ImportError if wandb is not installed."""
    return WandbWriter(settings)
