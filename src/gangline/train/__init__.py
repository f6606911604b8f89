"""The rank runtime. The names a model repository uses come from here; torch is imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

from gangline.train.task import Loss, ParallelHints

if TYPE_CHECKING:
    from gangline.train import heartbeat
    from gangline.train.api.program import Program
    from gangline.train.api.session import Session, parallelize

__all__ = ["Loss", "ParallelHints", "Program", "Session", "heartbeat", "parallelize"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("Session", "parallelize"):
            return getattr(importlib.import_module("gangline.train.api.session"), name)
        if name == "Program":
            return importlib.import_module("gangline.train.api.program").Program
        if name == "heartbeat":
            return importlib.import_module("gangline.train.heartbeat")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
