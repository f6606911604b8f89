"""What the store has for a tracker: the events of rank 0 of all gangs of a training, in order."""

import re
from collections.abc import Iterator
from contextlib import suppress

from gangline.errors import IntegrityError
from gangline.spec.gang.status import read_event
from gangline.spec.output_limits import MOST_EVENT_BYTES
from gangline.spec.record import Record
from gangline.storage.objects.growing_file import find_growing_file
from gangline.storage.objects.keys import is_key
from gangline.storage.objects.protocol import ObjectStore, list_all
from gangline.trackers.operations import Event

_ATTEMPT = re.compile(r"/0-(\d{1,4})(?:\.\d{12})?\.jsonl\Z")


def stored_events(store: ObjectStore, record: Record) -> Iterator[Event]:
    """Events of rank 0 as the gangs of the training wrote them; a file that is too large or has too many lines ends.

    Raises:
        StorageError: The store is away.
    """
    folder, _, name = (record.curve.key or "").rpartition("/")  # of a training that was taken over, that run's
    folder = folder if name == "metrics.jsonl" and is_key(folder) else record.gang_prefix
    entries = list_all(store, f"{folder}/ranks/0-")
    earlier = sorted({int(match[1]) for entry in entries if (match := _ATTEMPT.search(entry.key))})
    for name in (*(f"0-{attempt}" for attempt in earlier), "0"):
        with suppress(IntegrityError):
            file = find_growing_file(store, f"{folder}/ranks/{name}.jsonl")
            if file is None:
                continue
            file.demand(MOST_EVENT_BYTES)
            for line in file:
                if (event := read_event(line)) is not None:
                    yield event
