"""Stage prove: opens the checkpoint under a second plan, compares every tensor, trains some steps again."""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace

from gangline.errors import GateError
from gangline.line.gangs.attempts import run_gang
from gangline.line.record.context import RunContext, StageResult
from gangline.line.record.states import stage_origin
from gangline.line.results.ledger import failed_result, with_shares
from gangline.line.results.loss_curve import losses_of
from gangline.line.results.training_result import read_metrics
from gangline.planner.plans import prove_plan
from gangline.spec import run_flags
from gangline.spec.codec import digest
from gangline.spec.devices import Inventory
from gangline.spec.gang.status import GangResult, JobResult
from gangline.spec.measurements import Answer, Metric, Proof
from gangline.spec.plan import Plan
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Gate, Record
from gangline.storage.objects.blobs import get_blob


def prove(ctx: RunContext) -> StageResult:
    """Fails with GateError (60) if a tensor differs, or the replay is outside band and parity."""
    table = ctx.line.prove
    train = run_flags.stage(ctx.record, "train")
    checkpoint = train.outputs.get("checkpoint")
    key = digest([train.key, ctx.record.inputs.tables.get("prove"), ctx.line.gate.parity])
    if table.plan == "off":
        return StageResult(state="skipped", message='prove.plan = "off": no second plan is wanted', key=key)
    if ctx.line.project.task is None:
        return StageResult(state="skipped", message="programs are not opened under a second plan", key=key)
    if checkpoint is None:
        return StageResult(state="skipped", message="the program left no checkpoint to open again", key=key)
    earlier = ctx.find_cached_stage("prove", key)
    if earlier is not None and earlier.proof is not None:
        return _taken(key, earlier, earlier.proof)
    inventory = Inventory.from_json(get_blob(ctx.store, str(ctx.output("plan", "inventory"))))
    plan = prove_plan(
        ctx.plan, table.plan, str(checkpoint), table.replay_steps,
        inventory=inventory.as_smallest, site=ctx.site, profile=_profile(ctx),
    )  # fmt: skip
    finished = run_gang(ctx, "prove", plan)
    if finished.result is None:
        return failed_result(key, finished)
    proof = judge_proof(ctx, plan, str(checkpoint), finished.result)
    differs = proof.tensors_equal != proof.tensors or proof.same_loss == "no"

    return StageResult(
        state="failed" if differs else "done",
        message=_message(proof),
        key=key,
        change=lambda record: replace(_with_proof(record, proof), ledger=with_shares(record, finished)),
        error=GateError(proof.reason) if differs else None,
    )


def _profile(ctx: RunContext) -> ModelProfile | None:
    """Profile of the model from the plan stage: into how many parts it can be cut."""
    parameters = ctx.plan.forecast.parameters
    if parameters is None:
        return None
    cuts = {name: ctx.output("plan", name) for name in ("blocks", "tensor_cuts", "experts")}
    return ModelProfile(parameters=parameters, **cuts)


def judge_proof(ctx: RunContext, plan: Plan, checkpoint: str, result: GangResult) -> Proof:
    """Compares the tensors of the checkpoint, and the replayed losses with those of the training."""
    digests = result.digests
    total, equal = (digests.total, digests.equal) if digests else (0, 0)
    attempts = int(ctx.output("train", "attempts") or 1)
    trained = replace(ctx.plan, run_prefix=checkpoint.rsplit("/checkpoints/", 1)[0])
    losses = losses_of(read_metrics(ctx, trained, attempts)[0])
    replayed = next((job for job in result.jobs if job.losses), None)
    difference = largest_difference(losses, replayed) if replayed else None
    price = loss_price(losses, replayed) if replayed and ctx.plan.lossy else None
    same = _same_loss(ctx, replayed, difference)
    proof = Proof(
        checkpoint=checkpoint,
        plan=plan.name,
        tensors=total,
        tensors_equal=equal,
        replay_steps=replayed.step if replayed else 0,
        replay_difference=None if difference is None else min(difference, sys.float_info.max),
        same_loss=same,
        loss_price=price,
    )
    return replace(proof, reason=_reason(ctx, proof, digests.different if digests else ()))


def largest_difference(losses: Mapping[int, float], replayed: JobResult) -> float | None:
    """Largest difference over the steps that both have; infinite if one is not finite, None if they share no step."""
    pairs = [(losses[step], loss) for step, loss in replayed.losses if step in losses]
    if not pairs:
        return None
    return max(abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf for a, b in pairs)


def loss_price(losses: Mapping[int, float], replayed: JobResult) -> float | None:
    """Mean excess of the trained over the replayed losses, over the later half of the steps that both have."""
    gaps = [losses[step] - loss for step, loss in replayed.losses if step in losses]
    later = gaps[len(gaps) // 2 :]
    return sum(later) / len(later) if later and all(map(math.isfinite, later)) else None


def _same_loss(ctx: RunContext, replayed: JobResult | None, difference: float | None) -> Answer:
    """Whether the replay's metrics are within their bands or, without these, its losses within `gate.parity`.

    Unknown after a lossy exchange of gradients, which changes losses; `loss_price` reports by how much.
    """
    if replayed is None or difference is None or (ctx.plan.lossy and math.isfinite(difference)):
        return "unknown"
    whole = replayed.step >= ctx.plan.steps
    judged = [_in_band(ctx.record.metrics.get(name), value) for name, value in replayed.metrics.items() if whole]
    known = [answer for answer in judged if answer is not None]
    held = all(known) if known else difference <= ctx.line.gate.parity
    return "yes" if held and math.isfinite(difference) else "no"


def _in_band(metric: Metric | None, value: float) -> bool | None:
    if metric is None or metric.band is None:
        return None
    return metric.band.low <= value <= metric.band.high


def _reason(ctx: RunContext, proof: Proof, different: tuple[str, ...]) -> str:
    if proof.tensors_equal != proof.tensors:
        return f"{proof.tensors - proof.tensors_equal} of {proof.tensors} tensors differ: {', '.join(different[:3])}"
    if proof.same_loss == "no":
        parity = f"parity is {ctx.line.gate.parity:g}"
        return f"the replay under {proof.plan} differs by {proof.replay_difference:.1e}, {parity}"
    if proof.loss_price is not None:
        return f"every tensor is equal under {proof.plan}; {ctx.plan.lossy} cost {proof.loss_price:+.2g} of loss"
    return f"every tensor is equal under {proof.plan}"


def _with_proof(record: Record, proof: Proof) -> Record:
    held = proof.tensors_equal == proof.tensors and proof.same_loss != "no"
    evidence = {"tensors": proof.tensors, "equal": proof.tensors_equal, "difference": proof.replay_difference}
    gate = Gate(name="parity", verdict="yes" if held else "no", reason=proof.reason, evidence=evidence)
    gates = tuple(each for each in record.gates if each.name != "parity")
    return replace(record, proof=proof, gates=(*gates, gate))


def _taken(key: str, earlier: Record, proof: Proof) -> StageResult:
    origin = stage_origin(earlier, "prove")
    return StageResult(
        state="taken", message=f"{_message(proof)} · taken from {origin}", key=key, taken_from=origin,
        change=lambda record: _with_proof(record, proof),
    )  # fmt: skip


def _difference(found: float) -> str:
    return f"loss differs by {found:.1e}" if found else "same losses to the bit"


def _message(proof: Proof) -> str:
    parts = [f"{proof.plan}: {proof.tensors_equal} of {proof.tensors} tensors equal"]
    if proof.replay_difference is not None:
        parts.append(f"{proof.replay_steps} steps again: {_difference(proof.replay_difference)}")
        if proof.loss_price is None:
            parts.append(f"same loss within the band: {proof.same_loss}")
        else:
            parts.append(f"lossy exchange cost {proof.loss_price:+.2g} of loss")
    return " · ".join(parts)
