"""Check that all ranks call the same blocks in a forward pass, because they synchronize in each."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gangline.errors import ConfigError
from gangline.train.parallel.model_parts import listed
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import derived_seed

WORKS = (
    'use every block in every loss, or remove it from the model; blocks that only some data use work with "ddp" '
    "and ParallelHints(skips=True)"
)


class BlockCalls:
    """Calls of the blocks of one model on this rank."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._names: list[str] = []
        self._called: list[str] = []
        self._usual: list[str] | None = None

    def note(self, block: nn.Module, name: str) -> None:
        """Record calls of `block`, which is compiled already if it is at all."""
        self._names.append(name)
        compiled = block._compiled_call_impl  # noqa: SLF001  # a hook of the module would be compiled, too
        if compiled is None:
            block.register_forward_pre_hook(lambda *_: self._called.append(name))
            return

        def called(*args: Any, **kwargs: Any) -> Any:
            self._called.append(name)
            return compiled(*args, **kwargs)

        block._compiled_call_impl = called  # noqa: SLF001  # see above

    def begin(self) -> None:
        """Forget the calls of the last micro-batch; called before the forward pass of each. Local."""
        self._called.clear()

    def require_usual(self) -> None:
        """Called after that forward pass, before its backward pass. Collective the first time.

        Raises:
            ConfigError: A block was not called, or the order differs from before or from other ranks.
        """
        if self._called == self._usual or not self._names:
            return
        if left_out := [name for name in self._names if name not in self._called]:
            raise ConfigError(f"{self._where()} took no part in the loss: {listed(left_out)}; {self._why()}")
        if self._usual is not None:
            raise ConfigError(
                f"{self._where()} called {listed(self._called)}, before it called {listed(self._usual)}; {self._why()}"
            )
        self._usual = [*self._called]
        if self._context.plan.world_size > 1 and not self._is_common():
            raise ConfigError(
                f"{self._where()} called {listed(self._called)}, "
                f"other ranks called their blocks in another order; {self._why()}"
            )

    def _is_common(self) -> bool:
        digest = derived_seed(0, *self._called)
        both = torch.tensor([digest, -digest])
        dist.all_reduce(both, dist.ReduceOp.MAX, group=self._context.groups.control)
        return int(both[0]) == -int(both[1])

    def _where(self) -> str:
        return f"step {self._context.step}, rank {self._context.rank}"

    def _why(self) -> str:
        strategy = self._context.plan.strategy
        return f"under train.strategy {strategy!r} all ranks synchronize in every block, in one order; {WORKS}"


def require_no_skips(*, skips: bool, strategy: str) -> None:
    """Refuse to share blocks if data decide which are used.

    Raises:
        ConfigError: The hints say so.
    """
    if skips:
        raise ConfigError(
            f"hints.skips says that data decide which parameters are used, and under {strategy} ranks synchronize in "
            'every block; "ddp" and "zero1" search every step for unused parameters'
        )
