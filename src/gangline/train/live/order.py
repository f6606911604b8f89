"""Whether ranks stay, and the keeper's word to them: where to meet who was started again. Standard library alone."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gangline.spec.plan import Plan
from gangline.train.journal import replace

ORDER_FILE = "live.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeetAgain:
    generation: int
    """It begins when all ranks have met."""
    port: int
    """Of its rendezvous store."""


def is_live(plan: Plan) -> bool:
    """Ranks of `plan` stay when one is lost: in the run's own training, of a task."""
    return plan.recovery.mode == "live" and plan.role == "train" and plan.program.task is not None


def tell(home: Path, order: MeetAgain) -> None:
    """Leave word in the gang's folder, in place of any earlier one."""
    replace(home / ORDER_FILE, json.dumps(asdict(order)).encode(), durable=False)


def hear(home: Path) -> MeetAgain | None:
    """The latest word; None: there was none."""
    try:
        return MeetAgain(**json.loads((home / ORDER_FILE).read_bytes()))
    except FileNotFoundError:
        return None


def forget(home: Path) -> None:
    """No word stands: what an earlier keeper said there is of another gang."""
    (home / ORDER_FILE).unlink(missing_ok=True)
