"""The keeper's word to living ranks: where to meet the one that was started again. Standard library alone."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gangline.train.journal import replace

ORDER_FILE = "live.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeetAgain:
    generation: int
    """It begins when all ranks have met."""
    port: int
    """Of its rendezvous store."""


def tell(home: Path, order: MeetAgain) -> None:
    """Leave word in the gang's folder, in place of any earlier one."""
    replace(home / ORDER_FILE, json.dumps(asdict(order)).encode(), durable=False)


def hear(home: Path) -> MeetAgain | None:
    """The latest word; None: there was none."""
    try:
        return MeetAgain(**json.loads((home / ORDER_FILE).read_bytes()))
    except FileNotFoundError:
        return None
