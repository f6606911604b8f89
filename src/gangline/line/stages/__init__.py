"""The ten stages, their execution, and the calls that drive a run.

Each stage is a function of a context and may be called any number of times. It is imported when it is called: a
process that runs one stage pays for no other.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

from gangline.line.record.context import RunContext, StageResult
from gangline.spec.record import STAGES

StageFunction = Callable[[RunContext], StageResult]


def _when_called(name: str) -> StageFunction:
    def call(ctx: RunContext) -> StageResult:
        function: StageFunction = getattr(import_module(f"{__name__}.{name}"), name)
        return function(ctx)

    return call


STAGE_FUNCTIONS: Mapping[str, StageFunction] = {name: _when_called(name) for name in STAGES}
