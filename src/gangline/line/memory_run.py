"""The memory run of a plan's finalists: what a rank would hold at its peak, found out by following two of its steps.

A formula decides which plan is best; where its figure is close to what a rank may hold, or somebody asks, a child
process follows the best two without computing anything. What that cannot follow, or does not finish in time, is said,
and the formula stands.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gangline.launch.local.start import passed_on
from gangline.line.inventory import Model
from gangline.planner.choose import Choice
from gangline.planner.pool import open_pool
from gangline.spec.forecast import Forecast
from gangline.spec.inventory import Inventory
from gangline.spec.plan import Plan
from gangline.spec.site import Site
from gangline.storage.layer import unpack
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


@dataclass(frozen=True, slots=True)
class Room:
    """What a rank may hold; None: not known."""

    device: float | None
    host: float | None
    """Of what waits there."""


def weigh(
    model: Model, choice: Choice, plan: Plan, *, site: Site, inventory: Inventory, always: bool,
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
        say: Told before anything is followed.
        seconds: For all of them together.
    """
    pool, local = open_pool(site, inventory), choice.procs_per_node
    usable = pool.usable_bytes(local)
    if plan.program.task is None or not (always or _is_tight(choice, usable)):
        return Weighed(choice)
    say("following the memory of the best plans")
    plans = [_of(plan, choice, number) for number in range(len(choice.finalists))]
    found = dict(zip((each.name for each in plans), _follow(model, plans, seconds), strict=True))
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


def _follow(model: Model, plans: Sequence[Plan], seconds: float) -> list[dict[str, Any]]:
    """An answer for each plan, in order."""
    with tempfile.TemporaryDirectory(prefix="gangline-memory-") as folder:
        code = Path(folder) / "code"
        unpack(model.code, code)
        files = [Path(folder) / f"plan-{number}.json" for number in range(len(plans))]
        for file, plan in zip(files, plans, strict=True):
            file.write_bytes(plan.to_json())
        said, why = _run([sys.executable, "-m", "gangline.train.estimate.track", *map(str, files)], code, seconds)
    answers = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
    return [*answers, *({"unknown": why} for _ in plans[len(answers) :])]


def _run(command: list[str], folder: Path, seconds: float) -> tuple[str, str]:
    """What the child said, and why it says no more."""
    scratch = folder.parent  # with all that it leaves behind when its time is up
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(scratch)}
    environ, out = passed_on() | own, scratch / "answers"
    try:
        with out.open("wb") as handle:
            done = subprocess.run(
                command, cwd=folder, env=environ, stdout=handle, stderr=subprocess.DEVNULL, check=False, timeout=seconds
            )
        why = f"it ended with exit {done.returncode}"
    except subprocess.TimeoutExpired:
        why = f"it took over {seconds:.0f} s"
    except OSError as error:
        why = f"it could not be started: {os.strerror(error.errno or 0)}"
    return out.read_text(errors="replace") if out.exists() else "", why


def _told(choice: Choice, found: dict[str, dict[str, Any]]) -> Choice:
    candidates = tuple(
        replace(each, forecast=_with(each.forecast, found[each.name])) if each.name in found else each
        for each in choice.candidates
    )
    return replace(choice, candidates=candidates, forecast=_with(choice.forecast, found[choice.name]))


def _with(forecast: Forecast, answer: dict[str, Any]) -> Forecast:
    if "peak_bytes" not in answer:
        return forecast
    return replace(forecast, memory_bytes=int(answer["peak_bytes"]), memory_origin=ORIGIN)


def _note(name: str, answer: dict[str, Any], choice: Choice, room: Room) -> str:
    if "peak_bytes" not in answer:
        return f"memory run of {name}: not known: {answer['unknown']}"
    peak, on_host = answer["peak_bytes"], answer.get("host_bytes", 0)
    by_formula = next((each.forecast.memory_bytes for each in choice.candidates if each.name == name), None)
    stages = f" (by stage {', '.join(map(format_bytes, answer['stages']))})" if "stages" in answer else ""
    beside = f", by formula {format_bytes(by_formula)}" if by_formula is not None else ""
    waits = f", and {format_bytes(on_host)} on the host" if on_host else ""
    assumed = f", if {answer['assumes']}" if "assumes" in answer else ""
    over = [
        f"; a rank may {verb} {format_bytes(most)}: expect it to run out of memory"
        for verb, need, most in (("hold", peak, room.device), ("leave on the host", on_host, room.host))
        if most is not None and need > most
    ]
    return f"memory run of {name}: {format_bytes(peak)} at the peak{stages}{beside}{waits}{assumed}{''.join(over)}"
