"""The code layer of a commit: the tracked files that `project.include` and `exclude` leave, as one deterministic ZIP.

Equal trees give equal bytes. Links become copies of what they point at inside the tree, so that nothing in a gang
depends on links; those that leave the tree are refused, as submodules with content and Git LFS pointers are, because
a gang would miss them. line.toml stays out: it is read as the plan, so that a changed gate does not train again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gangline.data.lfs import pointed_size
from gangline.errors import ConfigError, IntegrityError
from gangline.line.build.links import Links
from gangline.line.git import Repository
from gangline.line.git_objects import TreeEntry
from gangline.spec.globs import any_matches
from gangline.spec.line import ProjectTable
from gangline.spec.problems import refusal
from gangline.storage import layer
from gangline.storage.layer import LayerFile
from gangline.units import format_bytes

_NEVER = ("line.toml", ".gangline/**", ".gitignore", ".gitattributes")


@dataclass(frozen=True, slots=True)
class CodeLayer:
    """The commit's code as one archive."""

    data: bytes
    """The ZIP, as `storage.layer` reads it."""
    files: int
    size_bytes: int
    """Of the files."""
    links: tuple[str, ...]
    """Paths of links, each of which became a copy."""


def pack(repository: Repository, tree: str, project: ProjectTable) -> CodeLayer:
    """The layer of `tree`.

    Raises:
        ConfigError: Nothing is left, more than 64 MiB, a link that leaves the tree, a submodule with content, a file
            that the commit holds as Git LFS pointer alone.
    """
    entries = repository.entries(tree)
    _refuse_submodules(repository, tree, project)
    links = _links(repository, entries, project)
    chosen = dict(_chosen(entries, links, project))
    _check_size(chosen)
    contents = repository.blobs([entry.blob for entry in chosen.values()])
    files = [
        LayerFile(path, data, entry.mode == "100755")
        for (path, entry), data in zip(chosen.items(), contents, strict=True)
    ]
    _refuse_pointers(files)
    try:
        data = layer.pack(files)
    except IntegrityError as error:
        raise ConfigError(f"the code layer: {error}; rename it or leave it out by project.exclude") from error
    size = sum(entry.size_bytes for entry in chosen.values())
    return CodeLayer(data, len(files), size, tuple(sorted(links.wanted)))


def _links(repository: Repository, entries: tuple[TreeEntry, ...], project: ProjectTable) -> Links:
    """All links of the tree, because one may lead through another; those that belong to the layer are wanted."""
    found = [entry for entry in entries if not entry.is_file]
    targets = repository.blobs([entry.blob for entry in found]) if found else iter(())
    return Links(
        targets={entry.path: data.decode(errors="replace") for entry, data in zip(found, targets, strict=True)},
        files=frozenset(entry.path for entry in entries if entry.is_file),
        wanted=frozenset(entry.path for entry in found if _belongs(entry.path, project)),
    )


def _chosen(entries: tuple[TreeEntry, ...], links: Links, project: ProjectTable) -> Iterator[tuple[str, TreeEntry]]:
    """Path in the layer, and the entry whose content it has."""
    files = {entry.path: entry for entry in entries if entry.is_file}
    for path, entry in files.items():
        if _belongs(path, project):
            yield path, entry
    for path, source in links.copies():
        if _belongs(path, project):
            yield path, files[source]


def _belongs(path: str, project: ProjectTable) -> bool:
    wanted = not project.include or any_matches(path, project.include)
    return wanted and not any_matches(path, project.exclude) and not any_matches(path, _NEVER)


def _check_size(chosen: dict[str, TreeEntry]) -> None:
    if not chosen:
        raise ConfigError("project.include and project.exclude leave no file of the commit; commit some or widen them")
    size = sum(entry.size_bytes for entry in chosen.values())
    if size > layer.MAX_BYTES:
        worst = max(chosen, key=lambda path: chosen[path].size_bytes)
        raise ConfigError(
            f"the code layer holds at most {format_bytes(layer.MAX_BYTES)}, found {format_bytes(size)};"
            f' leave the largest out: project.exclude = ["{worst}"]'
        )


def _refuse_pointers(files: Iterable[LayerFile]) -> None:
    for file in files:
        if size := pointed_size(file.data):
            raise refusal(
                f"{file.path}: wanted the file, found a Git LFS pointer to {size} that are not in the commit; commit"
                " the file itself, name data by a key of the store (data.text, data.shards), or leave it out:"
                f' project.exclude = ["{file.path}"]'
            )


def _refuse_submodules(repository: Repository, tree: str, project: ProjectTable) -> None:
    for path in repository.submodules(tree):
        folder = repository.root / path
        if _belongs(path, project) and folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(
                f"{path} is a submodule with content, which a commit does not hold; add its files to the repository,"
                f' install it by env.lock, or leave it out: project.exclude = ["{path}"]'
            )
