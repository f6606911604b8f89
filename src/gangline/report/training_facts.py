"""Speed, restarts, samples and drills of a training, and the parts of a step as forecast and as measured. Pure."""

from dataclasses import dataclass

from gangline.report.facts import time_of
from gangline.report.gang_bars import updates_words, workers_words
from gangline.report.text import clean, percent
from gangline.spec.federated import FederationResult
from gangline.spec.forecast import PARTS
from gangline.spec.measurements import Drill, Samples, StartedFrom, Training
from gangline.spec.record import PlanInfo, Record
from gangline.spec.run_flags import UNDER_WAY, stage
from gangline.units import format_bytes, format_count, format_seconds, format_step

_SOURCES = {
    "node": "from the memory of its own nodes",
    "peer": "from the memory of other nodes",
    "store": "from the store",
    "living": "from the living replicas",
}


def training_rows(record: Record) -> list[tuple[str, str]]:
    """(name, sentence), in the order they are shown; nothing of a run that has not trained."""
    training = record.training
    if training is None:
        return []
    rows = [
        ("speed", _speed(record, training)),
        ("traffic", _traffic(record, training)),
        ("starts", _starts(record, training)),
        ("samples", _samples(training)),
        ("optimizer", _optimizer(record, training)),
        ("federation", federation_words(record.federated)),
        ("workers", workers_words(training.workers)),
    ]
    return [(name, said) for name, said in rows if said]


def federation_words(found: FederationResult | None) -> str:
    """Members, rounds and privacy of a federation in a line; empty without one."""
    if found is None:
        return ""
    kind = "simulated members" if found.engine == "simulated" else f"members over {clean(found.engine, 40)}"
    parts = [f"{found.roster} {kind}", f"{found.merged} of {found.rounds} rounds merged"]
    if found.answered:
        parts.append(f"answers by quarter {', '.join(f'{each:g}' for each in found.answered)}")
    parts += [f"{_number(found.lost, 'lost round')}"] if found.lost else []
    parts += [f"{_number(found.repeated, 'round')} merged again after a restart"] if found.repeated else []
    if found.refused:
        refused = ", ".join(f"{clean(name.replace('_', ' '), 40)} {count}" for name, count in found.refused.items())
        parts.append(f"refused answers: {refused}")
    parts += ["secure sum"] if found.secure_sum else []
    parts.append(f"{format_bytes(found.bytes_up)} up, {format_bytes(found.bytes_down)} down")
    return " · ".join([*parts, privacy_words(found)])


def privacy_words(found: FederationResult) -> str:
    """What a record of a member spent of what was asked for."""
    if found.epsilon is None:
        return "no privacy asked"
    asked = f"for each member's records, delta {found.delta:g}"
    if found.spent is None:
        why = (
            "a secure sum shows no member's account, each reserves all of it before it trains"
            if found.secure_sum
            else "no member says"
        )
        return f"spent epsilon UNKNOWN ({why}), {found.epsilon:g} asked {asked}"
    by = f" by {clean(found.accountant, 60)}" if found.accountant else ""
    return f"epsilon {found.spent:.2f} of {found.epsilon:g} {asked}{by}"


def _speed(record: Record, training: Training) -> str:
    """Model arithmetic, and its share of what the devices can do: the MFU."""
    if training.flops_per_second is None or record.plan is None:
        return ""
    rate = f"{format_count(training.flops_per_second)}flop/s of model arithmetic"
    share, devices = record.metrics.get("mfu"), _devices(record, record.plan)
    if share is None:
        return f"{rate}; MFU not known: no published peak for {devices} in {record.plan.precision}"
    peak = record.plan.forecast.device_flops
    each = f" ({format_count(peak)}flop/s each)" if peak else ""
    return (
        f"{rate}, MFU {percent(share.value)} of {record.plan.world_size} × {devices} in {record.plan.precision}{each}"
    )


def _devices(record: Record, plan: PlanInfo) -> str:
    """Devices that ranks found, else those that were planned."""
    found = " and ".join(clean(name, 60) for name in record.ran.gpus[:3]) if record.ran else ""
    return found or clean(plan.device_name, 60) or ("CPU cores" if plan.device == "cpu" else "this GPU")


def _traffic(record: Record, training: Training) -> str:
    """Nothing of one process, whose one peer is the store of its rendezvous."""
    has_peers = record.plan is None or record.plan.world_size > 1
    sent = training.wire_bytes_per_step if has_peers else None
    return f"{format_bytes(sent)} a step from rank 0 to other ranks, over TCP" if sent else ""


def _starts(record: Record, training: Training) -> str:
    if record.gang is None:
        return ""
    begun = [_number(record.gang.generations, "generation"), _number(record.gang.restarts, "restart")]
    if (gangs := int(stage(record, "train").outputs.get("attempts", 1))) > 1:
        begun[0] = f"{gangs} gangs, the last with {begun[0]}"
    went_on = [
        f"{_times(training.resumes[word])} {said}" for word, said in _SOURCES.items() if word in training.resumes
    ]
    if training.started_from is not None:
        begun.append(_origin(training.started_from))
    said = ", ".join(begun) + (f"; resumed {', '.join(went_on)}" if went_on else "")
    return said + (f"; {_number(training.rollbacks, 'rollback')}" if training.rollbacks else "")


def _origin(start: StartedFrom) -> str:
    converted = f", {_number(start.converted, 'fused parameter')} split or joined" if start.converted else ""
    return f"from step {start.step} of {clean(start.checkpoint, 400)}{converted}"


def _samples(training: Training) -> str:
    redone = f"{_number(training.steps_redone, 'step')} done again" if training.steps_redone else ""
    samples = training.samples
    return "; ".join(filter(None, [_fate(samples) if samples else "", redone]))


def _fate(found: Samples) -> str:
    left_out = f"; {found.skipped:,} skipped as not finite" if found.skipped else ""
    unknown = f"; {found.unknown:,} unknown: the rank that took them died before it reported" if found.unknown else ""
    return f"{found.trained:,} trained, {_none(found.lost)} lost, {_none(found.repeated)} repeated{left_out}{unknown}"


def _none(count: int) -> str:
    return f"{count:,}" if count else "none"


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count in {0, 1} else 's'}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _optimizer(record: Record, training: Training) -> str:
    """Its share of the time of all ranks in steps, and the updates of a matrix rule."""
    whole = sum(sum(rank.phases.values()) for rank in record.ranks)
    share = sum(rank.phases.get("optimizer", 0.0) for rank in record.ranks) / whole if whole else None
    said = [f"{percent(share)} of the time in steps" if share is not None and share >= SHOWN_SHARE else ""]
    said += [updates_words(training.matrix_updates)] if training.matrix_updates else []
    return "; ".join(filter(None, said))


SHOWN_SHARE = 0.005
"""Share of a step below which a part is not mentioned."""


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part; None: not known."""

    name: str
    forecast: float | None
    measured: float | None
    origin: str
    """Where the forecast came from."""


def part_rows(record: Record) -> list[PartRow]:
    """Rows in the order of PARTS; none where neither a forecast nor a measurement has parts."""
    if record.plan is None:
        return []
    before = {term.part: term for term in record.plan.forecast.terms}
    after = {term.part: term.seconds for term in record.plan.measured.terms}
    steps = (record.plan.forecast.step_seconds, record.plan.measured.step_seconds)
    least = SHOWN_SHARE * max(step or 0.0 for step in steps)
    rows = [
        PartRow(
            name=part,
            forecast=before[part].seconds if part in before else None,
            measured=after.get(part),
            origin=before[part].origin if part in before else "not forecast",
        )
        for part in PARTS
    ]
    return [row for row in rows if max(row.forecast or 0.0, row.measured or 0.0) > least]


def part_words(record: Record) -> str:
    """`compute 198 ms, measured 219 ms · communication ...`; empty: no parts are known."""
    return " · ".join(f"{row.name} {_time(row.forecast)}, measured {_time(row.measured)}" for row in part_rows(record))


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else clean(format_step(seconds))


def lost_work(record: Record) -> str:
    """Sentence on work that restarts lost and the ledger does not have; empty: it has all, or nothing was lost."""
    gang, ledger = record.gang, record.ledger
    is_known = ledger is None or ledger.seconds.get("compute") or any(drill.lost_seconds for drill in record.drills)
    if gang is None or not gang.restarts or is_known:
        return ""
    restarts = f"{gang.restarts} restart{'' if gang.restarts == 1 else 's'}"
    return f"work lost by {restarts}: not known, it is part of other, as the program does not account for its steps"


def drill_result(drill: Drill) -> str:
    """`held late`; `no result yet` of a drill that has only marked its run."""
    is_open = drill.result == "not_struck" and drill.reason == UNDER_WAY
    return "no result yet" if is_open else f"{drill.result.replace('_', ' ')} {drill.reason}".rstrip()


def drill_rows(record: Record) -> list[tuple[str, str]]:
    """(name, `held · lost 4 steps, 3 min 29 s of rank time`) of each drill."""
    rows = []
    for drill in record.drills:
        lost = [] if drill.lost_steps is None else [f"{drill.lost_steps} step{'' if drill.lost_steps == 1 else 's'}"]
        if drill.lost_seconds is not None and record.plan is not None and record.ledger is not None:
            held = format_seconds(drill.lost_seconds * record.plan.world_size)
            lost.append(f"{held} of {time_of(record.ledger.resource)}")
        rows.append((drill.name, drill_result(drill) + (f" · lost {', '.join(lost)}" if lost else "")))
    return rows
