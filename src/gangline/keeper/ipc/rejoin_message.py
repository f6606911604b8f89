"""The keeper's message to live replicas: where to meet the replaced rank. Standard library only."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gangline.spec.plan import Plan
from gangline.storage.folder.durable_files import replace_file

REJOIN_FILE = "live.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RejoinMessage:
    generation: int
    """It begins when all ranks have met."""
    port: int
    """Of its rendezvous store."""


def is_live(plan: Plan) -> bool:
    """Ranks of `plan` stay when one is lost: in the run's own training, of a task."""
    return plan.recovery.mode == "live" and plan.role == "train" and plan.program.task is not None


def write_rejoin(home: Path, order: RejoinMessage) -> None:
    """Leave word in the gang's folder, in place of any earlier one."""
    replace_file(home / REJOIN_FILE, json.dumps(asdict(order)).encode(), durable=False)


def read_rejoin(home: Path) -> RejoinMessage | None:
    """The latest word; None: there was none."""
    try:
        return RejoinMessage(**json.loads((home / REJOIN_FILE).read_bytes()))
    except FileNotFoundError:
        return None


def remove_rejoin(home: Path) -> None:
    """No word stands: what an earlier keeper said there is of another gang."""
    (home / REJOIN_FILE).unlink(missing_ok=True)
