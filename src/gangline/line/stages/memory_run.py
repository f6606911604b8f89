"""Memory run of a plan's finalists: a child process follows two steps of a rank to find its peak.

A formula ranks the plans. If its figure is close to the capacity of a rank, or on request, the best two are traced
without computing anything. If the child process cannot trace a plan, or not in time, the result says so and the
formula counts.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.launch.sandbox.module_runner import ModuleJob, ModuleRunner
from gangline.line.stages.model_inspection import ModelSource
from gangline.planner.choice import PlanChoice
from gangline.planner.pool import open_pool
from gangline.spec.codec import from_plain
from gangline.spec.config.secrets import plain_of
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Plan
from gangline.units import format_bytes

TIGHT = 0.7
"""Share of a rank's capacity, by formula, from which plans are traced without a request."""
TIMEOUT_SECONDS = 180.0
ORIGIN = "memory run"


@dataclass(frozen=True, slots=True)
class MemoryRunResult:
    """A choice with the measured peaks of its finalists, and a sentence on each."""

    choice: PlanChoice
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Peak:
    """Result of the child process for one plan, with the field names of `measure.memory_run`."""

    peak_bytes: int | None = None
    """None if not known."""
    stages: tuple[int, ...] = ()
    host_bytes: int = 0
    assumes: str = ""
    unknown: str = ""
    """Why it is not known."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Capacity:
    """Bytes that a rank may use; None if not known."""

    device: float | None
    host: float | None
    """Bytes of offloaded state in host memory."""


def run_memory_check(
    model: ModelSource, choice: PlanChoice, plan: Plan, *, site: Site, inventory: Inventory, always: bool,
    runner: ModuleRunner,
    notify: Callable[[str], None], seconds: float = TIMEOUT_SECONDS,
) -> MemoryRunResult:  # fmt: skip
    """Trace the finalists of `choice`; errors of their model are results and not raised.

    Args:
        model: Model of the line.
        choice: Choice of the formulas.
        plan: Plan of the best candidate.
        site: Reserves and margins.
        inventory: Devices that ranks may use.
        always: Trace even if the formula leaves much capacity.
        runner: Runs the model's code.
        notify: Called with a sentence before anything is traced.
        seconds: Time limit for all plans together.
    """
    pool, local = open_pool(site, inventory), choice.procs_per_node
    usable = pool.usable_bytes(local)
    if always and choice.shares:
        return MemoryRunResult(
            choice, ("memory of a gang of two kinds of GPU is not followed: it is that of the formula",)
        )
    if plan.program.task is None or not choice.finalists or not (always or _is_tight(choice, usable)):
        return MemoryRunResult(choice)
    notify("tracing the memory of the best plans")
    plans = [_plan_of_finalist(plan, choice, number) for number in range(len(choice.finalists))]
    found = dict(zip((each.name for each in plans), _trace(model, plans, runner, seconds), strict=True))
    capacity = _Capacity(usable, pool.usable_host_bytes(local))
    notes = tuple(_note(name, peak, choice, capacity) for name, peak in found.items())
    return MemoryRunResult(_with_peaks(choice, found), notes)


def with_forecasts_of(plan: Plan, choice: PlanChoice) -> Plan:
    """`plan` with the forecasts of `choice`."""
    return replace(plan, forecast=choice.forecast, candidates=choice.candidates)


def _is_tight(choice: PlanChoice, usable: float | None) -> bool:
    need = choice.forecast.memory_bytes
    return need is not None and usable is not None and need > TIGHT * usable


def _plan_of_finalist(plan: Plan, choice: PlanChoice, number: int) -> Plan:
    shape, setting = choice.finalists[number]
    return replace(
        plan, name=shape.name, strategy=shape.strategy, mesh=shape.mesh, micro_batch=setting.micro_batch,
        memory=setting.memory, shares=(), sizes=(),
    )  # fmt: skip


def _trace(model: ModelSource, plans: Sequence[Plan], runner: ModuleRunner, seconds: float) -> list[_Peak]:
    """A result for each plan, in order."""
    files = {f"plan-{number}.json": plan.to_json() for number, plan in enumerate(plans)}
    job = ModuleJob(
        module="gangline.measure.memory_run", arguments=tuple(f"../{name}" for name in files), code=model.code,
        path=model.path, files=files, seconds=seconds, trust=model.trust,
        env=plain_of(model.line.train.env), python=model.python,
    )  # fmt: skip
    try:
        done = runner.run(job)
    except (StorageError, CapacityError) as error:
        return [_Peak(unknown=str(error)) for _ in plans]
    why = f"it took over {seconds:.0f} s" if done.exit_code is None else f"it ended with exit {done.exit_code}"
    peaks = [_parse_peak(line) for line in done.stdout.splitlines()[: len(plans)] if line.endswith(b"}")]
    return [*peaks, *(_Peak(unknown=why) for _ in plans[len(peaks) :])]


def _parse_peak(line: bytes) -> _Peak:
    """Parse a line of the child process, in which model code may have written anything."""
    try:
        return from_plain(_Peak, json.loads(line))
    except (ValueError, RecursionError, IntegrityError):
        return _Peak(unknown=f"wanted a result of the child process, found {line[:80]!r}")


def _with_peaks(choice: PlanChoice, found: dict[str, _Peak]) -> PlanChoice:
    candidates = tuple(
        replace(candidate, forecast=_with_peak(candidate.forecast, found[candidate.name]))
        if candidate.name in found
        else candidate
        for candidate in choice.candidates
    )
    return replace(choice, candidates=candidates, forecast=_with_peak(choice.forecast, found[choice.name]))


def _with_peak(forecast: Forecast, peak: _Peak) -> Forecast:
    if peak.peak_bytes is None:
        return forecast
    return replace(forecast, memory_bytes=peak.peak_bytes, memory_origin=ORIGIN)


def _note(name: str, peak: _Peak, choice: PlanChoice, capacity: _Capacity) -> str:
    if peak.peak_bytes is None:
        return f"memory run of {name}: not known: {peak.unknown}"
    on_host = peak.host_bytes
    by_formula = next(
        (candidate.forecast.memory_bytes for candidate in choice.candidates if candidate.name == name), None
    )
    stages = f" (by stage {', '.join(map(format_bytes, peak.stages))})" if peak.stages else ""
    formula = f", by formula {format_bytes(by_formula)}" if by_formula is not None else ""
    offloaded = f", and {format_bytes(on_host)} on the host" if on_host else ""
    assumed = f", if {peak.assumes}" if peak.assumes else ""
    over = [
        f"; a rank may {verb} {format_bytes(most)}: expect it to run out of memory"
        for verb, need, most in (
            ("hold", peak.peak_bytes, capacity.device),
            ("leave on the host", on_host, capacity.host),
        )
        if most is not None and need > most
    ]
    device = f"{format_bytes(peak.peak_bytes)} at the peak{stages}{formula}"
    return f"memory run of {name}: {device}{offloaded}{assumed}{''.join(over)}"
