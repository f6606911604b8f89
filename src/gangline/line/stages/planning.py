"""Planning of a run: model, inventory, device rates and earlier runs in, plan and budget out; also for previews.

If rates or earlier runs cannot be had, the plan is made without them and says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline.git.repository import Repository
from gangline.launch.sandbox.module_runner import ModuleRunner
from gangline.line.gangs.launchers import inventory_at
from gangline.line.stages.device_rates import device_rates
from gangline.line.stages.measured_history import MeasuredHistory, read_measured_history
from gangline.line.stages.memory_run import run_memory_check, with_forecasts_of
from gangline.line.stages.model_inspection import ModelInspection, ModelSource, inspect_model, inspection_cache_file
from gangline.planner.forecast.shape_forecast import calibrated_site
from gangline.planner.gang_plans import make_plan
from gangline.planner.proof_plan import make_proof_plan
from gangline.planner.selection.budget import check as check_budget
from gangline.planner.selection.choice import PlanChoice, choose_plan
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.plan import DataSource, Plan
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Gate
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.site_paths import cache_folder


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlanRequest:
    """A plan that somebody wants, and for which run."""

    model: ModelSource
    repository: Repository
    store: ObjectStore
    """Of earlier runs."""
    commit: str
    run: str
    """Id; earlier runs are all others."""
    run_prefix: str
    runner: ModuleRunner
    """Runs the model's code."""
    data: DataSource = DataSource()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A plan, whether it may be started, and what was seen on the way to it."""

    plan: Plan
    choice: PlanChoice
    budget: Gate
    band: float
    """Share by which 9 of 10 forecasts are off at most."""
    inventory: Inventory
    profile: ModelProfile | None
    troubles: tuple[str, ...]
    """What the forecast had to do without, and which shapes were not evaluated."""
    notes: tuple[str, ...]
    """What the memory run said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetedChoice:
    """A choice, whether it may be started, and what its forecast had to do without."""

    choice: PlanChoice
    budget: Gate
    site: Site
    """With the margins that earlier runs taught."""
    troubles: tuple[str, ...]


def plan_run(
    wanted: RunPlanRequest, site: Site, *, environ: Mapping[str, str], home: Path, say: Callable[[str], None],
    memory_run: bool = False,
) -> PlannedRun:  # fmt: skip
    """Look at the model, at what there is and at earlier runs; choose, follow the finalists' memory, hold the budget.

    Args:
        wanted: What is to be planned.
        site: As it was read.
        environ: Of whoever asks.
        home: Folder of what is kept beside the repository.
        say: Told what is going on, where it takes seconds.
        memory_run: Follow the finalists' memory, however much room the formula leaves them.

    Raises:
        ConfigError: A task that cannot be built, nothing fits, or no second plan as `prove.plan` asks.
    """
    line, repository = wanted.model.line, wanted.repository
    history = read_measured_history(
        wanted.store, repository, project=line.project.name, commit=wanted.commit, run=wanted.run
    )  # fmt: skip
    if not inspection_cache_file(wanted.model, home).exists():
        followed = "following one step of the model, and " if line.project.task else ""
        say(f"{followed}looking at what there is to train on")
    seen = inspect_model(wanted.model, home=home, runner=wanted.runner)
    inventory = inventory_at(site, environ, seen.inventory)
    chosen = make_choice(line, site, inventory, seen, history, cache=cache_folder(environ, home), say=say)
    plan = make_plan(
        line, chosen.choice, run=wanted.run, run_prefix=wanted.run_prefix, data=wanted.data, folder=wanted.model.folder
    )  # fmt: skip
    weighed = run_memory_check(
        wanted.model, chosen.choice, plan, site=chosen.site, inventory=inventory, always=memory_run,
        runner=wanted.runner, say=say,
    )  # fmt: skip
    plan = with_forecasts_of(plan, weighed.choice)
    if line.project.task is not None and line.prove.plan != "off":
        make_proof_plan(plan, line.prove.plan, inventory=inventory, site=site, profile=seen.profile)
    return PlannedRun(
        plan=plan, choice=weighed.choice, budget=chosen.budget, band=chosen.site.plan.band, inventory=inventory,
        profile=seen.profile, troubles=chosen.troubles, notes=weighed.notes,
    )  # fmt: skip


def make_choice(
    line: Line, site: Site, inventory: Inventory, seen: ModelInspection, history: MeasuredHistory, *, cache: Path,
    say: Callable[[str], None],
) -> BudgetedChoice:  # fmt: skip
    """Choose, and hold the budget.

    Args:
        line: What is asked.
        site: As it was read.
        inventory: What ranks may use.
        seen: What this machine is, and the line's model.
        history: Earlier runs of the line.
        cache: Folder of rates that were measured before.
        say: Told what is going on, where it takes seconds.

    Raises:
        ConfigError: Nothing fits, or the line asks for what is not there.
    """
    known = device_rates(line, site, inventory, seen.profile, cache=cache, say=say)
    trusted = calibrated_site(line, site, inventory, history.runs, known.rates)
    choice = choose_plan(line, trusted, inventory, seen.profile, history.runs, rates=known.rates)
    several = sum(each.verdict not in ("no_fit", "unsupported") for each in choice.candidates) > 1
    budget = check_budget(
        line.plan,
        site.limits,
        choice.forecast,
        band=trusted.plan.band,
        nearest=choice.name if several else "",
        seeds=line.evaluate.seeds,
    )
    troubles = tuple(each for each in (known.trouble, history.trouble, choice.left_out) if each)
    return BudgetedChoice(choice=choice, budget=budget, site=trusted, troubles=troubles)
