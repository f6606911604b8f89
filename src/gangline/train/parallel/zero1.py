"""ZeRO-1: full copies of the model, each rank keeping the optimizer state of its share of the parameters.

torch's own `ZeroRedundancyOptimizer` deals parameters out, largest first, updates each where its state is and sends it
to the others. Its state is read by name, rank by rank, in `checkpoint.state`: torch would gather it on one rank first.
"""

import inspect

from torch.distributed import ProcessGroup
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from gangline.errors import ConfigError


def share_state(optimizer: Optimizer, group: ProcessGroup | None) -> ZeroRedundancyOptimizer:
    """The same rule over the same parameters, with state for this rank's share only; all ranks must call.

    Args:
        optimizer: Any of torch's kind that has not stepped yet; it is not used further.
        group: Ranks that hold copies of the parameters; None: the whole gang.

    Raises:
        ConfigError: Its class cannot be made again from its own options, or parameters differ in dtype.
    """
    kind = type(optimizer)
    takes = inspect.signature(kind).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in takes}
    groups = [dict(each) for each in optimizer.param_groups]
    try:
        return ZeroRedundancyOptimizer(
            groups, kind, process_group=group, parameters_as_bucket_view=True, **options
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"train.strategy zero1: wanted an optimizer that {kind.__name__}(parameters, **{sorted(options)}) makes "
            f"again, over parameters of one dtype; found: {error}; fsdp shares any optimizer's state"
        ) from error
