"""Copies of the tree in which several things are tried at once."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from tests.faults.trial import with_python

from gangline.keeper.ipc.signals import adopt_orphans
from gangline.keeper.ranks.rank_processes import kill_orphans

Given = TypeVar("Given")
Found = TypeVar("Found")


class Workers:
    """As many as there are copies."""

    def __init__(self, pool: ThreadPoolExecutor, trees: "SimpleQueue[Path]") -> None:
        self._pool, self._trees = pool, trees

    def run(self, work: Callable[[Path, Given], Found], things: Sequence[Given]) -> Iterator[tuple[Given, Found]]:
        """Each of `things`, taken in order, with what `work` made of it in a copy, as soon as it is done."""
        pending = {self._pool.submit(self._work, work, each): each for each in things}
        for done in as_completed(pending):
            yield pending[done], done.result()

    def _work(self, work: Callable[[Path, Given], Found], given: Given) -> Found:
        tree = self._trees.get()
        try:
            return work(tree, given)
        finally:
            self._trees.put(tree)


@contextmanager
def workers(tree: Path, folder: Path, count: int) -> Iterator[Workers]:
    """`count` of them, whose copies of `tree` lie in `folder`; what they run ends with the block, and all below it."""
    adopt_orphans()
    trees = SimpleQueue[Path]()
    for number in range(count):
        trees.put(with_python(shutil.copytree(tree, folder / str(number))))
    pool = ThreadPoolExecutor(count)
    try:
        yield Workers(pool, trees)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        kill_orphans([])
        pool.shutdown()
