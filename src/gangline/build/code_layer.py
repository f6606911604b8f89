"""Code layer of a commit: the tracked files that `project.include` and `exclude` select, as one deterministic ZIP."""

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.build import submodules
from gangline.build.symlinks import SymlinkResolver
from gangline.errors import ConfigError, IntegrityError
from gangline.git.objects import TreeEntry, substitute
from gangline.git.repository import Repository
from gangline.spec.config.line import ProjectTable
from gangline.spec.config.problems import refusal
from gangline.spec.globs import any_matches
from gangline.storage.objects import code_layer
from gangline.storage.objects.code_layer import LayerFile
from gangline.units import format_bytes

_NEVER = ("line.toml", ".gangline/**", ".gitignore", ".gitattributes")


@dataclass(frozen=True, slots=True)
class CodeLayer:
    """The commit's code as one archive."""

    data: bytes
    """The ZIP, as `storage.objects.code_layer` reads it."""
    files: int
    size_bytes: int
    """Of the files."""
    links: tuple[str, ...]
    """Paths of links, each of which became a copy."""
    folder: str = ""
    """Of the line in the layer; empty: it is the top."""
    edited: tuple[str, ...] = ()
    """Submodules whose files on disk are not those of their commit, which the layer has."""


@dataclass(frozen=True, slots=True)
class LayerSelection:
    """Which files of a repository belong to a layer, by their paths in it."""

    project: ProjectTable
    folder: str = ""
    """Of the line in the layer; empty: it is the top."""
    beside: tuple[str, ...] = ()
    """Globs of files outside of that folder, from the top of the repository."""

    @staticmethod
    def of(project: ProjectTable, repository: Repository) -> "LayerSelection":
        """Raises ConfigError for a glob that leads out of the repository."""
        if not project.beside:
            return LayerSelection(project)
        folder = repository.prefix.strip("/")
        globs = tuple(posixpath.normpath(posixpath.join(folder, each)) for each in project.beside)
        for requested, found in zip(project.beside, globs, strict=True):
            if found.split("/")[0] == "..":
                where = f"in its folder {folder}" if folder else "at its top"
                raise ConfigError(
                    f"line.toml: project.include: wanted files of the repository, found {requested!r} of a line"
                    f" {where}: it leads out of it; move the files into the repository and commit them"
                )
        return LayerSelection(project, folder, globs)

    def holds(self, path: str) -> bool:
        """Does the code layer hold `path`?"""
        own = path.removeprefix(f"{self.folder}/") if self.folder else path
        if self.folder and own == path:
            return any_matches(path, self.beside)
        wanted = not self.project.own or any_matches(own, self.project.own)
        return wanted and not any_matches(own, self.project.exclude) and not any_matches(own, _NEVER)

    def names_submodule(self, submodule: str) -> bool:
        """Does a glob of `project.include` begin with this path of the layer?"""
        own = [posixpath.join(self.folder, each) for each in self.project.own]
        return any(f"{each}/".startswith(f"{submodule}/") for each in (*own, *self.beside))

    def placed(self, entries: Iterable[TreeEntry]) -> Iterator[TreeEntry]:
        """Entries of the line's folder, at their places in the layer."""
        return (replace(each, path=f"{self.folder}/{each.path}") if self.folder else each for each in entries)


def pack(repository: Repository, tree: str, project: ProjectTable, *, commit: str = "HEAD") -> CodeLayer:
    """The layer of `tree`, the line's folder of `commit` or its state in the working tree.

    Raises:
        ConfigError: No file is left, a glob that leaves the repository, a missing folder of `project.path`, more
            than 64 MiB, a link that leaves the tree, a submodule with content that no glob names or whose commit is not
            here, a file whose content is not in the commit (Git LFS, git-annex, git-crypt).
    """
    choice = LayerSelection.of(project, repository)
    own = choice.placed(repository.entries_and_submodules(tree))
    top = repository.work_tree if choice.folder else repository.root
    whole = submodules.expand(
        repository, (*own, *_outside_files(repository, commit, choice)), top, is_named=choice.names_submodule
    )
    repository = whole.repository
    _refuse_submodules(top, [each.path for each in whole.entries if each.is_submodule], choice)
    entries = tuple(each for each in whole.entries if not each.is_submodule)
    links = _links(repository, entries, choice)
    chosen = dict(_selected(entries, links, choice))
    _check_size(chosen)
    _check_path(chosen, choice)
    contents = repository.blobs([entry.blob for entry in chosen.values()])
    files = [
        LayerFile(path, data, entry.mode == "100755")
        for (path, entry), data in zip(chosen.items(), contents, strict=True)
    ]
    _refuse_pointers(files)
    try:
        data = code_layer.pack(files)
    except IntegrityError as error:
        raise refusal(f"the code layer: {error}; rename it or leave it out by project.exclude") from error
    size = sum(entry.size_bytes for entry in chosen.values())
    return CodeLayer(data, len(files), size, tuple(sorted(links.wanted)), choice.folder, whole.edited)


def _outside_files(repository: Repository, commit: str, choice: LayerSelection) -> list[TreeEntry]:
    """Entries of the repository outside of the line's folder."""
    if not choice.folder:
        return []
    found = repository.entries_and_submodules(repository.whole_tree(commit))
    return [each for each in found if not each.path.startswith(f"{choice.folder}/")]


def _links(repository: Repository, entries: tuple[TreeEntry, ...], choice: LayerSelection) -> SymlinkResolver:
    """All links of the tree, because one may lead through another; those that belong to the layer are wanted."""
    found = [entry for entry in entries if not entry.is_file]
    targets = repository.blobs([entry.blob for entry in found]) if found else iter(())
    return SymlinkResolver(
        targets={entry.path: data.decode(errors="replace") for entry, data in zip(found, targets, strict=True)},
        files=frozenset(entry.path for entry in entries if entry.is_file),
        wanted=frozenset(entry.path for entry in found if choice.holds(entry.path)),
    )


def _selected(
    entries: tuple[TreeEntry, ...], links: SymlinkResolver, choice: LayerSelection
) -> Iterator[tuple[str, TreeEntry]]:
    """Path in the layer, and the entry whose content it has."""
    files = {entry.path: entry for entry in entries if entry.is_file}
    for path, entry in files.items():
        if choice.holds(path):
            yield path, entry
    for path, source in links.copies():
        if choice.holds(path):
            yield path, files[source]


def _check_size(chosen: dict[str, TreeEntry]) -> None:
    if not chosen:
        raise ConfigError(
            "project.include and project.exclude select no file of the commit; commit a file or change them"
        )
    size = sum(entry.size_bytes for entry in chosen.values())
    if size > code_layer.MAX_BYTES:
        worst = max(chosen, key=lambda path: chosen[path].size_bytes)
        raise refusal(
            f"the code layer holds at most {format_bytes(code_layer.MAX_BYTES)}, found {format_bytes(size)};"
            f' leave the largest out: project.exclude = ["{worst}"]'
        )


def _check_path(chosen: Iterable[str], choice: LayerSelection) -> None:
    """Each folder of `project.path` has a file in the layer."""
    for folder in choice.project.path:
        place = posixpath.normpath(posixpath.join(choice.folder, folder))
        prefix = "" if place == "." else f"{place}/"
        if not any(path.startswith(prefix) for path in chosen):
            tops = sorted({path.partition("/")[0] for path in chosen if "/" in path})
            raise refusal(
                f"line.toml: project.path: wanted a folder of the code layer, found no file in {folder!r};"
                f" its folders: {', '.join(tops[:8]) or 'none'}"
            )


def _refuse_pointers(files: Iterable[LayerFile]) -> None:
    for file in files:
        if found := substitute(file.data):
            raise refusal(
                f"{file.path}: wanted the file, found {found}: its content is not in the commit; commit"
                " the file itself, name data by a key of the store (data.text, data.shards), or leave it out:"
                f' project.exclude = ["{file.path}"]'
            )


def _refuse_submodules(top: Path, found: Iterable[str], choice: LayerSelection) -> None:
    for path in found:
        folder = top / path
        if choice.holds(path) and folder.is_dir() and any(folder.iterdir()):
            raise refusal(
                f"{path} is a submodule with content, which project.include does not name; take it at the commit that"
                f' this one pins: project.include = ["**", "{path}/**"], or leave it out: project.exclude = ["{path}"]'
            )
