"""The lowest layer of images that run Python: a small Debian with its python3, made by debootstrap and kept.

Its packages are those of the day it was made; the same file gives the same digest from then on."""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.cluster.images.archive import Layer, read_layer
from tests.cluster.rig import places
from tests.cluster.rig.output import say
from tests.cluster.rig.trouble import Trouble

PYTHON = (3, 11)
"""Of this release; packages that are copied into an image must be built for it."""
USER = "65532"
"""Whom images run as, unless a pod says otherwise."""
_RELEASE = "bookworm"
_INCLUDED = "python3"
"""The whole standard library: python3-minimal has no dataclasses."""
_RECIPE = 1
_LEFT_OUT = (
    "dev", "proc", "sys", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian",
    "var/cache", "var/lib/apt/lists", "var/log",
)  # fmt: skip


def base_layer() -> Layer:
    """Of the kept file; made first where there is none, in about two minutes."""
    path = base_path()
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        say("images", f"base: debootstrap {_RELEASE} with {_INCLUDED}, a minute or two, once")
        _make(path)
    return read_layer(path)


def base_path() -> Path:
    """Of the kept file, there or not."""
    key = hashlib.sha256(repr((_RELEASE, _INCLUDED, _LEFT_OUT, USER, _RECIPE)).encode()).hexdigest()[:12]
    return places.home() / "images" / f"base-{key}.tar"


def _make(path: Path) -> None:
    root = path.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    _debootstrap(root)
    (root / "usr/bin/python").symlink_to("python3")
    with (root / "etc/passwd").open("a") as users:
        users.write(f"gangline:x:{USER}:{USER}::/gangline:/usr/sbin/nologin\n")
    with (root / "etc/group").open("a") as groups:
        groups.write(f"gangline:x:{USER}:\n")
    staged = path.with_suffix(".new")
    with tarfile.open(staged, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(root, arcname=".", recursive=False, filter=_plain)
        for name in sorted(str(each.relative_to(root)) for each in root.rglob("*")):
            if not any(name == left or name.startswith(f"{left}/") for left in _LEFT_OUT):
                archive.add(root / name, arcname=name, recursive=False, filter=_plain)
    staged.replace(path)
    shutil.rmtree(root)


def _debootstrap(root: Path) -> None:
    ended = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={_INCLUDED}", _RELEASE, str(root)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise Trouble(f"debootstrap ended with {ended.returncode}: {ended.stdout.strip()[-500:]}")


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without times; devices are the runtime's to make."""
    if info.isdev():
        return None
    info.mtime = 0
    return info
