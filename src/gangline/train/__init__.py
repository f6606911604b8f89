"""The rank runtime. The names a model repository uses come from here, each imported on first use, and torch with it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.train import heartbeat
    from gangline.train.api.program import Program
    from gangline.train.api.session import Session, parallelize
    from gangline.train.task import Loss, ParallelHints

__all__ = ["Loss", "ParallelHints", "Program", "Session", "heartbeat", "parallelize"]
_HOMES = {"Loss": "task", "ParallelHints": "task", "Program": "api.program", "Session": "api.session",
          "parallelize": "api.session"}  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(f"gangline.train.{_HOMES[name]}"), name)
        if name == "heartbeat":
            return importlib.import_module("gangline.train.heartbeat")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
