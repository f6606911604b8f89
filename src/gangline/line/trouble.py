"""Which events of a gang a person should hear of and find in the record: pure, one sentence each.

Ranks tell of one trouble each for itself, and a second driver is told all again: equal sentences are one trouble.
"""

from gangline.launch.protocol import GangEvent
from gangline.line.context import Context


def trouble_of(event: GangEvent) -> str | None:
    """The sentence; None: nothing is wrong, or the gang's end tells it."""
    data = event.data
    if event.kind == "restart":
        return f"restart {data.get('generation')}: {event.text}"
    match event.text:
        case "checkpoint_refused":
            return f"checkpoint refused, an older one is looked for: {data.get('file')}: {data.get('reason')}"
        case "save_failed":
            return f"the checkpoint of step {data.get('step')} could not be saved: {data.get('reason')}"
        case "metrics_not_served" if data.get("rank") == 0:
            return f"training goes on without: {data.get('reason')}"
        case "non_finite" if data.get("answer") != "stop":
            return f"step {data.get('step')} was not finite, the answer is {data.get('answer')}"
    return None


def remember_trouble(ctx: Context, stage: str, event: GangEvent) -> None:
    """Tell the observer and the record, each trouble once."""
    said = trouble_of(event)
    if said is not None and not any(said == each.text for each in (*ctx.record.events, *ctx.pending)):
        ctx.remember(stage, "trouble", said)
