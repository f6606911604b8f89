"""Members of a layer: files, folders and links with numeric owners and without times."""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gangline.errors import BuildError
from gangline.spec.globs import any_matches


@dataclass(frozen=True, slots=True)
class LayerMember:
    """A file unless `link` or `folder` says otherwise."""

    path: str
    """Relative to the root of the image."""
    data: bytes | Path = b""
    """Content, or the file that has it."""
    mode: int = 0o644
    link: str | None = None
    """Target of a symbolic link."""
    folder: bool = False
    uid: int = 0
    gid: int = 0

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in self.path or "/".join(parts) != self.path:
            raise BuildError(f"wanted a plain relative path in a layer, found {self.path!r}")


def members_of_folder(
    folder: Path, *, at: str = "", exclude: Sequence[str] = (), owner: tuple[int, int] | None = (0, 0)
) -> Iterator[LayerMember]:
    """Everything below `folder`, sorted; hard links become files of their own.

    Args:
        folder: Links are kept, not followed.
        at: Where it goes in the image; `folder` itself is a member then.
        exclude: Globs over paths relative to `folder`.
        owner: Of every member; None: as on disk.

    Raises:
        BuildError: A device, pipe or socket is there; leave it out by `exclude`.
    """
    if at:
        yield _member(folder, at, owner)
    for path in _walk(folder, folder, exclude):
        relative = path.relative_to(folder).as_posix()
        yield _member(path, f"{at}/{relative}" if at else relative, owner)


def _walk(root: Path, folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for path in sorted(folder.iterdir(), key=lambda each: each.name.encode(errors="surrogateescape")):
        if any_matches(path.relative_to(root).as_posix(), exclude):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(root, path, exclude)


def _member(path: Path, name: str, owner: tuple[int, int] | None) -> LayerMember:
    seen = path.lstat()
    uid, gid = owner if owner is not None else (seen.st_uid, seen.st_gid)
    mode = stat.S_IMODE(seen.st_mode)
    if stat.S_ISLNK(seen.st_mode):
        return LayerMember(name, link=str(path.readlink()), mode=0o777, uid=uid, gid=gid)
    if stat.S_ISDIR(seen.st_mode):
        return LayerMember(name, folder=True, mode=mode, uid=uid, gid=gid)
    if stat.S_ISREG(seen.st_mode):
        return LayerMember(name, data=path, mode=mode, uid=uid, gid=gid)
    raise BuildError(f"{path} is a device, pipe or socket, which no layer holds; leave it out: exclude = [{name!r}]")
