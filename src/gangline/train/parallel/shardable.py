"""What `fully_shard` cannot take of a model, said by name before anything is wrapped."""

from collections.abc import Sequence

import torch
from torch import nn

from gangline.errors import ConfigError


def require_shardable(model: nn.Module, blocks: Sequence[tuple[str, nn.Module]]) -> None:
    """Refuse single numbers, which have no rows to share out, weights that two blocks hold, and mixed precisions.

    Args:
        model: With its blocks, nothing of it wrapped.
        blocks: By name; everything else is one more unit.

    Raises:
        ConfigError: With the names, and what works.
    """
    units: dict[nn.Parameter, tuple[str, str]] = {}
    kinds: dict[str, tuple[str, torch.dtype]] = {}
    for name, each in model.named_parameters(remove_duplicate=False):
        if not each.ndim:
            raise ConfigError(
                f"{name} of {type(model).__name__} is a single number, which cannot be shared out over dp_shard or cp; "
                'make it of shape (1,), or use "ddp"'
            )
        unit = next((block for block, _ in blocks if name.startswith(f"{block}.")), "")
        first, home = units.setdefault(each, (name, unit))
        if home != unit:
            raise ConfigError(
                f"{name} of {type(model).__name__} is {first} under another name, in another block: what is sharded "
                'over dp_shard or cp belongs to one block; give each its own, or use "ddp"'
            )
        alike, dtype = kinds.setdefault(unit, (name, each.dtype)) if each.requires_grad else (name, each.dtype)
        if dtype != each.dtype:
            raise ConfigError(
                f"{name} of {type(model).__name__} is {_word(each.dtype)}, {alike} of the same block {_word(dtype)}: "
                'what is sharded over dp_shard or cp has one precision a block; give it its own block, or use "ddp"'
            )


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
