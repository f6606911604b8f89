"""Which blocks a forward pass calls: ranks that share blocks synchronize in each, so all must call the same ones."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gangline.errors import ConfigError
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import derived_seed

_SHOWN = 8
WORKS = (
    'give every block a part in every loss, or leave it out of the model; blocks that data leave out work with "ddp" '
    "and ParallelHints(skips=True)"
)


class BlockCalls:
    """Of one model on this rank."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._names: list[str] = []
        self._called: list[str] = []
        self._usual: list[str] | None = None

    def note(self, block: nn.Module, name: str) -> None:
        """From now on calls of `block` are taken down; it is compiled already, if it is at all."""
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
        """Before the forward pass of a micro-batch; local."""
        self._called.clear()

    def require_usual(self) -> None:
        """After that forward pass, before its backward. Collective the first time.

        Raises:
            ConfigError: A block was left out, or they were called otherwise than before, or than on other ranks.
        """
        if self._called == self._usual or not self._names:
            return
        if left_out := [name for name in self._names if name not in self._called]:
            raise ConfigError(f"{self._where()} took no part in the loss: {_shown(left_out)}; {self._why()}")
        if self._usual is not None:
            raise ConfigError(
                f"{self._where()} called {_shown(self._called)}, before it called {_shown(self._usual)}; {self._why()}"
            )
        self._usual = [*self._called]
        if self._context.plan.world_size > 1 and not self._is_common():
            raise ConfigError(
                f"{self._where()} called {_shown(self._called)}, other ranks called their blocks in another order; "
                f"{self._why()}"
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
        return f"under train.strategy {strategy!r} all ranks meet in every block, in one order; {WORKS}"


def require_no_skips(*, skips: bool, strategy: str) -> None:
    """Refuse to share blocks that data leave out.

    Raises:
        ConfigError: The hints say that they may be.
    """
    if skips:
        raise ConfigError(
            f"hints.skips says that data leave parameters out, and under {strategy} ranks meet in every block; "
            '"ddp" and "zero1" look for what is left out in every step'
        )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
