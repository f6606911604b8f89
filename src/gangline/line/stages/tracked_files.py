"""Files that DVC or Git LFS track for a commit: which ones a run wants, and where they are fetched from.

Sources of the site and the repository's own objects of Git LFS are asked for runs of own commits alone: a fork could
name the digest of any file that they hold, and its code would get it.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.build.code_layer import LayerSelection, outside_files
from gangline.data.pointers import (
    CONFIG,
    LOCK,
    MOST_CONFIG_BYTES,
    MOST_FILES,
    STAGES,
    DvcRemotes,
    Pointer,
    folder_of,
    is_dvc_file,
    read_dvc_file,
    read_lock,
    read_remotes,
    require_few,
    source_url,
)
from gangline.git.objects import LONGEST_POINTER, TreeEntry, lfs_pointer
from gangline.git.repository import Repository
from gangline.spec.config.line import Line
from gangline.spec.config.problems import refusal
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import SourceTable
from gangline.spec.data_source import DataFile
from gangline.spec.globs import any_matches, matches
from gangline.spec.record import Trust
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

if TYPE_CHECKING:
    from gangline.data.tracked_files import RemoteObjects

LFS_SOURCE = "lfs"
"""Name of the source that holds objects of Git LFS, at `ab/cd/<oid>`."""
_SHOWN = 3
_ATTRIBUTES, _LFS_FILTER = ".gitattributes", b"filter=lfs"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitPointers:
    """Pointers of a commit whose files its run wants."""

    selection: LayerSelection
    texts: tuple[str, ...] = ()
    """Globs of `data.text` on files of the repository, without `repo:`."""
    pointers: tuple[Pointer, ...] = ()
    """Pointers with paths of the code layer."""
    remotes: DvcRemotes = field(default_factory=DvcRemotes)
    base: str = "/"
    """Folder of `.dvc/config` on this machine, which relative remotes begin at."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the code layer that they point at, files and folders."""
        return tuple(pointer.path for pointer in self.pointers)

    @property
    def lfs_paths(self) -> tuple[str, ...]:
        """Paths of the code layer whose content is with Git LFS."""
        return tuple(pointer.path for pointer in self.pointers if pointer.tool == "Git LFS")

    def is_of_text(self, path: str) -> bool:
        """Does `data.text` name this file of the code layer?"""
        own = self.from_folder(path)
        return (not self.selection.folder or own != path) and any_matches(own, self.texts)

    def is_of_code(self, pointer: Pointer, path: str) -> bool:
        """Does the code layer hold this file of the pointer? Outputs of stages where `project.include` names them."""
        named = not pointer.is_output or any(
            _names(named_glob, pointer) for named_glob in self.named_globs(with_texts=False)
        )
        return named and self.selection.holds(path)

    def is_wanted(self, pointer: Pointer) -> bool:
        """Whether the code layer or `data.text` takes any file of the pointer."""
        choice = self.selection
        holds = choice.may_hold_files_of(pointer.path) if pointer.is_folder else choice.holds(pointer.path)
        if pointer.is_output:
            return any(_names(named_glob, pointer) for named_glob in self.named_globs())
        return holds or any(_names(text_glob, pointer) for text_glob in self._text_globs())

    def named_globs(self, *, with_texts: bool = True) -> list[str]:
        """Globs of the line that begin with a name, from the top of the layer."""
        choice = self.selection
        own = [posixpath.join(choice.folder, each) for each in choice.project.own]
        globs = (*own, *choice.beside, *(self._text_globs() if with_texts else ()))
        return [each for each in globs if not each.startswith("*")]

    def from_folder(self, path: str) -> str:
        """Path of the layer as the line's folder sees it; of a file outside of that folder the same."""
        return path.removeprefix(f"{self.selection.folder}/") if self.selection.folder else path

    def leave_out(self) -> str:
        """`leave it out: project.exclude = ["data/train.csv.dvc"]`."""
        files = dict.fromkeys(
            self.from_folder(pointer.pointed_by) for pointer in self.pointers if not pointer.is_output
        )
        shown = ", ".join(f'"{file}"' for file in list(files)[:_SHOWN])
        return f"leave it out: project.exclude = [{shown}]"

    def _text_globs(self) -> list[str]:
        return [posixpath.join(self.selection.folder, text) for text in self.texts]

    def __str__(self) -> str:
        """`3 files by DVC, 120 MB, md5 pinned`, the bytes where all pointers say theirs; empty where there are none."""
        shown = []
        for tool, digest in (("DVC", "md5"), ("Git LFS", "sha256")):
            own = [pointer for pointer in self.pointers if pointer.tool == tool]
            count = sum(pointer.num_files or 1 for pointer in own)
            sizes = [pointer.size_bytes for pointer in own if pointer.size_bytes is not None]
            size = f"{format_bytes(sum(sizes))}, " if len(sizes) == len(own) else ""
            if own:
                shown.append(f"{num_files(count)} by {tool}, {size}{digest} pinned")
        return " · ".join(shown)


def num_files(count: int) -> str:
    """`1 file`, `1,254 files`."""
    return "1 file" if count == 1 else f"{count:,} files"


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedFiles:
    """Files behind the pointers of a commit, all of them blobs of the store."""

    code: tuple[DataFile, ...] = ()
    """Files that are placed in the code of a gang, with their paths in it."""
    text: Mapping[str, DataFile] = field(default_factory=dict)
    """Files that `data.text` names, by their paths in the line's folder."""
    num_fetched: int = 0
    """Files that the store did not have before."""


NO_FILES = FetchedFiles()


def find_pointers(repository: Repository, tree: str, line: Line, *, commit: str) -> CommitPointers:
    """Pointers of a commit whose files its code layer or `data.text` wants; nothing is fetched.

    Outputs of stages (`dvc.lock`) count where `project.include` or `data.text` names them: a program that writes them
    itself must not find those of an earlier run.

    Raises:
        ConfigError: A file of DVC is not valid.
    """
    choice = LayerSelection.of(line.project, repository)
    entries = [*choice.placed(repository.entries(tree)), *outside_files(repository, commit, choice)]
    texts = tuple(each.removeprefix("repo:") for each in line.data.text if each.startswith("repo:"))
    files = {entry.path: entry for entry in entries if entry.is_file}
    wanted = CommitPointers(selection=choice, texts=texts)
    of_dvc = (pointer for pointer in _of_dvc(repository, files, wanted) if pointer.path not in files)
    pointers = list(islice(chain(of_dvc, _of_lfs(repository, files, wanted)), MOST_FILES + 1))
    if not pointers:
        return wanted
    require_few(pointers[-1].pointed_by, len(pointers))
    base, remotes = _remotes(repository, tree, commit)
    return CommitPointers(selection=choice, texts=texts, pointers=tuple(pointers), remotes=remotes, base=base)


def fetch_pointers(
    found: CommitPointers, *, repository: Repository, store: ObjectStore, site: Site, environ: Mapping[str, str],
    project: str, trust: Trust, spool: Path, notify: Callable[[str], None],
) -> FetchedFiles:  # fmt: skip
    """All files behind the pointers, which are blobs of the store then.

    Raises:
        ConfigError: The commit is a fork's, no source of the site has the remote, or there is too much.
        StorageError: A remote does not answer, or lacks a file.
        IntegrityError: A file is not that of its digest.
    """
    if not found.pointers:
        return NO_FILES
    if trust == "fork":
        first = found.pointers[0]
        raise refusal(
            f"{first.path}: wanted a file of the commit, found one that {first.tool} tracks ({first.pointed_by}): a"
            f" fork's commit reads no source of the site; {found.leave_out()}"
        )
    from gangline.data.tracked_files import TrackedFiles  # most commits have no pointers

    spool.mkdir(parents=True, exist_ok=True)
    fetcher = TrackedFiles(
        store=store, project=project, spool=spool, most_bytes=site.limits.tracked_bytes, notify=notify
    )  # fmt: skip
    remotes = _Remotes(found, repository, site, environ)
    code: dict[str, DataFile] = {}
    text: dict[str, DataFile] = {}
    for pointer in found.pointers:
        for file in fetcher.files_of(pointer, remotes.of(pointer)):
            if found.is_of_code(pointer, file.path) and code.setdefault(file.path, file) != file:
                raise refusal(f"{file.path}: wanted one digest, found two, the last in {pointer.pointed_by}")
            if found.is_of_text(file.path):
                text[found.from_folder(file.path)] = file
    return FetchedFiles(code=tuple(code.values()), text=text, num_fetched=fetcher.num_fetched)


@dataclass
class _Remotes:
    """Opened remotes of a commit."""

    found: CommitPointers
    repository: Repository
    site: Site
    environ: Mapping[str, str]
    opened: "dict[str | None, RemoteObjects]" = field(default_factory=dict)

    def of(self, pointer: Pointer) -> "RemoteObjects":
        if pointer.tool == "Git LFS":
            return self._of_lfs(pointer)
        if pointer.remote not in self.opened:
            url = self.found.remotes.url_of(pointer.remote)
            sources = {name: table.url for name, table in self.site.source.items()}
            place = folder_of(url, sources, base=self.found.base)
            if place is None:
                raise refusal(
                    f"{pointer.path}: wanted a source of the site that holds the remote {url[:300]} of {CONFIG}, found"
                    f" {', '.join(sorted(sources)[:5]) or 'none'}; write [source.dvc] with url ="
                    f' "{source_url(url, self.found.base)}" into site.toml, or {self.found.leave_out()}'
                )
            self.opened[pointer.remote] = self._at_source(place.source, place.folder, place.url)
        return self.opened[pointer.remote]

    def _of_lfs(self, pointer: Pointer) -> "RemoteObjects":
        from gangline.data.tracked_files import FolderRemote, RemoteObjects

        folder = self.repository.objects_folder.parent / "lfs" / "objects"
        local = RemoteObjects(remote=FolderRemote(folder), folder="", url=str(folder))
        if local.place_of(pointer) is not None:
            return local
        if LFS_SOURCE not in self.site.source:
            size = format_bytes(pointer.size_bytes or 0)
            raise refusal(
                f"{pointer.path}: wanted the file, found a Git LFS pointer to {size}, whose content is neither in"
                f" .git/lfs/objects nor at a [source.{LFS_SOURCE}] of the site; git lfs fetch, or"
                f" {self.found.leave_out()}"
            )
        return self._at_source(LFS_SOURCE, "", f"[source.{LFS_SOURCE}]")

    def _at_source(self, name: str, folder: str, url: str) -> "RemoteObjects":
        from gangline.data.sources import open_source  # fsspec, which most runs do without
        from gangline.data.tracked_files import RemoteObjects

        table: SourceTable = self.site.source[name]
        return RemoteObjects(remote=open_source(name, table, self.environ), folder=folder, url=url)


def _of_dvc(repository: Repository, files: Mapping[str, TreeEntry], wanted: CommitPointers) -> Iterator[Pointer]:
    left_out = wanted.selection.project.exclude
    pointing = [
        file for path, file in files.items()
        if is_dvc_file(path) and (wanted.texts or not any_matches(wanted.from_folder(path), left_out))
    ]  # fmt: skip
    contents = repository.blobs([each.blob for each in pointing]) if pointing else iter(())
    for tree_entry, data in zip(pointing, contents, strict=True):
        yield from filter(wanted.is_wanted, read_dvc_file(tree_entry.path, data))
    for path, entry in files.items():
        if posixpath.basename(path) != LOCK or not wanted.named_globs():
            continue
        stages = files.get(posixpath.join(posixpath.dirname(path), STAGES))
        lock, *yaml = repository.blobs([entry.blob, *([stages.blob] if stages else [])])
        yield from filter(wanted.is_wanted, read_lock(path, lock, yaml[0] if yaml else None))


def _names(glob: str, pointer: Pointer) -> bool:
    """Whether a glob begins with the path of the pointer, or is one that matches it."""
    return f"{glob}/".startswith(f"{pointer.path}/") or matches(pointer.path, glob)


def _of_lfs(repository: Repository, files: Mapping[str, TreeEntry], wanted: CommitPointers) -> Iterator[Pointer]:
    attributes = [file.blob for path, file in files.items() if posixpath.basename(path) == _ATTRIBUTES]
    if not attributes or not any(_LFS_FILTER in blob for blob in repository.blobs(attributes)):
        return
    small = [
        file for path, file in files.items()
        if file.size_bytes < LONGEST_POINTER and (wanted.selection.holds(path) or wanted.is_of_text(path))
    ]  # fmt: skip
    for tree_entry, data in zip(small, repository.blobs([entry.blob for entry in small]), strict=True):
        if (pointed := lfs_pointer(data)) is not None:
            yield Pointer(
                path=tree_entry.path, kind="sha256", digest=pointed[0], size_bytes=pointed[1],
                pointed_by=tree_entry.path
            )  # fmt: skip


def _remotes(repository: Repository, tree: str, commit: str) -> tuple[str, DvcRemotes]:
    """Folder and content of the `.dvc/config` in the line's folder, else at the top of the repository."""
    for root, where in ((repository.root, tree), (repository.work_tree, repository.whole_tree(commit))):
        data = repository.file(where, CONFIG, most_bytes=MOST_CONFIG_BYTES)
        if data is not None:
            return str(root / posixpath.dirname(CONFIG)), read_remotes(data)
    return str(repository.root), DvcRemotes()
