"""The memory run of a plan's finalists: what a rank would hold at its peak, found out by following two of its steps.

A formula decides which plan is best; where its figure is close to what a rank may hold, or somebody asks, a child
process follows the best two without computing anything. What that cannot follow, or does not finish in time, is said,
and the formula stands.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.launch.sandbox.runner import Job, Runner
from gangline.line.inventory import Model
from gangline.planner.choose import Choice
from gangline.planner.pool import open_pool
from gangline.spec.codec import from_plain
from gangline.spec.forecast import Forecast
from gangline.spec.inventory import Inventory
from gangline.spec.plan import Plan
from gangline.spec.secrets import plain_of
from gangline.spec.site import Site
from gangline.units import format_bytes

TIGHT = 0.7
"""Of what a rank may hold, by formula: from here on a plan is followed without being asked."""
TIMEOUT_SECONDS = 180.0
ORIGIN = "memory run"


@dataclass(frozen=True, slots=True)
class Weighed:
    """A choice whose finalists have the peaks that were found, and a sentence on each."""

    choice: Choice
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
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
class Room:
    """What a rank may hold; None: not known."""

    device: float | None
    host: float | None
    """Of what waits there."""


def weigh(
    model: Model, choice: Choice, plan: Plan, *, site: Site, inventory: Inventory, always: bool, runner: Runner,
    say: Callable[[str], None], seconds: float = TIMEOUT_SECONDS,
) -> Weighed:  # fmt: skip
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
        return Weighed(choice)
    say("following the memory of the best plans")
    plans = [_of(plan, choice, number) for number in range(len(choice.finalists))]
    found = dict(zip((each.name for each in plans), _follow(model, plans, runner, seconds), strict=True))
    room = Room(usable, pool.usable_host_bytes(local))
    notes = tuple(_note(name, answer, choice, room) for name, answer in found.items())
    return Weighed(_told(choice, found), notes)


def told(plan: Plan, choice: Choice) -> Plan:
    """`plan` with the forecasts of `choice`."""
    return replace(plan, forecast=choice.forecast, candidates=choice.candidates)


def _is_tight(choice: Choice, usable: float | None) -> bool:
    need = choice.forecast.memory_bytes
    return need is not None and usable is not None and need > TIGHT * usable


def _of(plan: Plan, choice: Choice, number: int) -> Plan:
    shape, setting = choice.finalists[number]
    return replace(
        plan, name=shape.name, strategy=shape.strategy, mesh=shape.mesh, micro_batch=setting.micro_batch,
        memory=setting.memory, sizes=(),
    )  # fmt: skip


def _follow(model: Model, plans: Sequence[Plan], runner: Runner, seconds: float) -> list[Answer]:
    """An answer for each plan, in order."""
    files = {f"plan-{number}.json": plan.to_json() for number, plan in enumerate(plans)}
    job = Job(
        module="gangline.train.estimate.track", arguments=tuple(f"../{name}" for name in files), code=model.code,
        path=model.path, files=files, seconds=seconds, trust=model.trust,
        env=plain_of(model.line.train.env), python=model.python,
    )  # fmt: skip
    try:
        done = runner.run(job)
    except (StorageError, CapacityError) as error:
        return [Answer(unknown=str(error)) for _ in plans]
    why = f"it took over {seconds:.0f} s" if done.exit_code is None else f"it ended with exit {done.exit_code}"
    answers = [_answer(line) for line in done.stdout.splitlines()[: len(plans)] if line.endswith(b"}")]
    return [*answers, *(Answer(unknown=why) for _ in plans[len(answers) :])]


def _answer(line: bytes) -> Answer:
    """The model itself may have written anything."""
    try:
        return from_plain(Answer, json.loads(line))
    except (ValueError, RecursionError, IntegrityError):
        return Answer(unknown=f"wanted an answer of the child process, found {line[:80]!r}")


def _told(choice: Choice, found: dict[str, Answer]) -> Choice:
    candidates = tuple(
        replace(each, forecast=_with(each.forecast, found[each.name])) if each.name in found else each
        for each in choice.candidates
    )
    return replace(choice, candidates=candidates, forecast=_with(choice.forecast, found[choice.name]))


def _with(forecast: Forecast, answer: Answer) -> Forecast:
    if answer.peak_bytes is None:
        return forecast
    return replace(forecast, memory_bytes=answer.peak_bytes, memory_origin=ORIGIN)


def _note(name: str, answer: Answer, choice: Choice, room: Room) -> str:
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
