"""An index of runs over an S3 store that is cut off; in a network of its own.

`python divided_store.py FOLDER WAY` prints what came of it as JSON.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.contracts.storage.servers import S3Server
from tests.faults.n.network import bring_up, cut
from tests.report.records import passed

from gangline.cli.log_setup import set_up_logs
from gangline.serve.context.service_context import StoreHealth
from gangline.serve.database.open import open_database
from gangline.serve.runs.indexer import Indexer
from gangline.serve.startup import STORE_SECONDS

SECONDS = 120.0


def main(folder, way):
    set_up_logs({})
    bring_up()
    (folder / "s3").mkdir()
    server = S3Server("versitygw", folder / "s3").start()
    store = server.store("p", deadline_seconds=STORE_SECONDS)
    database, health = open_database(str(folder / "index.db")), StoreHealth()
    indexer = Indexer(store, database.runs, health=health)
    first, second = passed(), another(passed())
    store.put(f"{first.prefix}/record.json", first.to_json())
    indexer.start()
    seconds_until(lambda: database.runs.get(first.run.id) is not None)
    with cut(way, "127.0.0.1", server.port):
        noticed = seconds_until(lambda: health.problem() is not None)
        kept = database.runs.get(first.run.id) is not None
    healed = time.monotonic()
    store.put(f"{second.prefix}/record.json", second.to_json())
    indexer.refresh(second.run.project, second.commit.sha, second.run.id)
    seconds_until(lambda: database.runs.get(second.run.id) is not None and health.problem() is None)
    print(json.dumps({"noticed_seconds": noticed, "kept": kept, "alive_seconds": time.monotonic() - healed}))
    indexer.close()
    server.stop()


def another(record):
    run = replace(record.run, id=record.run.id[:-1] + ("a" if record.run.id[-1] != "a" else "b"))
    return replace(record, run=run)


def seconds_until(holds):
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < SECONDS
        time.sleep(0.05)
    return time.monotonic() - began


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
