"""A drill from the command line: its run is started beside it when none is named, and its result is written down."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gangline.cli.desk import Desk
from gangline.cli.detach import BackgroundDriver, start_driver
from gangline.errors import TrainingError, UsageError
from gangline.line.cancel import cancel_run
from gangline.line.drill.report import DrillReport, with_drill
from gangline.line.drill.run import drill
from gangline.line.launchers import gangs_root, open_launcher
from gangline.line.runs import find_run, records_of
from gangline.line.states import stage
from gangline.spec.record import Record

START_SECONDS = 180.0
STOP_SECONDS = 60.0


def rehearse(
    desk: Desk,
    name: str,
    *,
    run: str | None,
    rank: int | None,
    step: int | None,
    seconds: float | None,
    seed: int,
    tell: Callable[[str], None],
) -> DrillReport:
    """Strike `run`, or a fresh run of HEAD that is cancelled afterwards, and keep the result in its record."""
    with _struck_run(desk, run, tell) as record:
        if record.gang is None:
            raise UsageError(
                f"{record.run.id} has no gang to strike; gangline show {record.run.id} says where it stands"
            )
        launcher = open_launcher(desk.repo, site=desk.site, environ=desk.environ, store=desk.store)
        report = drill(
            name, record, launcher=launcher, home=gangs_root(desk.repo) / record.gang.name, store=desk.store,
            site=desk.site, rank=rank, step=step, seconds=seconds, seed=seed, tell=tell,
        )  # fmt: skip
        records_of(desk.store, record).change(lambda each: with_drill(each, report.drill))
    return report


@contextmanager
def _struck_run(desk: Desk, run: str | None, tell: Callable[[str], None]) -> Iterator[Record]:
    """The named run; else the next attempt of what stands here, trained for the drill and cancelled after it."""
    if run is not None:
        yield desk.run(run)
        return
    driver = start_driver([str(desk.repo), "--again", "--until", "train"])
    tell(f"run      {driver.run}, started for this drill")
    try:
        yield _once_it_trains(desk, driver)
    finally:
        cancel_run(
            desk.repo, driver.run, site=desk.site, environ=desk.environ, reason="the drill it was started for is over",
            save=False,
        )  # fmt: skip
        driver.process.wait(timeout=STOP_SECONDS)


def _once_it_trains(desk: Desk, driver: BackgroundDriver) -> Record:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        record = find_run(desk.store, driver.run)
        if record.gang is not None and stage(record, "train").state == "running":
            return record
        if driver.process.poll() is not None:
            raise TrainingError(
                f"{driver.run} ended before it trained: {record.run.reason}; gangline show {driver.run}"
            )
        time.sleep(0.1)
    raise TrainingError(
        f"wanted {driver.run} to train within {START_SECONDS:.0f} s, found it waiting; see gangline show"
    )
