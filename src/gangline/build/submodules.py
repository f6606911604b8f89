"""Submodules that `project.include` names: files of the commit that the tree pins, from the clones in their place."""

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.git.objects import TreeEntry
from gangline.git.repository import Repository
from gangline.spec.config.problems import refusal


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
    found: list[TreeEntry] = []
    edited: list[str] = []
    waiting = list(entries)
    while waiting:
        entry = waiting.pop()
        if not (entry.is_submodule and is_named(entry.path)):
            found.append(entry)
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
        waiting += [replace(each, path=posixpath.join(entry.path, each.path)) for each in inner]
    return ExpandedTree(repository, tuple(sorted(found, key=lambda each: each.path)), tuple(sorted(edited)))


def _clone_at(place: Path) -> Repository | None:
    """The repository whose top is this place in the working tree of another.

    None: it is a folder of that one, or reached by a link, which another commit may have put there to lead out.
    """
    if not place.is_dir() or place.resolve() != place:
        return None
    found = Repository.at(place)
    return None if found.prefix else found
