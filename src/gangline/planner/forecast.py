"""Forecast of a layout: step time, money and memory, from equal runs if there are any, else from device rates."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from gangline.fabric.placement.mapping import EdgeBytes
from gangline.planner.cost.averaging import by_latency, exposed_buckets
from gangline.planner.cost.exchange import wire_bytes
from gangline.planner.cost.interruptions import save_every
from gangline.planner.cost.speeds import NO_MATRIX_RULE, Speeds, host_rates, speeds_of
from gangline.planner.cost.step_time import TracedStep
from gangline.planner.cost.traffic import collectives, edge_bytes, num_averaged, traced_rings, unknown_traffic
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.pipeline import idle_share
from gangline.planner.pool import Pool, ranks_per_node
from gangline.planner.problem import PlanProblem
from gangline.planner.settings import BACKWARD, GRADIENT_BYTES, Fit, Setting, StepLoad, step_load
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory, Rates
from gangline.spec.forecast import Forecast, GradientBuckets, Term
from gangline.spec.profile import MeasuredRun, ModelProfile


def calibrated_site(
    line: Line, site: Site, inventory: Inventory, history: Sequence[MeasuredRun], rates: Rates | None
) -> Site:
    """`site` with the band and the memory margin that earlier runs of this model on these devices taught."""
    calibration = PlanProblem.about(line, site, inventory, None, history, rates=rates).calibration
    band = site.plan.band if calibration.band is None else calibration.band
    margin = site.plan.memory_margin if calibration.memory_margin is None else calibration.memory_margin
    return replace(site, plan=replace(site.plan, band=band, memory_margin=margin))


def forecast_of(problem: PlanProblem, layout: Layout, options: Setting, fit: Fit) -> Forecast:
    """What is known about `layout`: its memory, the step by equal runs, else part by part, what saves and failures
    cost."""
    line, pool, profile = problem.line, problem.pool, problem.profile
    way = options.words(line)
    equal = [run for run in equal_runs(problem, layout) if run.forecast.way in ("", way)]
    by_parts = formula_of(problem, layout, options)
    step = median(run.step_seconds for run in equal) if equal else by_parts.step_seconds
    terms = _as_measured(by_parts.terms, equal) if equal else by_parts.terms
    wall = None if step is None else line.train.steps * (step + _of_saves(terms)) + _outside_steps(problem)
    hours = 0.0 if pool.device == "cpu" else None if wall is None else wall * layout.mesh.world_size / 3600
    trace = profile.trace(options.precision) if profile else None
    forecast = replace(
        by_parts,
        way=way,
        parameters=profile.parameters if profile else None,
        memory_bytes=None if fit.need_bytes is None else round(fit.need_bytes),
        memory_causes=fit.causes,
        step_seconds=step,
        wall_seconds=wall,
        gpu_hours=hours,
        money=money_of(hours, pool),
        flops_per_sample=trace.flops_per_sample if trace else None,
        device_flops=pool.gpu.flops_per_second.get(options.precision),
        terms=terms,
        missing="" if equal else by_parts.missing,
        origin=f"measured n={len(equal)}" if equal else by_parts.origin,
    )
    return problem.interrupted(forecast, layout.mesh.world_size)


def equal_runs(problem: PlanProblem, layout: Layout) -> list[MeasuredRun]:
    """Runs of this layout on equal devices, however they were run."""
    pool, batch = problem.pool, problem.line.train.global_batch
    alike = (layout.strategy, layout.mesh, pool.device, pool.name, problem.precision, batch)
    return [
        run
        for run in problem.history
        if (run.strategy, run.mesh, run.device, run.device_name or pool.name, run.precision, run.global_batch) == alike
    ]


def formula_of(problem: PlanProblem, layout: Layout, options: Setting, *, overlap: float | None = None) -> Forecast:
    """Part by part, corrected by what other runs were off by, whatever equal ones took.

    `overlap` is the share of computing that hides communication; None: what the site grants.
    """
    profile, pool = problem.profile, problem.pool
    trace = profile.trace(options.precision) if profile else None
    if profile is None:
        return Forecast(missing="the size of the model is not known")
    if trace is None:
        return Forecast(missing=profile.untraced or "the model was not traced", origin="formula")
    line, mesh, load = problem.line, layout.mesh, step_load(problem.line, layout, options)
    messages = collectives(profile, layout, load)
    sent = None if unknown_traffic(profile, layout, load) else wire_bytes(messages, device=pool.device)
    speeds = speeds_of(
        pool, options.precision, trace, problem.rates, world_size=mesh.world_size, stages=mesh.pp,
        edges=_edges(profile, layout, load, pool),
    )  # fmt: skip
    if speeds is None:
        why = f"no rate of {pool.name or 'this GPU'} in {options.precision} is known; [gpu.NAME] of site.toml gives one"
        why = "rates were not measured" if pool.device == "cpu" else why
        return Forecast(wire_bytes=sent, missing=why, origin="traced")
    step = TracedStep(
        profile=profile, trace=trace, layout=layout, load=load, speeds=speeds, messages=messages,
        bubble=(idle_share(line, mesh, load.micro_batch, load.schedule, trace) if load.schedule else None) or 0.0,
        overlap=problem.site.plan.overlap if overlap is None else overlap, save_every=save_every(line),
        optimizer=problem.optimizer, samples=line.train.global_batch / mesh.data_parallel,
        host=host_rates(pool, ranks_per_node(pool, mesh.world_size)) if load.memory.offload == "cpu" else None,
    )  # fmt: skip
    terms = step.terms(problem.calibration)
    computed = next((term.seconds for term in terms if term.part == "compute"), None)
    missing = NO_MATRIX_RULE if step.host and problem.optimizer.matrix_work else step.missing
    return Forecast(
        wire_bytes=sent,
        step_seconds=None if missing else sum(term.seconds for term in terms) - _of_saves(terms),
        terms=terms,
        buckets=gradient_buckets(profile, layout, load, speeds, compute_seconds=computed),
        updates=step.updates,
        device_name=problem.device_name,
        missing=missing,
        origin="traced" if missing else problem.calibration.origin(f"rates {speeds.origin}"),
    )


def _edges(profile: ModelProfile, layout: Layout, load: StepLoad, pool: Pool) -> EdgeBytes | None:
    """Bytes by which the servers of a pipeline are put in order; None: there is none, or no fabric."""
    if layout.mesh.pp == 1 or pool.fabric is None:
        return None
    per_server = ranks_per_node(pool, layout.mesh.world_size)
    return edge_bytes(traced_rings(profile, layout, load), profile, layout.mesh, load, ranks_per_server=per_server)


def _as_measured(terms: Sequence[Term], equal: Sequence[MeasuredRun]) -> tuple[Term, ...]:
    """The medians of equal runs that reported their parts, with what the formulas give; else the latter alone."""
    telling = [run.parts for run in equal if run.parts]
    if not telling:
        return tuple(terms)
    raw = {term.part: term.raw_seconds for term in terms}
    parts = dict.fromkeys((*raw, *(part for each in telling for part in each)))
    return tuple(
        Term(
            part=part,
            seconds=median(each.get(part, 0.0) for each in telling),
            raw_seconds=raw.get(part),
            origin=f"measured n={len(telling)}",
        )
        for part in parts
    )


def _of_saves(terms: Sequence[Term]) -> float:
    """What an ordinary step has nothing of."""
    return sum(term.seconds for term in terms if term.part == "checkpoint")


def _outside_steps(problem: PlanProblem) -> float:
    """Seconds of a gang outside its steps and saves, as earlier runs on such devices took, beyond the start that the
    site states and forecasts count anyway; 0 if none is known."""
    found = (run.outside_seconds for run in problem.history if run.device == problem.pool.device)
    known = [seconds for seconds in found if seconds is not None]
    return max(0.0, median(known) - problem.site.plan.start_seconds) if known else 0.0


def money_of(hours: float | None, pool: Pool) -> float | None:
    """What so many GPU-hours cost; None: that, or a price, is not known."""
    if hours == 0:
        return 0.0
    return None if hours is None or pool.gpu.price_per_hour is None else hours * pool.gpu.price_per_hour


def gradient_buckets(
    profile: ModelProfile, layout: Layout, load: StepLoad, speeds: Speeds, *, compute_seconds: float | None
) -> GradientBuckets | None:
    """Those of a plan; None: it has no buckets.

    Messages take their time where they were measured or their latency is given; `compute_seconds` are those of all
    passes of a step, the last of which hands out the gradients.
    """
    if not (layout.wrapping.is_ddp and layout.traits.has_buckets):
        return None
    ranks = layout.mesh.dp_replicate
    seconds = speeds.exchange_seconds if speeds.rates else by_latency(speeds.links, ranks)
    return exposed_buckets(
        GRADIENT_BYTES * num_averaged(profile, layout), load.bucket_bytes, ranks=ranks,
        seconds=None if load.compression.kind != "none" or compute_seconds is None else seconds,
        backward=BACKWARD * (compute_seconds or 0.0) / load.micro_batches,
        latency_origin=speeds.latency_origin,
    )  # fmt: skip
