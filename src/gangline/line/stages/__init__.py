"""The ten stages, each a function of a context that may be called any number of times.

Each is imported when it is called: a process that runs one stage pays for no other.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

from gangline.line.context import Context, StageResult
from gangline.spec.record import STAGES

StageFunction = Callable[[Context], StageResult]


def _when_called(name: str) -> StageFunction:
    def call(ctx: Context) -> StageResult:
        function: StageFunction = getattr(import_module(f"{__name__}.{name}"), name)
        return function(ctx)

    return call


STAGE_FUNCTIONS: Mapping[str, StageFunction] = {name: _when_called(name) for name in STAGES}
