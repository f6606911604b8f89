"""Code layer of a commit: its tracked files but those that the line leaves out, as one deterministic ZIP.

Symbolic links become copies of what they lead to inside the tree, by arithmetic on paths alone.
"""

import json
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath

from gangline.build.left_out import LeftOut, heaviest_globs
from gangline.errors import ConfigError, IntegrityError
from gangline.git.objects import TreeEntry, substitute
from gangline.git.repository import Repository
from gangline.spec.config.line import ProjectTable
from gangline.spec.config.problems import refusal
from gangline.spec.globs import any_matches, may_meet
from gangline.storage.objects import code_layer
from gangline.storage.objects.code_layer import MAX_FILES, LayerFile
from gangline.units import format_bytes

_MAX_HOPS = 40
"""Links that one path may follow, as in Linux."""


@dataclass(frozen=True, slots=True)
class ExpandedTree:
    """Entries of a tree with those of its submodules."""

    repository: Repository
    """Where git finds the objects of all of them."""
    entries: tuple[TreeEntry, ...]
    edited: tuple[str, ...]
    """Submodules whose files on disk are not those of their commit."""


def expand(
    repository: Repository, entries: Iterable[TreeEntry], folder: Path, *, is_named: Callable[[str], bool]
) -> ExpandedTree:
    """Put the files of submodules in their places, and of submodules in these, as far as `is_named` says so.

    Args:
        repository: Of the tree.
        entries: Their paths are below `folder`.
        folder: Of the working tree.
        is_named: By path; others stay entries without files.

    Raises:
        ConfigError: There is no clone of a named submodule, or it lacks the commit.
    """
    tree_entries: list[TreeEntry] = []
    edited: list[str] = []
    waiting = list(entries)
    while waiting:
        entry = waiting.pop()
        if not (entry.is_submodule and is_named(entry.path)):
            tree_entries.append(entry)
            continue
        clone = _clone_at(folder / entry.path)
        if clone is None or not clone.has(entry.blob):
            raise refusal(
                f"project.include: wanted commit {entry.blob[:8]} of submodule {entry.path}, found"
                f" {'a clone without it' if clone else 'no clone of it there'}; git submodule update --init --recursive"
            )
        repository = replace(repository, objects=(*repository.objects, clone.objects_folder))
        if clone.commit() == entry.blob and clone.uncommitted()[0]:
            edited.append(entry.path)
        inner = clone.entries_and_submodules(clone.whole_tree(entry.blob))
        waiting += [replace(tree_entry, path=posixpath.join(entry.path, tree_entry.path)) for tree_entry in inner]
    return ExpandedTree(
        repository, tuple(sorted(tree_entries, key=lambda tree_entry: tree_entry.path)), tuple(sorted(edited))
    )


def _clone_at(place: Path) -> Repository | None:
    """The repository whose top is this place in the working tree of another.

    None: it is a folder of that one, or reached by a link, which another commit may have put there to lead out.
    """
    if not place.is_dir() or place.resolve() != place:
        return None
    repository = Repository.at(place)
    return None if repository.prefix else repository


_NEVER = ("line.toml", ".gangline/**")
"""The line counts by its keys, and gangline's own folder is no input."""
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class CodeLayer:
    """The commit's code as one archive."""

    data: bytes
    """The ZIP, as `storage.objects.code_layer` reads it."""
    files: int
    size_bytes: int
    """Size of all files together."""
    links: tuple[str, ...]
    """Paths of links, each of which became a copy."""
    folder: str = ""
    """Folder of the line in the layer; empty if the line is at the top."""
    edited: tuple[str, ...] = ()
    """Submodules whose files on disk are not those of their commit, which the layer has."""
    left_out: LeftOut = LeftOut()


@dataclass(frozen=True, slots=True)
class LayerSelection:
    """Which files of a repository belong to a layer, by their paths in it."""

    project: ProjectTable
    folder: str = ""
    """Folder of the line in the layer; empty if the line is at the top."""
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

    def left_out(self, entries: Iterable[TreeEntry]) -> LeftOut:
        """Which of `entries`, at their places in the layer, the line leaves out."""
        head = f"{self.folder}/" if self.folder else ""
        own = [replace(entry, path=entry.path.removeprefix(head)) for entry in entries if entry.path.startswith(head)]
        tree_entries = [
            entry for entry in own
            if not any_matches(entry.path, _NEVER) and (entry.is_submodule or not self.holds(f"{head}{entry.path}"))
        ]  # fmt: skip
        has_submodule = any(entry.is_submodule for entry in tree_entries)
        keys = {
            "project.include": bool(self.project.own) or has_submodule, "project.exclude": bool(self.project.exclude),
        }  # fmt: skip
        return LeftOut(
            paths=tuple(entry.path for entry in tree_entries),
            size_bytes=sum(entry.size_bytes for entry in tree_entries),
            keys=tuple(key for key, is_set in keys.items() if is_set),
        )  # fmt: skip

    def may_hold_files_of(self, folder: str) -> bool:
        """Could the code layer hold a file of `folder`, whose files are not known?"""
        own = folder.removeprefix(f"{self.folder}/") if self.folder else folder
        if self.folder and own == folder:
            return any(may_meet(f"{folder}/**", each) for each in self.beside)
        wanted = not self.project.own or any(may_meet(f"{own}/**", each) for each in self.project.own)
        return wanted and not any(any_matches(each, self.project.exclude) for each in (own, f"{own}/any"))

    def names_submodule(self, submodule: str) -> bool:
        """Does a glob of `project.include` begin with this path of the layer?"""
        own = [posixpath.join(self.folder, each) for each in self.project.own]
        return any(f"{each}/".startswith(f"{submodule}/") for each in (*own, *self.beside))

    def placed(self, entries: Iterable[TreeEntry]) -> Iterator[TreeEntry]:
        """Entries of the line's folder, at their places in the layer."""
        return (replace(entry, path=f"{self.folder}/{entry.path}") if self.folder else entry for entry in entries)


def pack(
    repository: Repository, tree: str, project: ProjectTable, *, commit: str = "HEAD", placed: Collection[str] = ()
) -> CodeLayer:
    """The layer of `tree`, the line's folder of `commit` or its state in the working tree.

    Args:
        repository: Has the commit.
        tree: Object name of the tree.
        project: Which files belong to the layer.
        commit: For files outside of the line's folder.
        placed: Paths of the layer whose files are placed from the store, where the commit has pointers of Git LFS.

    Raises:
        ConfigError: No file is left, a glob that leaves the repository, a missing folder of `project.path`, more
            than 64 MiB, a link that leaves the tree, a submodule with content that no glob names or whose commit is not
            here, a file whose content is not in the commit (Git LFS, git-annex, git-crypt).
    """
    choice = LayerSelection.of(project, repository)
    own = choice.placed(repository.entries_and_submodules(tree))
    top = repository.work_tree if choice.folder else repository.root
    whole = expand(repository, (*own, *outside_files(repository, commit, choice)), top, is_named=choice.names_submodule)
    repository = whole.repository
    _refuse_submodules(top, [entry.path for entry in whole.entries if entry.is_submodule], choice)
    entries = tuple(entry for entry in whole.entries if not entry.is_submodule)
    links = _links(repository, entries, choice)
    chosen = {path: entry for path, entry in _selected(entries, links, choice) if path not in placed}
    _check_size({path: entry.size_bytes for path, entry in chosen.items()}, choice)
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
    return CodeLayer(
        data, len(files), size, tuple(sorted(links.wanted)), choice.folder, whole.edited, choice.left_out(whole.entries)
    )


def outside_files(repository: Repository, commit: str, choice: LayerSelection) -> list[TreeEntry]:
    """Entries of the repository outside of the line's folder."""
    if not choice.folder:
        return []
    entries = repository.entries_and_submodules(repository.whole_tree(commit))
    return [entry for entry in entries if not entry.path.startswith(f"{choice.folder}/")]


@dataclass(frozen=True, kw_only=True, slots=True)
class SymlinkResolver:
    """The symbolic links of a tree, followed inside it."""

    targets: Mapping[str, str]
    """Path of each link to what it says."""
    files: frozenset[str]
    """Paths of the regular files of the tree."""
    wanted: frozenset[str]
    """Links that are to become copies."""
    _folders: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the folders of the tree."""
        folders = {str(folder) for path in (*self.files, *self.targets) for folder in PurePosixPath(path).parents}
        object.__setattr__(self, "_folders", frozenset(folders))

    def copies(self) -> Iterator[tuple[str, str]]:
        """(path of the copy, path of the file it is of), for every wanted link.

        Raises:
            ConfigError: A link leaves the tree, points at nothing of it, or holds itself.
        """
        every = chain.from_iterable(self._expand(link, link, ()) for link in sorted(self.wanted))
        for number, copy in enumerate(every, start=1):
            if number > MAX_FILES:
                raise refusal(f"the links make more than {MAX_FILES} copies; {_remedy(copy[0])}")
            yield copy

    def _expand(self, place: str, link: str, inside: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Copies for `link`, as seen at `place`; `inside` are the folders that are being copied."""
        real = self.real(link)
        if real in self.files:
            yield place, real
            return
        below = real + "/" if real else ""
        if real in inside or f"{link}/".startswith(below):
            raise refusal(f"the link {link} points at a folder that holds it; {_remedy(link)}")
        found = False
        for path in sorted(path for path in self.files if path.startswith(below)):
            found = True
            yield f"{place}/{path.removeprefix(below)}", path
        for path in sorted(path for path in self.targets if path.startswith(below)):
            found = True
            yield from self._expand(f"{place}/{path.removeprefix(below)}", path, (*inside, real))
        if not found:
            raise refusal(f"the link {link} points at {self.targets[link]!r}, which the commit lacks; {_remedy(link)}")

    def real(self, link: str) -> str:
        """Path that `link` leads to, relative to the tree; "" is the tree itself."""
        waiting = link.split("/")[::-1]
        done: list[str] = []
        hops = 0
        while waiting:
            part = waiting.pop()
            if part in {"..", "."}:
                self._require_folder(done, link)
            if part == "..":
                if not done:
                    raise refusal(f"the link {link} leads out of the repository; {_remedy(link)}")
                done.pop()
            elif part not in {"", "."}:
                done.append(part)
            target = self.targets.get("/".join(done))
            if target is not None:
                hops += 1
                _check_hop(link, target, hops)
                done.pop()
                waiting += target.split("/")[::-1]
        return "/".join(done)

    def _require_folder(self, done: list[str], link: str) -> None:
        """A path may go on from a folder only, as the file system has it."""
        if done and (path := "/".join(done)) not in self._folders:
            raise refusal(
                f"the link {link} leads through {path!r}, which is not a folder of the commit; {_remedy(link)}"
            )


def _links(repository: Repository, entries: tuple[TreeEntry, ...], choice: LayerSelection) -> SymlinkResolver:
    """All links of the tree, because one may lead through another; those that belong to the layer are wanted."""
    tree_entries = [entry for entry in entries if not entry.is_file]
    targets = repository.blobs([entry.blob for entry in tree_entries]) if tree_entries else iter(())
    return SymlinkResolver(
        targets={entry.path: data.decode(errors="replace") for entry, data in zip(tree_entries, targets, strict=True)},
        files=frozenset(entry.path for entry in entries if entry.is_file),
        wanted=frozenset(entry.path for entry in tree_entries if choice.holds(entry.path)),
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


def _check_size(sizes: Mapping[str, int], choice: LayerSelection) -> None:
    if not sizes:
        raise ConfigError(
            "project.include and project.exclude select no file of the commit; commit a file or change them"
        )
    count = (dict.fromkeys(sizes, 1), code_layer.MAX_FILES, lambda number: f"{number:,} files")
    for weights, most, shown in ((sizes, code_layer.MAX_BYTES, format_bytes), count):
        total = sum(weights.values())
        if total > most:
            heavy = heaviest_globs(weights, most=most)
            globs = [each.removeprefix(f"{choice.folder}/") for each in heavy]
            raise refusal(
                f"the code layer holds at most {shown(most)}, found {shown(total)}:"
                f" {', '.join(f'{glob} has {shown(heavy[each])}' for glob, each in zip(globs, heavy, strict=True))};"
                " what the program reads of it can be data of the store (data.text, data.shards), the rest is left out"
                f" by project.exclude = {json.dumps([*choice.project.exclude, *globs])}"
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
    pointers = {file.path: found for file in files if (found := substitute(file.data))}
    if pointers:
        path, found = next(iter(pointers.items()))
        more = f", as in {len(pointers) - 1} more" if len(pointers) > 1 else ""
        raise refusal(
            f"{path}: wanted the file, found {found}{more}: its content is not in the commit; commit"
            " the file itself, name data by a key of the store (data.text, data.shards), or leave it out:"
            f" project.exclude = {json.dumps(list(pointers)[:_MOST_NAMED])}"
        )


def _refuse_submodules(top: Path, found: Iterable[str], choice: LayerSelection) -> None:
    for path in found:
        folder = top / path
        if choice.holds(path) and folder.is_dir() and any(folder.iterdir()):
            raise refusal(
                f"{path} is a submodule with content, which project.include does not name; take it at the commit that"
                f' this one pins: project.include = ["**", "{path}/**"], or leave it out: project.exclude = ["{path}"]'
            )


def _check_hop(link: str, target: str, hops: int) -> None:
    if target.startswith("/"):
        raise refusal(f"the link {link} leads out of the repository, through {target!r}; {_remedy(link)}")
    if hops > _MAX_HOPS:
        raise refusal(f"the link {link} leads in a circle; {_remedy(link)}")


def _remedy(link: str) -> str:
    return f'commit the files themselves, or leave it out: project.exclude = ["{link}"]'
