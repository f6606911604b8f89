"""The wish to go on without the node of a slow rank: a file in a gang's folder. A rank writes it, its keeper decides.

A wish binds the generation that it was written in, whose ranks it numbers.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gangline.train.journal import replace

EVICT_FILE = "evict.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Eviction:
    generation: int
    rank: int
    reason: str


def ask_eviction(home: Path, wish: Eviction) -> None:
    """Leave the wish in the folder of the gang."""
    replace(home / EVICT_FILE, json.dumps(asdict(wish)).encode(), durable=False)


def read_eviction(home: Path, generation: int) -> Eviction | None:
    """The wish of this generation; None: it has none, or what is there is no wish."""
    try:
        wish = Eviction(**json.loads((home / EVICT_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return wish if wish.generation == generation and isinstance(wish.rank, int) else None
