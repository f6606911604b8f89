"""The ten stages, each a function of a context that may be called any number of times."""

from collections.abc import Callable, Mapping

from gangline.line.context import Context, StageResult
from gangline.line.stages.build import build
from gangline.line.stages.evaluate import evaluate
from gangline.line.stages.gate import gate
from gangline.line.stages.plan import plan
from gangline.line.stages.prove import prove
from gangline.line.stages.publish import publish
from gangline.line.stages.report import report
from gangline.line.stages.resolve import resolve
from gangline.line.stages.submit import submit
from gangline.line.stages.train import train

STAGE_FUNCTIONS: Mapping[str, Callable[[Context], StageResult]] = {
    "resolve": resolve,
    "build": build,
    "plan": plan,
    "submit": submit,
    "train": train,
    "evaluate": evaluate,
    "gate": gate,
    "prove": prove,
    "publish": publish,
    "report": report,
}
