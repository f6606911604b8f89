"""Batches that worker processes read ahead: torch's `DataLoader` around our order, and draws that follow positions.

The main process decides what is read next, workers read and decode it, and batches come back in order. Nothing is kept
of what was read ahead: another cursor, other shares or other skipped samples begin again with `begin`. Workers are
forked, hold no connection of the gang, and end with their rank.
"""

import os
import random
import signal
import stat
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import torch
from torch.utils.data import DataLoader

from gangline.errors import GanglineError, LostPeerError, TrainingError, error_for
from gangline.keeper.ipc.signals import die_with_parent
from gangline.train.runtime.error_classification import describe, exit_code_of
from gangline.train.runtime.initialization import derived_seed
from gangline.train.task import Batch

Pick = tuple[int, int]
"""A position in the order, and the index of its sample."""
CLOSE_SECONDS = 5.0
"""Time for workers to finish the batch that they are reading; then they are killed."""


class SampleDraws:
    """Seeds for what samples draw: python, numpy and torch, each from the seed and the position of the sample."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def at(self, position: int) -> None:
        """Seed the generators of this process for the sample at `position`."""
        own = derived_seed(self._seed, "sample", position)
        random.seed(own)
        torch.default_generator.manual_seed(own)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(own % 2**32)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep what samples draw inside the block from changing what the model draws after it."""
        numpy = sys.modules.get("numpy")
        python, own = random.getstate(), torch.get_rng_state()
        legacy = numpy.random.get_state() if numpy is not None else None
        try:
            yield
        finally:
            random.setstate(python)
            torch.set_rng_state(own)
            if numpy is not None and legacy is not None:
                numpy.random.set_state(legacy)


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of a worker, on its way to the rank."""

    code: int
    text: str


class _Reader:
    """What a worker does with a list of picks: `read` makes a batch of them."""

    def __init__(self, read: Callable[[Sequence[Pick]], Batch]) -> None:
        self._read = read

    def __getitems__(self, picks: list[Pick]) -> Batch | _Failure:
        try:
            return self._read(picks)
        except GanglineError as error:
            return _Failure(error.exit_code, str(error))
        except Exception as error:
            text = f"samples {[index for _, index in picks]} cannot be read: {describe(error)}"
            return _Failure(exit_code_of(error), f"{text}\n{traceback.format_exc()}")


class ReadAhead:
    """Batches of one rank, read ahead by workers."""

    def __init__(
        self, read: Callable[[Sequence[Pick]], Batch], *, workers: int, prefetch: int, pin_memory: bool
    ) -> None:
        """Args:
        read: Makes a batch in a worker.
        workers: Processes, at least 1.
        prefetch: Batches that each of them reads ahead.
        pin_memory: Whether batches go to a GPU.
        """
        self._options: dict[str, Any] = {
            "num_workers": workers, "prefetch_factor": prefetch, "pin_memory": pin_memory, "collate_fn": _as_it_is,
            "multiprocessing_context": "fork",
        }  # fmt: skip
        self._reader: Any = _Reader(read)
        self._workers = workers
        self._iterator: Any = None
        self._ahead: deque[list[Pick]] = deque()
        """Batches that workers were given and the rank has not taken yet."""
        self._taken = 0

    def begin(self, batches: Iterable[list[Pick]]) -> None:
        """Read `batches` from now on, in their order; it is iterated in this process, ahead of `next`."""
        self.close()
        self._ahead.clear()
        self._taken = 0
        loader: DataLoader[Any] = DataLoader(
            self._reader, batch_sampler=self._noted(batches), worker_init_fn=partial(_become_worker, os.getpid()),
            generator=torch.Generator(), **self._options,
        )  # fmt: skip
        handler = signal.getsignal(signal.SIGCHLD)
        self._iterator = iter(loader)
        signal.signal(signal.SIGCHLD, handler)  # torch's raises anywhere; a lost worker is an error of `next` alone

    def next(self) -> Batch:
        """The next batch.

        Raises:
            GanglineError: What a worker raised, with the samples and the class that it has in the error tree.
            LostPeerError: A worker was killed; a new generation of the gang reads the same samples again.
            TrainingError: A worker ended by itself.
        """
        try:
            batch = next(self._iterator)
        except RuntimeError as error:
            self._raise_lost_worker(error)
            raise
        self._ahead.popleft()
        self._taken += 1
        if isinstance(batch, _Failure):
            raise error_for(batch.code)(batch.text)
        return batch  # type: ignore[no-any-return]  # of torch's loader, which has no types

    def close(self) -> None:
        """End the workers; what they have read ahead is dropped."""
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            return
        workers, until = list(iterator._workers), monotonic() + CLOSE_SECONDS  # noqa: SLF001  # nothing public ends them
        iterator._workers_done_event.set()  # noqa: SLF001  # likewise
        for queue in iterator._index_queues:  # noqa: SLF001  # likewise
            queue.put(None)
        for worker in workers:
            worker.join(max(until - monotonic(), 0.0))
            if worker.is_alive():
                worker.kill()
        iterator._shutdown_workers()  # noqa: SLF001  # likewise

    def _noted(self, batches: Iterable[list[Pick]]) -> Iterator[list[Pick]]:
        for picks in batches:
            self._ahead.append(picks)
            yield picks

    def _raise_lost_worker(self, error: RuntimeError) -> None:
        """Raise what became of a worker that has ended, if one has; torch gives worker `n` every `n`-th batch."""
        for number, worker in enumerate(self._iterator._workers):  # noqa: SLF001  # nothing public names them
            if (code := worker.exitcode) is None:
                continue
            own = [picks for place, picks in enumerate(self._ahead, self._taken) if place % self._workers == number]
            samples = [index for _, index in own[0]] if own else []
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            killed = -code in (signal.SIGKILL, signal.SIGTERM)
            raise (LostPeerError if killed else TrainingError)(
                f"a worker of data.workers {how} while it read samples {samples}; data.workers = 0 reads them in the "
                "rank itself"
            ) from error


def _as_it_is(batch: Any) -> Any:
    return batch


def _become_worker(rank: int, number: int) -> None:
    """Called in a new worker of the rank with process id `rank`."""
    del number
    die_with_parent(rank)
    for each in (signal.SIGTERM, signal.SIGINT):  # for the rank, which saves and then ends its workers
        signal.signal(each, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    drop_sockets()


def drop_sockets() -> None:
    """Put /dev/null in the place of every socket of this process: peers of a dead rank must see its connections end.

    The numbers stay taken, so that a library that has one of them cannot reach a connection that is opened later.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # numbers, no paths
        with suppress(OSError):  # that of the listing itself
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.dup2(null, int(name), inheritable=False)
    os.close(null)
