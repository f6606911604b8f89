"""The images of the test cluster and what each is made of, by key: what is there at its key is not made again."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tests.cluster.images.archive import Entry, Image, Layer, write_layer
from tests.cluster.images.base import USER, base_layer
from tests.cluster.images.packages import (
    LEFT_OUT,
    RECIPE,
    TARGET,
    closure,
    locked_packages,
    package_entries,
    small_packages,
    source_entries,
)
from tests.cluster.rig import places, process
from tests.cluster.servers.build import program

SMALL = "gangline.test/small"
TRAIN = "gangline.test/train"
FEDERATION = "gangline.test/federation"
_FEDERATED = ("nvflare", "opacus", "pyyaml")
_ROOT = Path(__file__).parents[3]
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "HOME": "/gangline"}
_FOLDERS = (Entry(name="gangline", mode=0o755),)


def pause() -> Image:
    return Image(name="gangline.test/pause", layers=(_program_layer("pause"),), entrypoint=("/pause",), user=USER)


def jobset() -> Image:
    return _operator("jobset", "jobset")


def trainer() -> Image:
    return _operator("trainer", "trainer-controller-manager")


def kueue() -> Image:
    return _operator("kueue", "kueue")


def small_base() -> Image:
    """What a commit does not change of `small`."""
    return _python(f"{SMALL}-base", (base_layer(), _package_layer("small", small_packages())))


def small() -> Image:
    """Python and gangline with what a keeper needs; no torch."""
    return _python(SMALL, (*small_base().layers, _code_layer()))


def train_base() -> Image:
    """What a commit does not change of `train`."""
    return _python(f"{TRAIN}-base", (base_layer(), _package_layer("train", locked_packages())))


def train() -> Image:
    """Python, gangline, torch with the CUDA libraries that it is linked with."""
    return _python(TRAIN, (*train_base().layers, _code_layer()))


def federation_base() -> Image:
    """What a commit does not change of `federation`; its lower layers are those of `train_base`."""
    added = closure(_FEDERATED) - locked_packages()
    return _python(f"{FEDERATION}-base", (*train_base().layers, _package_layer("federation", added, _sandbox)))


def federation() -> Image:
    """The image of coordinators and members: that of ranks with NVFlare, Opacus, the command line and bubblewrap."""
    return _python(FEDERATION, (*federation_base().layers, _code_layer()))


def _sandbox() -> list[Entry]:
    """Bubblewrap and its library as this machine has them, of the same release as the base, and the command line."""
    library = Path("/usr/lib/x86_64-linux-gnu/libcap.so.2").resolve()
    command = b"#!/usr/bin/python3\nfrom gangline.cli.main import main\nmain()\n"
    return [
        Entry(name="usr/bin/bwrap", source=Path("/usr/bin/bwrap"), mode=0o755),
        Entry(name="usr/local/lib/libcap.so.2", source=library),
        Entry(name="usr/local/bin/gangline", data=command, mode=0o755),
    ]


def _operator(name: str, server: str) -> Image:
    layers = (_program_layer(server),)
    return Image(name=f"gangline.test/{name}", layers=layers, entrypoint=(f"/{server}",), user=USER)


def _python(name: str, layers: tuple[Layer, ...]) -> Image:
    return Image(name=name, layers=layers, env=_ENVIRONMENT, user=USER)


def _program_layer(name: str) -> Layer:
    path = program(name)
    return _layer(f"{name}-{path.parent.name}", lambda: [Entry(name=name, source=path, mode=0o755)])


def _package_layer(name: str, packages: set[str], more: Callable[[], list[Entry]] = list) -> Layer:
    lock = (_ROOT / "requirements" / "run.txt").read_bytes()
    key = hashlib.sha256(lock + repr((RECIPE, LEFT_OUT, sorted(packages))).encode()).hexdigest()[:12]
    return _layer(f"{name}-{key}", lambda: [*_FOLDERS, *package_entries(packages), *more()])


def _code_layer() -> Layer:
    """gangline itself: the only layer that a commit changes. Read once, so that key and files fit an editor at work."""
    root = _ROOT / "src"
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    sources = {f"{TARGET}/{path.relative_to(root)}": path.read_bytes() for path in files}
    key = hashlib.sha256()
    for name, source in sources.items():
        key.update(f"{name}\0".encode() + hashlib.sha256(source).digest())
    layer = _layer(f"code-{key.hexdigest()[:12]}", lambda: source_entries(sources))
    _keep_newest("code-*")
    return layer


def _keep_newest(pattern: str, *, count: int = 8) -> None:
    """Layers of earlier code are small, and there is one for each edit."""
    known = sorted((places.home() / "images").glob(f"{pattern}.json"), key=lambda path: path.stat().st_mtime)
    for note in known[:-count]:
        note.unlink(missing_ok=True)
        note.with_suffix(".tar").unlink(missing_ok=True)


def _layer(key: str, entries: Callable[[], Iterable[Entry]]) -> Layer:
    """By its note, or made and noted; the note outlives a large tar."""
    path = places.home() / "images" / f"{key}.tar"
    note = path.with_suffix(".json")

    def make() -> Layer:
        path.parent.mkdir(parents=True, exist_ok=True)
        _forget_halves(path)
        staged = path.with_suffix(f".{os.getpid()}")
        made = write_layer(staged, entries())
        staged.replace(path)
        staged.write_text(json.dumps({"digest": made.digest, "size_bytes": made.size_bytes}))
        staged.replace(note)
        return replace(made, path=path, make=make)

    return Layer(**json.loads(note.read_text()), path=path, make=make) if note.is_file() else make()


def _forget_halves(path: Path) -> None:
    """What processes that were killed left of this layer."""
    for half in path.parent.glob(f"{path.stem}.[0-9]*"):
        if process.started(int(half.suffix[1:])) is None:
            half.unlink(missing_ok=True)
