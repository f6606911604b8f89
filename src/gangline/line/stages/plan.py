"""Stage plan: chooses how to train on the available devices, with the reason, and checks the budget."""

from dataclasses import replace

from gangline.build.code_layer import LayerSelection as LayerChoice
from gangline.errors import GateError
from gangline.launch.sandbox import Sandbox
from gangline.line.gangs.podsets import commits_python
from gangline.line.gangs.runners import CodeOwner, open_runner, runs_in_pod
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.gangs.train_secrets import require_secrets
from gangline.line.record.context import RunContext, StageResult
from gangline.line.request.trust import require_approval
from gangline.line.stages.model_inspection import VISIBLE_DEVICES, ModelSource
from gangline.line.stages.planning import RunPlanRequest, plan_run
from gangline.planner.selection.choice import PlanChoice
from gangline.spec.codec import digest, from_json
from gangline.spec.plan import DataSource, Plan
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Artifact, PlanInfo, Record
from gangline.storage.objects.blobs import get_blob, put_blob


def plan(ctx: RunContext) -> StageResult:
    """Raises ConfigError (10) if nothing fits; fails with GateError (60) over budget, with the plan recorded."""
    sandbox = _checked_sandbox(ctx)
    data = from_json(DataSource, get_blob(ctx.store, str(ctx.output("build", "data"))))
    planned = plan_run(_request(ctx, data), ctx.site, environ=ctx.environ, home=ctx.home, notify=ctx.observer.note)
    for kind, texts in (("forecast", planned.problems), ("memory", planned.notes)):
        for text in texts:
            ctx.record_event("plan", kind, text)
    if sandbox.warning and not runs_in_pod(sandbox, ctx.site):
        ctx.record_event("plan", "sandbox", sandbox.warning)
    if planned.profile is not None and planned.profile.untraced:
        ctx.record_event("plan", "forecast", f"no step of the model could be traced: {planned.profile.untraced}")
    choice, gate, inventory, made = planned.choice, planned.budget, planned.inventory, planned.plan
    key = put_blob(ctx.store, made.to_json())
    ctx.store.put(f"{ctx.records.prefix}/plan.json", made.to_json())

    def change(record: Record) -> Record:
        return replace(
            record,
            plan=_describe(made, choice, key, device_name=inventory.gpus.name if inventory.gpus else ""),
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
            **_cuts(planned.profile),
        },
        change=change,
        error=GateError(f"{gate.reason}; raise the budget or plan less") if over else None,
    )


def _checked_sandbox(ctx: RunContext) -> Sandbox:
    """Sandbox of the model's code; raises if this commit may not run it here."""
    sandbox = sandbox_of(ctx.repo, ctx.record.commit.trust, site=ctx.site, environ=ctx.environ)
    if ctx.record.run.target == "local":
        sandbox.require()
    if ctx.record.commit.trust == "own":
        require_secrets(ctx.line.train.env, ctx.site, ctx.environ)
    if ctx.line.project.task is not None or ctx.line.train.schedule.function is not None:
        require_approval(ctx.read_current(), "measuring its model")
    return sandbox


def _request(ctx: RunContext, data: DataSource) -> RunPlanRequest:
    """The plan that this commit asks for."""
    return RunPlanRequest(
        model=ModelSource(
            line=ctx.line,
            code=get_blob(ctx.store, str(ctx.output("build", "code"))),
            environment=ctx.record.inputs.environment,
            folder=LayerChoice.of(ctx.line.project, ctx.repository).folder,
            trust=ctx.record.commit.trust,
            data=tuple(each.path for each in data.files),
            python=commits_python(ctx.record),
            visible_devices=ctx.environ.get(VISIBLE_DEVICES),
        ),
        repository=ctx.repository,
        store=ctx.store,
        commit=ctx.record.commit.sha,
        run=ctx.record.run.id,
        run_prefix=ctx.record.gang_prefix,
        runner=open_runner(CodeOwner.of(ctx.record), ctx.repo, site=ctx.site, environ=ctx.environ, store=ctx.store),
        data=data,
    )


def _cuts(profile: ModelProfile | None) -> dict[str, int]:
    """What the second plan of a proof needs of the model; empty if it was not inspected."""
    names = ("blocks", "tensor_cuts", "experts")
    found = {name: getattr(profile, name, None) for name in names}
    return {name: number for name, number in found.items() if number is not None}


def _message(choice: PlanChoice) -> str:
    if choice.is_left_to_program:
        return f"{choice.name}; {choice.reason}"
    runner_up = next((each for each in choice.candidates if each.verdict == "runner_up"), None)
    second = f" · runner-up {runner_up.name}: {runner_up.reason}" if runner_up else ""
    return f"{choice.name}: {choice.reason}{second}"


def _describe(plan: Plan, choice: PlanChoice, key: str, *, device_name: str) -> PlanInfo:
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
        device_name=device_name,
        reason=choice.reason,
        candidates=choice.candidates,
        forecast=choice.forecast,
    )


def _artifact(plan: Plan, key: str) -> Artifact:
    size = len(plan.to_json())
    return Artifact(kind="plan", key=key, media_type="application/json", size_bytes=size, sha256=key.rsplit("/", 1)[1])
