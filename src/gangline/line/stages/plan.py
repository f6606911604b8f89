"""Stage plan: chooses how to train on the available devices, with the reason, and checks the budget."""

from dataclasses import asdict, replace

from gangline.build.code_layer import LayerSelection as LayerChoice
from gangline.errors import ConfigError, GateError
from gangline.fabric.placement.certificate import Certificate
from gangline.fabric.topology.inventory import Fabric
from gangline.launch.sandbox import Sandbox
from gangline.line.gangs.gang_secrets import require_secrets
from gangline.line.gangs.podsets import commits_python, server_labels
from gangline.line.gangs.runners import CodeOwner, open_runner, runs_in_pod
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.gangs.stated_network import (
    PlannedNetwork,
    network_environment,
    planned_network,
    stated_network,
    uncounted_environment,
)
from gangline.line.record.context import RunContext, StageResult
from gangline.line.request.trust import kept_home_of, require_approval
from gangline.line.stages.hypothetical import certificate_of
from gangline.line.stages.model_inspection import VISIBLE_DEVICES, ModelSource, columns_of
from gangline.line.stages.planning import PlannedRun, RunPlanRequest, plan_run
from gangline.line.stages.publish import check_publication
from gangline.line.stages.start_checkpoint import open_start
from gangline.planner.certificate import pipeline_traffic
from gangline.planner.choice import PlanChoice
from gangline.planner.known_gpus import with_network
from gangline.planner.layouts.layout import program_decides
from gangline.planner.plans import worker_exchange
from gangline.spec.codec import Document, digest, from_json
from gangline.spec.config.line import Line
from gangline.spec.data_source import DataSource
from gangline.spec.plan import Plan
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Artifact, PlanInfo, Record
from gangline.storage.objects.blobs import blob_key, get_blob, put_blob
from gangline.storage.objects.placed_files import with_placed_files

EQUAL_WORKERS = "among equal devices on one fast network, ddp or diloco reach a loss sooner"


def plan(ctx: RunContext) -> StageResult:
    """Raises ConfigError (10) if nothing fits; fails with GateError (60) over budget, with the plan recorded."""
    sandbox = checked_sandbox(ctx)
    start = open_start(
        ctx.line, ctx.record.commit.trust, store=ctx.store, site=ctx.site, environ=ctx.environ
    )  # fmt: skip
    if start is not None:
        ctx.record_event("plan", "start", start.text)
    if note := check_publication(ctx):
        ctx.record_event("plan", "publish", note)
    data = from_json(DataSource, get_blob(ctx.store, str(ctx.output("build", "data"))))
    stated = stated_network(ctx.environ)
    network = planned_network(stated, ctx.store)
    site = ctx.site if network is None else with_network(ctx.site, network.fabric)
    planned = plan_run(
        _request(ctx, data), site, environ=ctx.environ, home=ctx.home, notify=ctx.observer.note,
        fabric=network.fabric if network else None,
    )  # fmt: skip
    if start is not None:
        start.require_shapes(planned.profile)
    for kind, texts in (("forecast", planned.problems), ("memory", planned.notes)):
        for text in texts:
            ctx.record_event("plan", kind, text)
    if sandbox.warning and not runs_in_pod(sandbox, ctx.site):
        ctx.record_event("plan", "sandbox", sandbox.warning)
    if planned.profile is not None and planned.profile.untraced:
        ctx.record_event("plan", "forecast", f"no step of the model could be traced: {planned.profile.untraced}")
    choice, gate, inventory, made = planned.choice, planned.budget, planned.inventory, planned.plan
    _check_workers(ctx, made)
    key, certificate = put_blob(ctx.store, made.to_json()), _certificate(ctx, planned, network)
    kept = [_artifact("plan", made), *([_artifact("certificate", certificate)] if certificate else [])]
    described = _describe(made, choice, key, device_name=inventory.device_names)
    ctx.store.put(f"{ctx.records.prefix}/plan.json", made.to_json())

    def change(record: Record) -> Record:
        return replace(
            record,
            plan=replace(described, network=f"{certificate.line} · links {certificate.links}" if certificate else ""),
            gates=(*(each for each in record.gates if each.name != gate.name), gate),
            artifacts=(*record.artifacts, *kept),
        )

    over = gate.verdict == "no"
    return StageResult(
        state="failed" if over else "done",
        message=gate.reason if over else _message(ctx.line, choice),
        key=digest({"line": ctx.record.inputs.line, "inventory": inventory, "build": ctx.record.inputs.code}),
        outputs={
            "name": made.name,
            "steps": made.steps,
            "procs_per_node": choice.procs_per_node,
            "inventory": put_blob(ctx.store, inventory.to_json()),
            **server_labels(inventory),
            **_cuts(planned.profile),
            **_pipeline(ctx, planned),
            **_environment(ctx, stated, made),
        },
        change=change,
        error=GateError(f"{gate.reason}; raise the budget or plan less") if over else None,
    )


def _check_workers(ctx: RunContext, plan: Plan) -> None:
    """Record what workers exchange; raise ConfigError if those of this machine would have to share its GPUs."""
    if (exchange := worker_exchange(plan)) is not None:
        ctx.record_event("plan", "exchange", f"{exchange.text}; {EQUAL_WORKERS}")
    if plan.parameters is not None and plan.device == "cuda" and ctx.record.run.launcher.is_here:
        raise ConfigError(
            f"train.parameter_server: wanted GPUs of their own for {plan.num_workers} workers, found a target on this"
            " machine, where gangs share them; launch.target kubernetes or slurm gives each worker its own"
        )


def checked_sandbox(ctx: RunContext) -> Sandbox:
    """Sandbox of the model's code; raises if this commit may not run it here."""
    sandbox = sandbox_of(ctx.repo, ctx.record.commit.trust, site=ctx.site, environ=ctx.environ)
    if not ctx.record.run.launcher.has_pods:
        sandbox.require()
    if ctx.record.commit.trust == "own":
        require_secrets(ctx.line.train.env, ctx.site, ctx.environ)
    if ctx.line.project.task is not None or ctx.line.train.schedule.function is not None:
        require_approval(ctx.read_current(), "measuring its model")
    return sandbox


def _request(ctx: RunContext, data: DataSource) -> RunPlanRequest:
    """The plan that this commit asks for."""
    layer = get_blob(ctx.store, str(ctx.output("build", "code")))
    whole = with_placed_files(layer, ctx.store, data.tracked) if ctx.line.project.task else layer
    return RunPlanRequest(
        model=ModelSource(
            line=ctx.line,
            code=whole or layer,
            lacks=() if whole else tuple(file.path for file in data.tracked),
            environment=ctx.record.inputs.environment,
            folder=LayerChoice.of(ctx.line.project, ctx.repository).folder,
            trust=ctx.record.commit.trust,
            data=(*(file.path for file in data.files), *columns_of(ctx.store, data.sets)),
            python=commits_python(ctx.record),
            visible_devices=ctx.environ.get(VISIBLE_DEVICES),
            home=kept_home_of(ctx.record),
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


def _pipeline(ctx: RunContext, planned: PlannedRun) -> dict[str, dict[str, float]]:
    """What the placer orders the servers of a pipeline by; empty: a ring goes over all of them."""
    if planned.profile is None or planned.choice.num_nodes < 2:
        return {}
    traffic = pipeline_traffic(planned.choice, planned.profile, line=ctx.line)
    return {} if traffic is None else {"pipeline": asdict(traffic)}


def _environment(ctx: RunContext, stated: Fabric | None, made: Plan) -> dict[str, dict[str, str]]:
    """What launchers pass to ranks for the stated network, with events of it and of what the line sets otherwise."""
    for words in uncounted_environment(stated, made, ctx.line):
        ctx.record_event("plan", "network", f"the line sets {words} as fabric.toml states and the plan counts")
    variables = network_environment(stated, made, ctx.line)
    if not variables:
        return {}
    words = " ".join(f"{name}={value}" for name, value in variables.items())
    ctx.record_event("plan", "network", f"ranks get {words}, as fabric.toml states the network", notify=False)
    return {"environment": variables}


def _certificate(ctx: RunContext, planned: PlannedRun, network: PlannedNetwork | None) -> Certificate | None:
    """Certificate on the stated network, kept in the store; None: there is none, as for one server."""
    if network is None or planned.profile is None:
        return None
    certificate = certificate_of(network, planned.choice, planned.profile, site=ctx.site, line=ctx.line)
    if certificate is not None:
        put_blob(ctx.store, certificate.to_json())
    return certificate


def _message(line: Line, choice: PlanChoice) -> str:
    if program_decides(line):
        return f"{choice.name}; {choice.reason}"
    runner_up = next((candidate for candidate in choice.candidates if candidate.verdict == "runner_up"), None)
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
        shares=plan.shares,
        precision=plan.precision,
        device=plan.device,
        device_name=device_name,
        reason=choice.reason,
        candidates=choice.candidates,
        forecast=choice.forecast,
    )


def _artifact(kind: str, document: Document) -> Artifact:
    """Artifact of a document that is kept as a blob."""
    data = document.to_json()
    key = blob_key(data)
    return Artifact(
        kind=kind, key=key, media_type="application/json", size_bytes=len(data), sha256=key.rsplit("/", 1)[1]
    )
