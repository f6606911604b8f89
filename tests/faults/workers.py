"""Processes that try things out, each in its own copy of the tree; nothing that a trial started is left after it."""

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.faults.trial import with_python

from gangline.train.leash import adopt_orphans, die_with_parent
from gangline.train.reaper import end_orphans

Given = TypeVar("Given")
Found = TypeVar("Found")


class Workers:
    """So many at once; `run` is what they do with one thing after the other."""

    def __init__(self, pool: ProcessPoolExecutor, folder: Path) -> None:
        self._pool, self._folder = pool, folder

    def run(self, work: Callable[[Path, Given], Found], things: Sequence[Given]) -> Iterator[tuple[Given, Found]]:
        """Each of `things`, taken in order, with what `work` made of it in the worker's copy, as soon as it is done."""
        pending = {self._pool.submit(_work, work, self._folder, each): each for each in things}
        for done in as_completed(pending):
            yield pending[done], done.result()


@contextmanager
def workers(tree: Path, folder: Path, count: int) -> Iterator[Workers]:
    """`count` of them, whose copies of `tree` lie in `folder`; whatever they started ends with the block."""
    adopt_orphans()
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(tree, folder, os.getpid()))
    try:
        yield Workers(pool, folder)
        pool.shutdown()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_orphans([])


def _begin(tree: Path, folder: Path, parent: int) -> None:
    die_with_parent(parent)
    adopt_orphans()
    with_python(shutil.copytree(tree, _own(folder)))


def _work(work: Callable[[Path, Given], Found], folder: Path, given: Given) -> Found:
    try:
        return work(_own(folder), given)
    finally:
        end_orphans([])


def _own(folder: Path) -> Path:
    return folder / str(os.getpid())
