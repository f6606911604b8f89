"""Where a model's own `SyncBatchNorm` works: its ranks meet in each forward pass, all of the gang, and on GPUs only."""

from torch import nn

from gangline.errors import ConfigError
from gangline.spec.plan import Plan


def require_meetings(model: nn.Module, plan: Plan) -> None:
    """Refuse layers that normalise over all ranks where these do not all come, or cannot.

    Raises:
        ConfigError: With the first one's name, and what works.
    """
    name = next((name for name, each in model.named_modules() if isinstance(each, nn.SyncBatchNorm)), None)
    if name is None or plan.world_size == 1:
        return
    if plan.device == "cpu":
        reason = "torch has it for GPUs only"
    elif plan.mesh.pp > 1:
        reason = "ranks of other stages of the pipeline never come to it"
    elif plan.recovery.stragglers == "rebalance":
        reason = "replicas that take uneven work come to it unevenly often"
    else:
        return
    raise ConfigError(
        f"{name} is a SyncBatchNorm, where all ranks meet in each forward pass, and {reason}; use BatchNorm, whose "
        "statistics are averaged after each step, or GroupNorm"
    )
