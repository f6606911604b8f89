"""Why a model cannot be cut along an axis, whatever the degree, or its loss into pieces: known from the model and its
hints alone."""

from collections.abc import Callable

from torch import nn

from gangline.errors import ConfigError
from gangline.train.parallel.blocks import find_blocks
from gangline.train.parallel.calls import require_no_skips
from gangline.train.parallel.context import require_sequences
from gangline.train.parallel.expert import find_experts
from gangline.train.parallel.loss import require_head
from gangline.train.parallel.pipeline.ends import find_ends
from gangline.train.parallel.shardable import require_shardable
from gangline.train.task import ParallelHints


def obstacles(model: nn.Module, hints: ParallelHints) -> dict[str, str]:
    """Axis, or `loss_chunks`, to the reason, for each that a gang of any size would refuse."""
    checks: dict[str, Callable[[], object]] = {
        "pp": lambda: find_ends(model, [name for name, _ in find_blocks(model, hints)], hints),
        "cp": lambda: _require_parts(model, hints),
        "ep": lambda: find_experts(model, hints),
        "dp_shard": lambda: _require_shares(model, hints),
        "loss_chunks": lambda: require_head(model, hints),
    }
    found = {axis: _refusal(check) for axis, check in checks.items()}
    return {axis: reason for axis, reason in found.items() if reason}


def _require_parts(model: nn.Module, hints: ParallelHints) -> None:
    """Peers of a sequence share out the weights, too."""
    require_sequences(model, hints)
    _require_shares(model, hints)


def _require_shares(model: nn.Module, hints: ParallelHints) -> None:
    require_no_skips(skips=hints.skips, strategy="dp_shard and cp")
    require_shardable(model, find_blocks(model, hints))


def _refusal(check: Callable[[], object]) -> str:
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""
