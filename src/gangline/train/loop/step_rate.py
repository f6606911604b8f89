"""Step rate of every rank: every ten steps all learn the times of all and judge them alike; slow ranks are reported."""

from collections.abc import Mapping

import torch
import torch.distributed as dist

from gangline.train.loop.straggler import WORK, PeerGroup, Straggler, StragglerDetector, WindowRange, WindowTimes
from gangline.train.runtime.context import RankContext

WINDOW_STEPS = 10
_CUT = 2
"""Steps of a window that are left out at either end of each column: a hiccup of the machine makes nobody slow."""
_COLUMNS = len(WORK) + 3
"""Of a rank's row: its work by phase, its wait, its samples, 1 if the window is no measure."""


class StepRate:
    """A rank's part; all ranks make the same calls in the same order."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        mesh = context.plan.mesh
        self._judge = StragglerDetector(lambda rank: PeerGroup(mesh.coordinates(rank)["pp"], mesh.data_rank(rank)))
        self._steps: list[list[float]] = []
        self._flying: tuple[dist.Work, torch.Tensor] | None = None

    @property
    def slow(self) -> Mapping[int, Straggler]:
        """Ranks that hold the gang up now, alike on all."""
        return self._judge.named

    @property
    def recent(self) -> WindowRange | None:
        """Times of all ranks over the last windows; None: too few are known."""
        return self._judge.recent

    def step_done(self, step: int, phases: Mapping[str, float], *, samples: int, disturbed: bool = False) -> bool:
        """Take in a step of this rank; whether a window of all was judged, alike on all ranks.

        Args:
            step: That is done.
            phases: Its seconds by phase.
            samples: That this rank computed.
            disturbed: It did other things, too, such as being profiled: the window tells nothing.
        """
        judged = self._hear(step)
        own = [*(phases[name] for name in WORK), phases["wait"] + phases["bubble"]]
        self._steps.append([*own, float(samples), float(disturbed)])
        if len(self._steps) == WINDOW_STEPS:
            self._send()
        return judged

    def forget(self) -> None:
        """The work is dealt anew: what was measured until now says nothing about what comes."""
        self.close()
        self._judge.forget()
        self._steps.clear()

    def close(self) -> None:
        """What is on its way is waited for, as peers count on it."""
        if self._flying is not None:
            self._flying[0].wait()
            self._flying = None

    def _send(self) -> None:
        context = self._context
        table = torch.zeros(context.plan.world_size, _COLUMNS, dtype=torch.float64)
        table[context.rank] = _middle(self._steps)
        work = dist.all_reduce(table, group=context.groups.control, async_op=True)
        assert work is not None, "this rank belongs to the group"
        self._flying = work, table
        self._steps.clear()

    def _hear(self, step: int) -> bool:
        """Judge the window that was sent a step ago, if one was and it tells anything."""
        if self._flying is None:
            return False
        work, table = self._flying
        self._flying = None
        work.wait()
        rows = table.tolist()
        if any(row[-1] for row in rows):
            return False
        new, over = self._judge.hear([_times(row) for row in rows])
        if self._context.rank == 0:
            self._tell("straggler", step, new)
            self._tell("straggler_over", step, over)
        return True

    def _tell(self, event: str, step: int, found: list[Straggler]) -> None:
        for each in found:
            self._context.events.emit(
                event, step=step, slow=each.rank, node=self._context.node_of(each.rank), ratio=each.ratio,
                seconds=each.seconds, phase=each.phase, wait_share=each.wait_share,
            )  # fmt: skip


def _middle(steps: list[list[float]]) -> torch.Tensor:
    """Mean of each column without its ends, of its last entry the largest."""
    rows = torch.tensor(steps, dtype=torch.float64)
    found = rows.sort(dim=0).values[_CUT:-_CUT].mean(dim=0)
    found[-1] = rows[:, -1].max()
    return found


def _times(row: list[float]) -> WindowTimes:
    *work, wait, samples, _ = row
    return WindowTimes(work=dict(zip(WORK, work, strict=True)), wait=wait, samples=samples)
