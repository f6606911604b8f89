"""Step times of all ranks: exchanged every 5 to 10 steps and checked by every rank alike; slow ranks are reported."""

from collections.abc import Mapping
from statistics import median

import torch
import torch.distributed as dist

from gangline.fabric.step_times import WORK, PeerGroup, Straggler, WindowRange, WindowTimes
from gangline.fabric.stragglers import MOST_STEPS, StragglerDetector, window_steps
from gangline.train.runtime.context import RankContext

_CUT = 0.2
"""Share of a window's steps that is left out at either end, by their work, so that one outlier makes no rank slow."""
_COLUMNS = len(WORK) + 3
"""Columns of a rank's row: work by phase, wait, samples, 1 if the window must not be used."""


class StepRate:
    """Step times of one rank; all ranks make the same calls in the same order."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        mesh = context.plan.mesh
        self._detector = StragglerDetector(lambda rank: PeerGroup(mesh.coordinates(rank)["pp"], mesh.data_rank(rank)))
        self._steps: list[list[float]] = []
        self._window_steps = MOST_STEPS
        """Length of the window that is being filled; changed by what all ranks know, so equal on all ranks."""
        self._in_flight: tuple[dist.Work, torch.Tensor] | None = None

    @property
    def slow(self) -> Mapping[int, Straggler]:
        """Slow ranks, equal on all ranks."""
        return self._detector.stragglers

    @property
    def recent(self) -> WindowRange | None:
        """Times of all ranks over the last windows; None if there are too few."""
        return self._detector.recent

    def step_done(self, step: int, phases: Mapping[str, float], *, samples: int, disturbed: bool = False) -> bool:
        """Record a step of this rank; True if a window of all ranks was checked, equal on all ranks.

        Args:
            step: The finished step.
            phases: Its seconds by phase.
            samples: Samples that this rank computed.
            disturbed: The step is not representative, for example because it was profiled: its window is not used.
        """
        is_judged = self._receive(step)
        own = [*(phases[name] for name in WORK), phases["wait"] + phases["bubble"]]
        self._steps.append([*own, float(samples), float(disturbed)])
        if len(self._steps) >= self._window_steps:
            self._send()
        return is_judged

    def forget(self) -> None:
        """Drop all times: the shares have changed."""
        self.close()
        self._detector.forget()
        self._steps.clear()

    def close(self) -> None:
        """Wait for the exchange in flight, as the peers do."""
        if self._in_flight is not None:
            self._in_flight[0].wait()
            self._in_flight = None

    def _send(self) -> None:
        context = self._context
        table = torch.zeros(context.plan.world_size, _COLUMNS, dtype=torch.float64)
        table[context.rank] = _trimmed_mean(self._steps)
        work = dist.all_reduce(table, group=context.groups.control, async_op=True)
        assert work is not None, "this rank belongs to the group"
        self._in_flight = work, table
        self._steps.clear()

    def _receive(self, step: int) -> bool:
        """Check the window that was sent one step ago; False if there is none or it must not be used."""
        if self._in_flight is None:
            return False
        work, table = self._in_flight
        self._in_flight = None
        work.wait()
        rows = table.tolist()
        times = [_times(row) for row in rows]
        steps, self._window_steps = self._window_steps, window_steps(median(each.seconds for each in times))
        if any(row[-1] for row in rows):
            return False
        new, over = self._detector.add_window(times, steps=steps)
        if self._context.rank == 0:
            self._emit("straggler", step, new)
            self._emit("straggler_over", step, over)
        return True

    def _emit(self, event: str, step: int, found: list[Straggler]) -> None:
        for each in found:
            self._context.events.emit(
                event, step=step, slow=each.rank, node=self._context.node_of(each.rank), ratio=each.ratio,
                seconds=each.seconds, step_seconds=each.step_seconds, phase=each.phase, wait_share=each.wait_share,
            )  # fmt: skip


def _trimmed_mean(steps: list[list[float]]) -> torch.Tensor:
    """Mean of each column over the steps without those of least and most work; of the last column the maximum of all.

    Whole steps are left out, not values of each column: a delay that falls now into one phase, now into another, is
    an outlier in every column, and would be gone.
    """
    rows = torch.tensor(steps, dtype=torch.float64)
    cut = int(_CUT * len(steps))
    by_work = rows[:, : len(WORK)].sum(dim=1).argsort()
    found = rows[by_work[cut : len(steps) - cut]].mean(dim=0)
    found[-1] = rows[:, -1].max()
    return found


def _times(row: list[float]) -> WindowTimes:
    *work, wait, samples, _ = row
    return WindowTimes(work=dict(zip(WORK, work, strict=True)), wait=wait, samples=samples)
