"""Memory run of a plan's finalists: a child process follows two steps of a rank to find its peak.

A formula ranks the plans; if its figure is close to what a rank may hold, or on request, the best two are followed
without computing anything. What the child process cannot follow, or does not finish in time, is reported, and the
formula counts.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.launch.sandbox.module_runner import ModuleJob, ModuleRunner
from gangline.line.stages.model_inspection import ModelSource
from gangline.planner.selection.choice import PlanChoice
from gangline.planner.shapes.device_pool import open_pool
from gangline.spec.codec import from_plain
from gangline.spec.config.secrets import plain_of
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Plan
from gangline.units import format_bytes

TIGHT = 0.7
"""Of what a rank may hold, by formula: from here on a plan is followed without being asked."""
TIMEOUT_SECONDS = 180.0
ORIGIN = "memory run"


@dataclass(frozen=True, slots=True)
class MemoryRunResult:
    """A choice whose finalists have the peaks that were found, and a sentence on each."""

    choice: PlanChoice
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryAnswer:
    """What the child process says of one plan, in the words of `train.estimate.track`."""

    peak_bytes: int | None = None
    """None: not known."""
    stages: tuple[int, ...] = ()
    host_bytes: int = 0
    assumes: str = ""
    unknown: str = ""
    """Why."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryCapacity:
    """What a rank may hold; None: not known."""

    device: float | None
    host: float | None
    """Of what waits there."""


def run_memory_check(
    model: ModelSource, choice: PlanChoice, plan: Plan, *, site: Site, inventory: Inventory, always: bool,
    runner: ModuleRunner,
    say: Callable[[str], None], seconds: float = TIMEOUT_SECONDS,
) -> MemoryRunResult:  # fmt: skip
    """Follow the finalists of `choice`; never raises for what their model does.

    Args:
        model: Of the line.
        choice: As the formulas made it.
        plan: Of the best one.
        site: Reserves and margins.
        inventory: What ranks may use.
        always: Also where the formula leaves much room.
        runner: Runs the model's code.
        say: Told before anything is followed.
        seconds: For all of them together.
    """
    pool, local = open_pool(site, inventory), choice.procs_per_node
    usable = pool.usable_bytes(local)
    if plan.program.task is None or not (always or _is_tight(choice, usable)):
        return MemoryRunResult(choice)
    say("following the memory of the best plans")
    plans = [_of(plan, choice, number) for number in range(len(choice.finalists))]
    found = dict(zip((each.name for each in plans), _follow(model, plans, runner, seconds), strict=True))
    room = MemoryCapacity(usable, pool.usable_host_bytes(local))
    notes = tuple(_note(name, answer, choice, room) for name, answer in found.items())
    return MemoryRunResult(_told(choice, found), notes)


def with_forecasts_of(plan: Plan, choice: PlanChoice) -> Plan:
    """`plan` with the forecasts of `choice`."""
    return replace(plan, forecast=choice.forecast, candidates=choice.candidates)


def _is_tight(choice: PlanChoice, usable: float | None) -> bool:
    need = choice.forecast.memory_bytes
    return need is not None and usable is not None and need > TIGHT * usable


def _of(plan: Plan, choice: PlanChoice, number: int) -> Plan:
    shape, setting = choice.finalists[number]
    return replace(
        plan, name=shape.name, strategy=shape.strategy, mesh=shape.mesh, micro_batch=setting.micro_batch,
        memory=setting.memory, sizes=(),
    )  # fmt: skip


def _follow(model: ModelSource, plans: Sequence[Plan], runner: ModuleRunner, seconds: float) -> list[MemoryAnswer]:
    """An answer for each plan, in order."""
    files = {f"plan-{number}.json": plan.to_json() for number, plan in enumerate(plans)}
    job = ModuleJob(
        module="gangline.measure.memory_run", arguments=tuple(f"../{name}" for name in files), code=model.code,
        path=model.path, files=files, seconds=seconds, trust=model.trust,
        env=plain_of(model.line.train.env), python=model.python,
    )  # fmt: skip
    try:
        done = runner.run(job)
    except (StorageError, CapacityError) as error:
        return [MemoryAnswer(unknown=str(error)) for _ in plans]
    why = f"it took over {seconds:.0f} s" if done.exit_code is None else f"it ended with exit {done.exit_code}"
    answers = [_answer(line) for line in done.stdout.splitlines()[: len(plans)] if line.endswith(b"}")]
    return [*answers, *(MemoryAnswer(unknown=why) for _ in plans[len(answers) :])]


def _answer(line: bytes) -> MemoryAnswer:
    """The model itself may have written anything."""
    try:
        return from_plain(MemoryAnswer, json.loads(line))
    except (ValueError, RecursionError, IntegrityError):
        return MemoryAnswer(unknown=f"wanted an answer of the child process, found {line[:80]!r}")


def _told(choice: PlanChoice, found: dict[str, MemoryAnswer]) -> PlanChoice:
    candidates = tuple(
        replace(each, forecast=_with(each.forecast, found[each.name])) if each.name in found else each
        for each in choice.candidates
    )
    return replace(choice, candidates=candidates, forecast=_with(choice.forecast, found[choice.name]))


def _with(forecast: Forecast, answer: MemoryAnswer) -> Forecast:
    if answer.peak_bytes is None:
        return forecast
    return replace(forecast, memory_bytes=answer.peak_bytes, memory_origin=ORIGIN)


def _note(name: str, answer: MemoryAnswer, choice: PlanChoice, room: MemoryCapacity) -> str:
    if answer.peak_bytes is None:
        return f"memory run of {name}: not known: {answer.unknown}"
    peak, on_host = answer.peak_bytes, answer.host_bytes
    by_formula = next((each.forecast.memory_bytes for each in choice.candidates if each.name == name), None)
    stages = f" (by stage {', '.join(map(format_bytes, answer.stages))})" if answer.stages else ""
    beside = f", by formula {format_bytes(by_formula)}" if by_formula is not None else ""
    waits = f", and {format_bytes(on_host)} on the host" if on_host else ""
    assumed = f", if {answer.assumes}" if answer.assumes else ""
    over = [
        f"; a rank may {verb} {format_bytes(most)}: expect it to run out of memory"
        for verb, need, most in (("hold", peak, room.device), ("leave on the host", on_host, room.host))
        if most is not None and need > most
    ]
    return f"memory run of {name}: {format_bytes(peak)} at the peak{stages}{beside}{waits}{assumed}{''.join(over)}"
