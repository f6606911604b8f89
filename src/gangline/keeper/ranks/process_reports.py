"""Reports of the processes of this node's ranks: read at the end of each generation, and kept over all of them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gangline.errors import SIGTERM_CODE
from gangline.keeper.ranks.process_tree import ProcessTree
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.rank_processes import RankStart
from gangline.procfs import state, waited_for_children
from gangline.sanitize import conceal
from gangline.spec.gang.status import read_event
from gangline.spec.processes import ProcessFailure, ProcessReport, join_process_reports
from gangline.storage.folder.safe_paths import open_plain

MOST_BYTES = 1 << 20
"""Size that the file of a rank may have; its processes write no more."""
SETTLE_SECONDS = 10.0
"""Failures within this time before that of a rank follow from it, or it from them."""
CAUSE_SECONDS = 60.0
"""Time before the failure of a rank in which that of another process may have caused it."""


class ProcessReports:
    """What the processes of the ranks of this node reported."""

    def __init__(self, folder: Path, *, secrets: Sequence[str]) -> None:
        """`folder` holds a file for each rank; `secrets` are values to remove from what processes report."""
        self._folder, self._secrets = folder, secrets
        self._leaders: dict[int, int] = {}
        self._parents: set[int] = set()
        """Ranks that started other programs."""
        self._has_pipefail = False
        """Ranks run in a shell that ends with the failure of any program of a pipeline."""
        self._orphans: list[tuple[int, str, str, float]] = []
        self._kept: list[ProcessReport] = []

    def clear(self, ranks: Iterable[int]) -> None:
        """These ranks are about to start: what earlier processes of theirs reported is gone."""
        for rank in ranks:
            self._leaders.pop(rank, None)
            self._parents.discard(rank)
            with suppress(OSError):  # there is none, or a rank has put something else in its place
                self._file(rank).unlink()

    def close(self) -> None:
        """Remove the files of all ranks: what processes raised may contain secrets."""
        self.clear(tuple(self._leaders))

    def started(self, start: RankStart, pid: int) -> None:
        """The process of a rank was started."""
        self._leaders[start.rank] = pid
        self._has_pipefail = "pipefail" in start.argv[1:3]

    def look(self, living: Mapping[int, int]) -> None:
        """Note which ranks have started other programs; called before their processes are waited for."""
        self._parents.update(rank for rank, pid in living.items() if waited_for_children(pid))

    def orphan_ended(self, pid: int, name: str, status: int, mono: float) -> None:
        """A process that the keeper inherited was waited for while the ranks were running."""
        code = os.waitstatus_to_exitcode(status)
        how = "" if code == 0 else f"signal {-code}" if code < 0 else f"code {code}"
        self._orphans.append((pid, name, how, mono))

    def collect(self, exits: Sequence[RankExit], *, ended_well: bool, now: float) -> ProcessReport:
        """Report of all generations so far; called at the end of each, while processes that ranks left are still there.

        A rank that failed answers for its processes. Where another one failed, or all were asked to stop, only what
        failed long before counts: the rest follows from that.
        """
        ended = {rank_exit.rank: rank_exit for rank_exit in exits}
        stopped = min((rank_exit.mono for rank_exit in exits if rank_exit.code), default=now) - SETTLE_SECONDS
        for tree in self._trees():
            end = ended.get(tree.rank)
            before = stopped if end is None or not ended_well else tree.ended or end.mono
            if end is None or end.code in (0, SIGTERM_CODE):
                self._kept.append(self._report(tree, before, ended_well=ended_well))
        self._orphans.clear()
        return join_process_reports(self._kept)

    def first_failure(self, failed: RankExit) -> ProcessFailure | None:
        """The process that failed first, within a minute before its rank; None: none is known."""
        tree = next((process_tree for process_tree in self._trees() if process_tree.rank == failed.rank), None)
        return tree.first_failure(since=failed.mono - CAUSE_SECONDS) if tree else None

    def _report(self, tree: ProcessTree, before: float, *, ended_well: bool) -> ProcessReport:
        failed = tree.failures(before=before)
        vanished = tree.vanished(lambda pid: state(pid) not in (None, "Z")) if ended_well else ()
        is_unwatched = not tree.is_watched and tree.rank in self._parents
        return ProcessReport(
            failed=tuple(failed), num_failed=len(failed), restarted=tuple(tree.restarted(before=before)),
            unseen=(*tree.unseen, *vanished), unwatched=(tree.rank,) if is_unwatched else (),
            pipefail=self._has_pipefail,
        )  # fmt: skip

    def _trees(self) -> list[ProcessTree]:
        trees = [ProcessTree(rank, pid, self._lines(rank)) for rank, pid in self._leaders.items()]
        for orphan in self._orphans if trees else ():
            next((tree for tree in trees if tree.knows(orphan[0])), trees[0]).add_orphan(*orphan)
        return trees

    def _lines(self, rank: int) -> Iterator[dict[str, Any]]:
        try:
            handle = open_plain(self._file(rank))
        except FileNotFoundError:
            return
        with os.fdopen(handle, "rb") as file:
            for event in filter(None, map(read_event, file.read(MOST_BYTES).splitlines())):
                yield {
                    name: conceal(value, self._secrets) if isinstance(value, str) else value
                    for name, value in event.items()
                }

    def _file(self, rank: int) -> Path:
        return self._folder / f"{rank}.jsonl"
