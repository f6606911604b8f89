"""Request to resize the training gang of a run to another number of ranks."""

from gangline.errors import UsageError
from gangline.spec.gang.status import ResizeRequest, resize_key
from gangline.spec.plan import Plan
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore


def request_resize(store: ObjectStore, record: Record, ranks: int) -> Plan:
    """Store a request that the gang sees within seconds: it saves and resumes with `ranks` ranks. Returns its new plan.

    Raises:
        UsageError: The run does not train, its plan has no such size, or its pods have no room for it.
    """
    trains = stage(record, "train").state in {"waiting", "running"} and record.run.state != "ended"
    if not trains or record.plan is None:
        raise UsageError(f"{record.run.id} is not training: only a running gang can be resized")
    plan = Plan.from_json(get_blob(store, record.plan.key))
    ready = sorted({plan.world_size, *(size.mesh.world_size for size in plan.sizes)})
    if len(ready) == 1:
        raise UsageError(
            f"{record.run.id}: wanted {ranks} ranks, its plan is ready for {plan.world_size} only; "
            f"train.ranks = [1, {max(ranks, plan.world_size)}] in line.toml makes the next run elastic"
        )
    if ranks not in ready:
        works = ", ".join(map(str, ready))
        raise UsageError(f"{record.run.id}: wanted {ranks} ranks, its plan is ready for {works}")
    if record.run.launcher.has_pods and ranks > plan.world_size:
        raise UsageError(
            f"{record.run.id}: wanted {ranks} ranks, its pods at {record.run.target} have room for {plan.world_size};"
            " fewer work, and later as many again"
        )
    store.put(resize_key(record.gang_prefix), ResizeRequest(ranks=ranks).to_json())
    return plan.at(ranks)
