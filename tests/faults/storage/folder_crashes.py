"""Kills a writer of a FolderStore at every system call that matters: `python folder_crashes.py FOLDER`; prints JSON.

One process forks a child for each point; the child counts calls that change the disk and kills itself at its own. After
each, a fresh store must show the old object or the new, take the next write, and hold nothing else.
"""

import json
import os
import signal
import sys
from functools import partial
from itertools import count
from pathlib import Path

from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.multipart import MIN_PART_BYTES

OLD, NEW, NEXT = b"old" * 1000, b"new" * 2000, b"next"
CALLS = (
    (os, "fsync"), (os, "utime"), (Path, "open"), (Path, "replace"), (Path, "hardlink_to"), (Path, "unlink"),
    (Path, "mkdir"),
)  # fmt: skip
"""`open` may empty what it opens."""


def upload(store):
    with store.upload("deep/key") as parts:
        parts.part(NEW[:10].ljust(MIN_PART_BYTES, b"."))
        parts.part(NEW)


WRITES = {
    "put": lambda store: store.put("deep/key", NEW),
    "create": lambda store: store.put_if_absent("deep/key", NEW),
    "swap": lambda store: store.compare_and_set("deep/key", NEW, store.get("deep/key").etag),
    "upload": upload,
    "delete": lambda store: store.delete("deep/key"),
}
UPLOADED = NEW[:10].ljust(MIN_PART_BYTES, b".") + NEW


def count_calls(at):
    """Count the calls from now on, and die before or after number `abs(at)`: before is negative."""
    numbers = count(1)

    def counted(real, *arguments, **options):
        number = next(numbers)
        if number == -at:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return real(*arguments, **options)
        finally:
            if number == at:
                os.kill(os.getpid(), signal.SIGKILL)

    for owner, name in CALLS:
        real = getattr(owner, name)
        wrapped = partial(counted, real)
        setattr(owner, name, wrapped if owner is os else lambda self, *a, _f=wrapped, **o: _f(self, *a, **o))


def killed(name, folder, at):
    child = os.fork()
    if child == 0:
        store = FolderStore(folder)
        if name != "create":
            store.put("deep/key", OLD)
        count_calls(at)
        WRITES[name](store)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) == (os.waitstatus_to_exitcode(status) == 0), status
    return os.WIFSIGNALED(status)


def check(name, folder):
    store = FolderStore(folder)
    blob = store.get("deep/key")
    found = blob.data if blob else None
    before = None if name == "create" else OLD
    after = {"delete": None, "upload": UPLOADED}.get(name, NEW)
    assert found in (before, after), (name, found and found[:20])
    assert [entry.key for entry in store.list("")] == ([] if found is None else ["deep/key"])
    for left in store.open_uploads():
        store.abort_upload(left)
    assert store.compare_and_set("deep/key", NEXT, blob.etag) if blob else store.put_if_absent("deep/key", NEXT)
    store.delete("deep/key")
    assert store.put("deep/key", NEXT)
    return "old" if found == before else "new"


def main(root):
    seen = {}
    for name in WRITES:
        states = []
        for point in count(1):
            folders = [root / f"{name}-{at}" for at in (-point, point)]
            damaged = [killed(name, folder, at) for folder, at in zip(folders, (-point, point), strict=True)]
            assert damaged[0] == damaged[1]
            states += [check(name, folder) for folder in folders]
            if not damaged[0]:
                break
        seen[name] = states
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
