"""The code layer: the tracked files of a tree that `project.include` and `exclude` leave, as one deterministic tar.

Equal trees give equal bytes: sorted paths, no times, no owners. Links and submodules stay out, line.toml too: it is
read as the plan, so that a changed gate does not train again.
"""

import io
import tarfile
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.line.git import Repository, TreeEntry
from gangline.spec.globs import any_matches
from gangline.spec.line import ProjectTable
from gangline.units import format_bytes

MAX_BYTES = 64 * 1024 * 1024
_NEVER = ("line.toml", ".gangline/**", ".gitignore", ".gitattributes")


@dataclass(frozen=True, slots=True)
class CodeLayer:
    tar: bytes
    files: int
    size_bytes: int
    links: tuple[str, ...]
    """Paths of links, which were left out."""


def pack(repository: Repository, tree: str, project: ProjectTable) -> CodeLayer:
    """The layer of `tree`.

    Raises:
        ConfigError: Nothing is left, or more than 64 MiB.
    """
    chosen = [entry for entry in repository.entries(tree) if _belongs(entry.path, project)]
    files = [entry for entry in chosen if entry.is_file]
    size = sum(entry.size_bytes for entry in files)
    if not files:
        raise ConfigError("project.include and project.exclude leave no file of the commit; commit some or widen them")
    if size > MAX_BYTES:
        worst = max(files, key=lambda entry: entry.size_bytes)
        raise ConfigError(
            f"the code layer holds at most {format_bytes(MAX_BYTES)}, found {format_bytes(size)};"
            f' leave the largest out: project.exclude = ["{worst.path}"]'
        )
    links = tuple(entry.path for entry in chosen if not entry.is_file)
    return CodeLayer(_tar(repository, files), len(files), size, links)


def _belongs(path: str, project: ProjectTable) -> bool:
    wanted = not project.include or any_matches(path, project.include)
    return wanted and not any_matches(path, project.exclude) and not any_matches(path, _NEVER)


def _tar(repository: Repository, files: list[TreeEntry]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        contents = repository.blobs([entry.blob for entry in files])
        for entry, data in zip(files, contents, strict=True):
            member = tarfile.TarInfo(entry.path)
            member.size, member.mode = len(data), 0o755 if entry.mode == "100755" else 0o644
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()
