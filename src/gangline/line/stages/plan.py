"""plan: chooses how to train on what is there, says why, and holds the budget before anything is started."""

from collections.abc import Iterable
from dataclasses import replace

from gangline.errors import GateError
from gangline.line import launchers
from gangline.line.context import Context, StageResult
from gangline.line.inventory import Model, look
from gangline.planner.assemble import make_plan
from gangline.planner.budget import check as check_budget
from gangline.planner.choose import Choice, choose
from gangline.spec.codec import digest, from_json
from gangline.spec.plan import DataSource, Plan
from gangline.spec.profile import Measured
from gangline.spec.record import Artifact, PlanInfo, Record
from gangline.storage.blobs import get_blob, put_blob


def plan(ctx: Context) -> StageResult:
    """Raises ConfigError (10) where nothing fits; fails with GateError (60) over budget, the plan already recorded."""
    code = get_blob(ctx.store, str(ctx.output("build", "code")))
    model = Model(line=ctx.line, code=code, environment=ctx.record.inputs.environment)
    seen = look(model, home=ctx.home)
    inventory = launchers.inventory_at(ctx.site, ctx.environ, seen.inventory)
    choice = choose(ctx.line, ctx.site, inventory, seen.profile, measured(ctx.past.donors))
    gate = check_budget(ctx.line.plan, ctx.site.limits, choice.forecast, band=ctx.site.plan.band)
    data = from_json(DataSource, get_blob(ctx.store, str(ctx.output("build", "data"))))
    made = make_plan(ctx.line, choice, run=ctx.record.run.id, run_prefix=ctx.records.prefix, data=data)
    key = put_blob(ctx.store, made.to_json())
    ctx.store.put(f"{ctx.records.prefix}/plan.json", made.to_json())

    def change(record: Record) -> Record:
        return replace(
            record,
            plan=_describe(made, choice, key),
            gates=(*(each for each in record.gates if each.name != gate.name), gate),
            artifacts=(*record.artifacts, _artifact(made, key)),
        )

    over = gate.verdict == "no"
    return StageResult(
        state="failed" if over else "done",
        message=gate.reason if over else _message(choice),
        key=digest({"line": ctx.record.inputs.line, "inventory": inventory, "build": ctx.record.inputs.code}),
        outputs={
            "name": made.name,
            "steps": made.steps,
            "procs_per_node": choice.procs_per_node,
            "inventory": put_blob(ctx.store, inventory.to_json()),
        },
        change=change,
        error=GateError(f"{gate.reason}; raise the budget or plan less") if over else None,
    )


def measured(past: Iterable[Record]) -> list[Measured]:
    """What earlier runs measured on the plans they ran."""
    return [
        Measured(
            run=record.run.id,
            model=record.inputs.tables.get("model", ""),
            strategy=record.plan.strategy,  # type: ignore[arg-type]  # a record keeps the word, the plan checked it
            mesh=record.plan.mesh,
            device=record.plan.device,  # type: ignore[arg-type]  # likewise
            precision=record.plan.precision,  # type: ignore[arg-type]  # likewise
            global_batch=record.plan.global_batch,
            micro_batch=record.plan.micro_batch,
            step_seconds=record.plan.measured.step_seconds,
            peak_memory_bytes=record.plan.measured.memory_bytes,
        )
        for record in past
        if record.plan is not None and record.plan.measured.step_seconds is not None
    ]


def _message(choice: Choice) -> str:
    runner_up = next((each for each in choice.candidates if each.verdict == "runner_up"), None)
    beside = f" · runner-up {runner_up.name}: {runner_up.reason}" if runner_up else ""
    return f"{choice.name}: {choice.reason}{beside}"


def _describe(plan: Plan, choice: Choice, key: str) -> PlanInfo:
    return PlanInfo(
        digest=plan.digest,
        key=key,
        name=plan.name,
        strategy=plan.strategy,
        mesh=plan.mesh,
        world_size=plan.world_size,
        steps=plan.steps,
        global_batch=plan.global_batch,
        micro_batch=plan.micro_batch,
        precision=plan.precision,
        device=plan.device,
        reason=choice.reason,
        candidates=choice.candidates,
        forecast=choice.forecast,
    )


def _artifact(plan: Plan, key: str) -> Artifact:
    size = len(plan.to_json())
    return Artifact(kind="plan", key=key, media_type="application/json", size_bytes=size, sha256=key.rsplit("/", 1)[1])
