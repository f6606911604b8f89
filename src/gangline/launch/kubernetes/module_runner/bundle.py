"""A job's code and files as one object of the store, written as it is read: a model may be large."""

import hashlib
import io
import tarfile
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.spec.gang.one_shot_pod import CALL, CODE, FILES, ModuleCall
from gangline.storage.objects.protocol import ObjectStore, Upload

_PART_BYTES = 16 * 2**20


def put_bundle(store: ObjectStore, key: str, job: ModuleJob) -> str:
    """Write it; returns its digest.

    Raises:
        IntegrityError: A folder holds links or devices.
        StorageError: The store failed.
    """
    call = ModuleCall(
        module=job.module, arguments=job.arguments, seconds=job.seconds, path=job.path, env=dict(job.env)
    )  # fmt: skip
    with store.upload(key) as upload:
        parts = _Parts(upload)
        with tarfile.open(fileobj=parts, mode="w|", bufsize=_PART_BYTES) as tar:  # type: ignore[call-overload]  # it writes
            _add(tar, CALL, call.to_json())
            if job.code is not None:
                _add(tar, CODE, job.code)
            for name, data in job.files.items():
                _add(tar, f"{FILES}/{name}", data)
    return parts.digest.hexdigest()


def size_bytes(job: ModuleJob) -> int:
    """Of the files that it is given."""
    return sum(len(data) if isinstance(data, bytes) else _size(data) for data in job.files.values())


class _Parts:
    """What tarfile writes to, in blocks of `bufsize`."""

    def __init__(self, upload: Upload) -> None:
        self._upload, self.digest = upload, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._upload.part(data)
        self.digest.update(data)
        return len(data)


def _add(tar: tarfile.TarFile, name: str, data: bytes | Path) -> None:
    if isinstance(data, Path):
        tar.add(data.resolve(), name, filter=_plain)
    else:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    if not (entry.isfile() or entry.isdir()):
        raise IntegrityError(f"{entry.name}: wanted a plain file or a folder for a pod, found a link or a device")
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())
