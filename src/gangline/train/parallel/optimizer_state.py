"""Where the state of an optimizer is kept: whole on every rank, a share on each, or in files."""

from torch.optim import Optimizer

from gangline.train.context import Context
from gangline.train.mesh import REPLICATE
from gangline.train.parallel.state_on_disk import StateOnDisk, Window
from gangline.train.strategies import wrapping_of


def place_state(optimizer: Optimizer, context: Context, *, window: type[Window] = Window) -> Optimizer:
    """Have `optimizer`, which has not stepped yet, keep its state where the plan says; all ranks must call.

    Args:
        optimizer: Of this rank.
        context: Of the plan.
        window: What keeps state in files.

    Returns:
        What is stepped instead of it, with the same groups and options.

    Raises:
        ConfigError: It cannot be kept there.
    """
    on_disk = context.plan.memory.offload == "optimizer_nvme"
    if wrapping_of(context.plan) != "zero1":
        return StateOnDisk(optimizer, context.scratch, window=window) if on_disk else optimizer
    from gangline.train.parallel.zero1 import share_state  # it pulls in torch's other distributed optimizers

    shared = share_state(optimizer, context.meshes.group(REPLICATE))
    if on_disk:
        shared.optim = StateOnDisk(shared.optim, context.scratch, window=window)
    return shared
