"""submit: creates the training gang, or finds that there is nothing to train."""

from dataclasses import replace

from gangline.launch.protocol import Gang
from gangline.line.clock import now
from gangline.line.context import Context, StageResult
from gangline.line.gangs import podset_for
from gangline.line.taken import find_donor, origin
from gangline.spec.codec import digest
from gangline.spec.plan import Forecast, Plan
from gangline.spec.record import GangInfo, Record


def submit(ctx: Context) -> StageResult:
    """Returns at once; raises CapacityError (20) without room and IntegrityError (50) for another gang of the name."""
    key = train_key(ctx)
    donor = find_donor(ctx, "train", key)
    if donor is not None:
        return StageResult(
            state="skipped", message=f"nothing to start: {origin(donor, 'train')} has trained this", key=key
        )
    podset = podset_for(ctx, ctx.plan)
    gang = ctx.launcher.submit(podset)
    processes = "1 process" if podset.world_size == 1 else f"{podset.world_size} processes"
    what = "adopted" if gang.adopted else f"{processes} on this machine"
    return StageResult(
        message=f"gang {gang.name}: {what}",
        key=podset.digest,
        outputs={"gang": gang.name},
        change=lambda record: with_gang(record, gang, ctx.site.launch.target),
    )


def with_gang(record: Record, gang: Gang, target: str) -> Record:
    """The record with the gang that trains now."""
    standing = record.gang
    if standing is not None and (standing.name, standing.uid) == (gang.name, gang.uid):
        return record
    info = GangInfo(
        launcher=target, name=gang.name, uid=gang.uid, podset=gang.podset, servers=gang.servers, admitted=now()
    )
    return replace(record, gang=info)


def train_key(ctx: Context) -> str:
    """Digest over what decides the weights: code, environment, data, and the plan without the run's name in it."""
    inputs = ctx.record.inputs
    return digest([inputs.code, inputs.environment, inputs.image, inputs.data, bare(ctx.plan)])


def bare(plan: Plan) -> Plan:
    """What of a plan a rank's numbers depend on."""
    return replace(plan, run="", run_prefix="", reason="", candidates=(), forecast=Forecast(), evaluate_metrics=())
