"""Container images as bytes: layers that are the same for the same files, and the archive that containerd imports.

Knows tar and the OCI layout, no daemon. A layer is made once into a file and known by its digest; an archive may leave
out layers that the importing side has."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    digest: str
    """`sha256:...` over the tar."""
    size_bytes: int
    path: Path
    """The tar; it may be gone by now, where it is large and has been imported."""
    make: Callable[[], "Layer"] | None = field(default=None, compare=False)
    """Makes the tar again, byte for byte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One name in a layer; with neither `source` nor `data` a folder, with `link` a symbolic link."""

    name: str
    """Without a leading slash."""
    source: Path | None = None
    data: bytes | None = None
    link: str | None = None
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    name: str
    """Without tag and digest."""
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""

    @property
    def digest(self) -> str:
        return _digest(self._manifest())

    @property
    def reference(self) -> str:
        """As pods name it."""
        return f"{self.name}@{self.digest}"

    def write(self, target: IO[bytes], *, without: frozenset[str] = frozenset()) -> None:
        """The archive into a stream, but for layers whose digest is in `without`."""
        with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _add(archive, "index.json", self._index())
            for blob in (self._config(), self._manifest()):
                _add(archive, _blob(_digest(blob)), blob)
            for layer in self.layers:
                if layer.digest not in without:
                    _add_file(archive, Entry(name=_blob(layer.digest), source=layer.path))

    def _config(self) -> bytes:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {"PATH": path, **self.env}
        return _json(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {
                    "Entrypoint": list(self.entrypoint),
                    "Env": [f"{name}={value}" for name, value in sorted(environment.items())],
                    "User": self.user,
                    "WorkingDir": "/",
                },
                "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in self.layers]},
            }
        )

    def _manifest(self) -> bytes:
        config = self._config()
        return _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, "digest": _digest(config), "size": len(config)},
                "layers": [
                    {"mediaType": _LAYER, "digest": layer.digest, "size": layer.size_bytes} for layer in self.layers
                ],
            }
        )

    def _index(self) -> bytes:
        manifest = self._manifest()
        reported = {
            "mediaType": _MANIFEST,
            "digest": _digest(manifest),
            "size": len(manifest),
            "platform": {"architecture": "amd64", "os": "linux"},
            "annotations": {"io.containerd.image.name": self.reference},
        }
        return _json({"schemaVersion": 2, "manifests": [reported]})


def write_layer(path: Path, entries: Iterable[Entry]) -> Layer:
    """A tar of `entries`, sorted, owned by root, of no time; parent folders are made where none is named."""
    known = {entry.name: entry for entry in entries}
    for name in list(known):
        for parent in Path(name).parents:
            if str(parent) != ".":
                known.setdefault(str(parent), Entry(name=str(parent), mode=0o755))
    with path.open("wb") as target, tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(known):
            _add_entry(archive, known[name])
    return read_layer(path)


def read_layer(path: Path) -> Layer:
    with path.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    return Layer(digest=f"sha256:{digest}", size_bytes=path.stat().st_size, path=path)


def _add_entry(archive: tarfile.TarFile, entry: Entry) -> None:
    if entry.source is not None:
        _add_file(archive, entry)
    elif entry.data is not None:
        _add(archive, entry.name, entry.data, mode=entry.mode)
    else:
        info = tarfile.TarInfo(entry.name)
        info.type, info.linkname = (tarfile.SYMTYPE, entry.link) if entry.link else (tarfile.DIRTYPE, "")
        info.mode = 0o777 if entry.link else entry.mode
        archive.addfile(info)


def _add_file(archive: tarfile.TarFile, entry: Entry) -> None:
    assert entry.source is not None
    info = tarfile.TarInfo(entry.name)
    with entry.source.open("rb") as source:
        info.size, info.mode = os.fstat(source.fileno()).st_size, entry.mode
        archive.addfile(info, source)


def _add(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    archive.addfile(info, io.BytesIO(data))


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
