"""The stages, their execution, and the calls that drive a run.

Each stage is a function of a context and may be called any number of times. Its module is imported on the call, so
that a process of one stage does not load the others.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from gangline.spec.record import STAGES

if TYPE_CHECKING:
    from gangline.line.record.context import RunContext, StageResult

StageFunction = Callable[["RunContext"], "StageResult"]


def _lazy(name: str) -> StageFunction:
    def call(ctx: "RunContext") -> "StageResult":
        function: StageFunction = getattr(import_module(f"{__name__}.{name}"), name)
        return function(ctx)

    return call


STAGE_FUNCTIONS: Mapping[str, StageFunction] = {name: _lazy(name) for name in STAGES}
