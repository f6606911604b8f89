"""Stage submit: creates the training gang, unless an earlier run has trained the same, whose result this one takes."""

from dataclasses import replace

from gangline.errors import CapacityError
from gangline.launch.protocol import Gang
from gangline.launch.sandbox.environment import missed_variables
from gangline.line.gangs.gang_secrets import left_out_variables
from gangline.line.gangs.many import submit_gangs
from gangline.line.gangs.podsets import THREADS, podset_for
from gangline.line.record.context import RunContext, StageResult
from gangline.line.record.runs import open_runs
from gangline.line.record.states import stage_origin
from gangline.line.request.trust import FOLDER, kept_home_of
from gangline.line.results.undeclared_reads import obstacle
from gangline.spec.codec import digest
from gangline.spec.forecast import Forecast
from gangline.spec.gang.podset import PodSet
from gangline.spec.plan import Plan
from gangline.spec.record import ENVIRONMENT, RETRAINED, GangInfo, Record
from gangline.storage.objects.blobs import get_blob
from gangline.storage.s3.run_credentials import credential_owners, credential_policy
from gangline.units import now


def submit(ctx: RunContext) -> StageResult:
    """Returns at once; raises CapacityError (20) without room and IntegrityError (50) for another gang of the name."""
    key = train_key(ctx)
    earlier = find_training(ctx, key)
    if earlier is not None:
        return StageResult(
            state="skipped", message=f"no gang needed: {stage_origin(earlier, 'train')} has trained this", key=key
        )
    # record why it trains again what a run that may not be published has trained
    if ctx.record.run.attempt == 1 and (other := ctx.earlier_runs.refused_with_stage("train", key, taker=ctx.record)):
        text = f"{other.run.id} has trained this, and may not be published: this run, which may, trains it again"
        ctx.record_event("submit", "rules", text)
    limit = ctx.site.limits.active_runs
    others = [run.run.id for run in open_runs(ctx.store) if run.gang is not None and run.run.id != ctx.record.run.id]
    if ctx.record.gang is None and len(others) >= limit:
        raise CapacityError(
            f"limits.active_runs: wanted room for one more, found {len(others)} of {limit} open runs, the first"
            f" {others[0]}; run again when one has ended; gangline cancel RUN ends one without a driver"
        )
    podset = podset_for(ctx, ctx.plan)
    gang = submit_gangs(ctx)
    _record_credential(ctx)
    _record_environment(ctx)
    return StageResult(
        message=f"gang {gang.name}: {'adopted' if gang.adopted else _size(ctx, podset, gang)}",
        key=gang.podset,
        outputs={"gang": gang.name},
        change=lambda record: with_gang(record, gang, ctx.record.run.target),
    )


def _record_credential(ctx: RunContext) -> None:
    """Record a note if the gang's credential does not expire with its run."""
    site = ctx.site.store
    if site.credentials is None or (site.scoped and ctx.records.prefix in credential_owners(ctx.store)):
        return
    issued = (
        credential_policy(ctx.store)
        if site.scoped
        else "no credential for one run, gangs get the site's own: scoped = false"
    )
    ctx.record_event("submit", "credential", f"the store issues {issued}")


def _size(ctx: RunContext, podset: PodSet, gang: Gang) -> str:
    """Size of the gang, and its queue."""
    if ctx.record.run.launcher.is_here:
        processes = "1 process" if podset.world_size == 1 else f"{podset.world_size} processes"
        return f"{processes} on this machine{_threads(podset)}"
    each = f"{podset.resources.gpus} GPUs" if podset.resources.gpus else f"{podset.procs_per_node} CPU ranks"
    if ctx.record.run.launcher.has_jobs:
        slurm = ctx.site.slurm
        servers = "1 server" if podset.num_nodes == 1 else f"{podset.num_nodes} servers"
        asked = (f"{key} {value}" for key, value in (("partition", slurm.partition), ("qos", slurm.qos)) if value)
        return f"job {gang.uid} · {servers} x {each}{_threads(podset)}{''.join(f' · {words}' for words in asked)}"
    queue = f", queue {podset.queue}" if podset.queue else ""
    return f"{podset.num_nodes} pods x {each}{_threads(podset)}{queue}"


def _threads(podset: PodSet) -> str:
    """Threads of each rank, if the environment sets them."""
    count = podset.env.get(THREADS[0])
    return "" if count is None else f", {count} thread{'' if count == '1' else 's'} a rank"


def _record_environment(ctx: RunContext) -> None:
    """Record the variables that the program does not get; notify of those that it reads, unless an earlier run did."""
    env = ctx.line.train.env
    if text := left_out_variables(ctx.record, env):
        ctx.record_event("submit", ENVIRONMENT, text)
    if ctx.record.run.launcher.has_pods:
        return
    missed = missed_variables(ctx.environ, env, get_blob(ctx.store, str(ctx.output("build", "code"))))
    if missed.read:
        names = ", ".join(missed.read)
        text = f"not passed on to the program: {names}; set them by [train.env], secrets as secret:env:NAME"
        known = any(event.text == text for record in ctx.earlier_runs.reusable for event in record.events)
        ctx.record_event("submit", ENVIRONMENT, text, notify=not known)
    if missed.others:
        text = f"not passed on, and named by no code of the commit: {', '.join(missed.others)}"
        ctx.record_event("submit", ENVIRONMENT, text, notify=False)


def with_gang(record: Record, gang: Gang, target: str, restarts: int = 0) -> Record:
    """The record with `gang` as its training gang, before which there were `restarts`."""
    current = record.gang
    if current is not None and (current.name, current.uid) == (gang.name, gang.uid):
        return record
    info = GangInfo(
        launcher=target, name=gang.name, uid=gang.uid, podset=gang.podset, servers=gang.servers,
        admitted=now() if gang.servers else None, restarts=restarts,
    )  # fmt: skip
    return replace(record, gang=info)


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
