"""An earlier training with the same inputs, whose result a run may take over instead of training again."""

from dataclasses import replace

from gangline.line.record.context import RunContext
from gangline.line.record.states import stage_origin
from gangline.line.request.kept_home import FOLDER, kept_home_of
from gangline.line.results.undeclared_reads import obstacle
from gangline.spec.codec import digest
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Plan
from gangline.spec.record import RETRAINED, Record


def find_training(ctx: RunContext, key: str) -> Record | None:
    """The nearest run that has trained this, if all that its ranks read besides is the same here and now.

    The reason why the nearest one is not taken is recorded.
    """
    refused: dict[str, str] = {}
    kept = kept_home_of(ctx.record)
    home = ctx.home.resolve() / FOLDER / kept.path if kept else None
    for earlier in ctx.find_cached_stages("train", key):
        origin = stage_origin(earlier, "train")
        if origin in refused:
            continue
        if not (why := obstacle(earlier.ran, home=home)):
            return earlier
        refused[origin] = why
    for origin, why in list(refused.items())[:1]:
        ctx.record_event("submit", RETRAINED, f"trained again, though {origin} has trained this: {why}")
    return None


def train_key(ctx: RunContext) -> str:
    """Digest of everything that decides weights and outputs; not of the names of run and plan."""
    inputs, project = ctx.record.inputs, ctx.line.project
    decides = [inputs.code, inputs.environment, inputs.image, ctx.line.train.env, inputs.data, _numeric_part(ctx.plan)]
    kept = [project.outputs, project.metrics]
    return digest([*decides, *(kept if any(kept) else ())])


def _numeric_part(plan: Plan) -> Plan:
    """The plan without fields that do not change a rank's numbers."""
    return replace(plan, run="", run_prefix="", reason="", candidates=(), forecast=Forecast(), evaluate_metrics=())
