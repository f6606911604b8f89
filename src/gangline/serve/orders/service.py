"""Everything of a service that works on orders, started and stopped together."""

from collections.abc import Sequence
from pathlib import Path

from gangline.line.clones import Clones
from gangline.serve.desk import ServiceDesk
from gangline.serve.orders.children import PROGRAM
from gangline.serve.orders.schedules import Schedules
from gangline.serve.orders.sweep import Sweeper
from gangline.serve.orders.workers import Workers

BUSY_SECONDS = 10.0
"""A worker waits so long for a clone that another one fetches; then it takes another order."""


class OrderService:
    """Workers and sweep over one home."""

    def __init__(self, desk: ServiceDesk, *, program: Sequence[str] = PROGRAM) -> None:
        """`program` is what drives a run."""
        most_bytes = int(desk.site.serve.clone_bytes)
        clones = Clones(clones_home(desk.home), most_bytes=most_bytes, wait_seconds=BUSY_SECONDS)
        schedules = Schedules(desk.home / "schedules.json")
        self.workers = Workers(desk, clones, schedules, program=program)
        self.sweeper = Sweeper(desk, clones, schedules)

    def start(self) -> None:
        self.workers.start()
        self.sweeper.start()

    def close(self) -> None:
        """Take up no more; drivers that were started go on, and the next service finds them."""
        self.sweeper.close()
        self.workers.close()


def clones_home(home: Path) -> Path:
    return home / "clones"


def folder_of(home: Path, project: str, commit: str) -> Path | None:
    """Where a service with this home drives the commit of a project: the folder whose `.gangline` has its gangs."""
    found = clones_home(home).glob(f"{project}-*/commits/{commit}")
    return next((each for each in found if each.parents[1].name.rpartition("-")[0] == project), None)
