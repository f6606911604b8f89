"""The control word: what one rank knows and all must do at the same step, such as to stop.

One small asynchronous all-reduce (MAX) on the control group, sent after step n and read after step n + 1: all ranks
act at the same step, and nobody waits for it.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Word:
    stop: bool = False
    """Save together and leave."""
    save: bool = False
    """Save now, then go on."""
    profile: bool = False
    """There is a request to read."""


class ControlWord:
    """Each rank calls `exchange` once a step."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._flying: tuple[dist.Work, torch.Tensor] | None = None

    def exchange(self, own: Word) -> Word:
        """Send this rank's word; returns what any rank had sent a step ago."""
        heard = self.read()
        word = torch.tensor([own.stop, own.save, own.profile], dtype=torch.uint8)
        work = dist.all_reduce(word, dist.ReduceOp.MAX, group=self._group, async_op=True)
        assert work is not None, "this rank belongs to the group"
        self._flying = work, word
        return heard

    def read(self) -> Word:
        """What was sent last, now; all ranks must call before they leave the loop."""
        if self._flying is None:
            return Word()
        work, word = self._flying
        self._flying = None
        work.wait()
        return Word(*map(bool, word.tolist()))
