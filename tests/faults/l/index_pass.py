"""Reads every record of a store into an index, in a process of its own; prints what that cost as JSON.

`python index_pass.py STORE DATABASE`
"""

import json
import sys
import time
from pathlib import Path

from tests.faults.instruments.memory import peak_bytes

from gangline.serve.context.service_context import StoreHealth
from gangline.serve.database.open import open_database
from gangline.serve.runs.indexer import Indexer
from gangline.storage.folder.store import FolderStore


class Counted:
    """A store that counts what is read of it."""

    def __init__(self, store):
        self._store, self.reads = store, 0

    def __getattr__(self, name):
        self.reads += name == "get"
        return getattr(self._store, name)


def main(store, path):
    database = open_database(path)
    counted = Counted(FolderStore(Path(store)))
    indexer = Indexer(counted, database.runs, health=StoreHealth())
    before = peak_bytes()
    reported = {}
    for name in ("first", "again"):
        began = time.monotonic()
        reported["count"] = indexer.full_pass()
        reported[f"{name}_seconds"] = time.monotonic() - began
        reported[f"{name}_reads"], counted.reads = counted.reads, 0
    reported |= {"grown_bytes": peak_bytes() - before, "rss_bytes": peak_bytes()}
    print(json.dumps(reported))
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
