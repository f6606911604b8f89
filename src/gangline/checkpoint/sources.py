"""Where a checkpoint may be loaded from: the store, or the nodes' copies."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gangline.storage.protocol import ObjectStore


class Source(Protocol):
    """One checkpoint, not yet verified; every call is collective."""

    @property
    def folder(self) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def store(self) -> ObjectStore:
        """What this rank reads it from."""
        ...

    @property
    def is_whole(self) -> bool:
        """Does `store` have every file of it?"""
        ...

    def bring_papers(self) -> None:
        """Make manifest, index and state readable on every rank."""
        ...

    def bring(self, names: Collection[str]) -> int:
        """Make files readable; the names are this rank's own wish. Raises `Refused` on all ranks alike.

        Returns:
            Bytes that went from node to node for it, all ranks' wishes together: alike on all ranks.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """In the store every rank reads everything."""

    folder: str
    step: int
    store: ObjectStore
    is_whole: bool = True

    def bring_papers(self) -> None:
        """They are there."""

    def bring(self, names: Collection[str]) -> int:
        """They are there."""
        del names
        return 0
