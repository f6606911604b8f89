"""The fork server of a process of tests: there is one, and whoever asks first says what it has imported."""

import multiprocessing
from multiprocessing.context import ForkServerContext

from gangline.train.rank.warm_parent import PRELOADED

_ONCE = "tests.forks.sitecustomize"
_CHECKPOINTS = tuple(f"gangline.checkpoint.{name}" for name in ("saver", "loader", "prove"))
_TORCH = ("torch.distributed.optim", "torch.distributed.tensor.parallel")
_TRAINING = ("gangline.train.api.session", "gangline.train.loop.trainer")


def fork_server(*modules: str) -> ForkServerContext:
    """Context whose server has torch, all that ranks of tests import, and `modules`, if this process has none yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_ONCE, *PRELOADED, *_TORCH, *_CHECKPOINTS, *_TRAINING, *modules])
    return context
