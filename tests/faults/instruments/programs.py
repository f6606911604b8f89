"""Programs for the enumerator's own tests: `python programs.py NAME FOLDER`; some are safe to run again, some not."""

import json
import sys
from pathlib import Path

from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.blobs import put_blob

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.faults.instruments.crash_points import CountingStore, CrashPlan


def careful(store, folder, plan):
    """A record by compare-and-set, a blob by digest, a marker file: whatever ran before is found and kept."""
    store.put_if_absent("record", json.dumps({"stages": []}).encode())
    for stage in ("build", "train"):
        key = put_blob(store, f"result of {stage}".encode())
        blob = store.get("record")
        record = json.loads(blob.data)
        if stage not in record["stages"]:
            record["stages"].append(stage)
            record[stage] = key
            assert store.compare_and_set("record", json.dumps(record).encode(), blob.etag)
    if store.get("model") is None:
        with store.upload("model") as upload:
            upload.part(b"weights")
    for left in store.open_uploads():
        store.abort_upload(left)
    with plan.effect("touch", "done"):
        (folder / "done").touch()


def forgetful(store, folder, plan):
    """Appends without looking: a kill after the write and before its answer repeats it."""
    blob = store.get("log")
    store.put("log", (blob.data if blob else b"") + b"started\n")
    store.put("end", b"ended")


def stuck(store, folder, plan):
    """Takes a lock that a crash leaves behind."""
    if store.put_if_absent("lock", b"mine") is None:
        sys.exit("the lock is held")
    store.put("work", b"done")
    store.delete("lock")


def bypassing(store, folder, plan):
    """Writes one object past the wrapper."""
    store.put("seen", b"1")
    FolderStore(folder / "store").put("unseen", b"2")


def silent(store, folder, plan):
    """Has no effect at all."""


if __name__ == "__main__":
    place = Path(sys.argv[2])
    crash = CrashPlan.from_environment()
    globals()[sys.argv[1]](CountingStore(FolderStore(place / "store"), crash), place, crash)
