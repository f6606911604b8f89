"""Planning of a run: model, inventory, device rates and earlier runs in, plan and budget out; also for previews.

Without rates or earlier runs the plan is made by the formulas alone, and its problems name what is missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.fabric.topology.inventory import Fabric
from gangline.git.repository import Repository
from gangline.launch.sandbox.module_runner import ModuleRunner
from gangline.line.request.targets import launcher_of
from gangline.line.stages.device_rates import device_rates
from gangline.line.stages.measured_history import MeasuredHistory, read_measured_history
from gangline.line.stages.memory_run import run_memory_check, with_forecasts_of
from gangline.line.stages.model_inspection import ModelInspection, ModelSource, inspect_model, inspection_cache_file
from gangline.planner.budget import check as check_budget
from gangline.planner.choice import PlanChoice, choose_plan
from gangline.planner.forecast import calibrated_site
from gangline.planner.gpu_kinds import choose_kinds
from gangline.planner.plans import choice_of_run, line_of_worker, make_plan, reader_processes, require_exchange
from gangline.planner.proof import make_proof_plan
from gangline.planner.request import PlanRequest
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.config.site import Site
from gangline.spec.data_source import DataSource
from gangline.spec.devices import Inventory
from gangline.spec.plan import Plan
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Gate
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.site_paths import cache_folder


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlanRequest:
    """Request for a plan of a run."""

    model: ModelSource
    repository: Repository
    store: ObjectStore
    """Store with the earlier runs."""
    commit: str
    run: str
    """Id of the run, which is not one of its earlier runs."""
    run_prefix: str
    runner: ModuleRunner
    """Runner of the model's code."""
    data: DataSource = DataSource()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A plan, the verdict on its budget, and the inputs it was made from."""

    plan: Plan
    choice: PlanChoice
    budget: Gate
    site: Site
    """The site with margins learned from earlier runs."""
    inventory: Inventory
    profile: ModelProfile | None
    problems: tuple[str, ...]
    """What the forecast did not have."""
    notes: tuple[str, ...]
    """Findings of the memory run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetedChoice:
    """A choice, the verdict on its budget, and what its forecast did not have."""

    choice: PlanChoice
    budget: Gate
    site: Site
    """The site with margins learned from earlier runs."""
    inventory: Inventory
    """Servers of the gang: one kind of GPU, or two."""
    problems: tuple[str, ...]


def plan_run(
    request: RunPlanRequest, site: Site, *, environ: Mapping[str, str], home: Path, notify: Callable[[str], None],
    memory_run: bool = False, devices: Inventory | None = None, fabric: Fabric | None = None,
) -> PlannedRun:  # fmt: skip
    """Inspect the model, the devices and earlier runs; choose a plan, check the finalists' memory and the budget.

    Args:
        request: What to plan.
        site: Site of the run.
        environ: For secret references, and the devices that are visible.
        home: Folder `.gangline` of the repository.
        notify: Called with a sentence before work that takes seconds.
        memory_run: Run the memory check even if the formula leaves much room.
        devices: To plan for; None: those of the site's target.
        fabric: That joins their nodes; None: none is stated.

    Raises:
        ConfigError: The task cannot be built, nothing fits, blocks are too short, or `prove.plan` has no second plan.
    """
    line, repository = request.model.line, request.repository
    history = read_measured_history(
        request.store, repository, project=line.project.name, commit=request.commit, run=request.run
    )  # fmt: skip
    if not inspection_cache_file(request.model, home).exists():
        traced = "tracing a step of the model, " if line.project.task else ""
        notify(f"{traced}inspecting the devices")
    seen = _with_shape(line, inspect_model(request.model, home=home, runner=request.runner))
    if read_matrix_rule(line.optimizer) is not None:
        from gangline.line.stages.optimizer_plan import with_matrix_work  # most lines have no matrix rule

        seen = replace(seen, profile=with_matrix_work(line, seen.profile))
    chosen = make_choice(
        line,
        site,
        devices or _inventory_at(site, environ, seen.inventory),
        seen,
        history,
        cache=cache_folder(environ, home),
        visible_devices=request.model.visible_devices,
        notify=notify,
        fabric=fabric,
    )
    inventory = chosen.inventory
    plan = make_plan(
        line, chosen.choice, run=request.run, run_prefix=request.run_prefix,
        data=replace(request.data, workers=reader_processes(line, chosen.choice.device, inventory)),
        folder=request.model.folder,
    )  # fmt: skip
    checked = run_memory_check(
        request.model, chosen.choice, plan, site=chosen.site, inventory=inventory, always=memory_run,
        runner=request.runner, notify=notify,
    )  # fmt: skip
    plan = with_forecasts_of(plan, checked.choice)
    require_exchange(plan, site)
    if line.project.task is not None and line.prove.plan != "off":
        make_proof_plan(plan, line.prove.plan, inventory=inventory.as_smallest, site=site, profile=seen.profile)
    return PlannedRun(
        plan=plan, choice=checked.choice, budget=chosen.budget, site=chosen.site, inventory=inventory,
        profile=seen.profile, problems=chosen.problems, notes=checked.notes,
    )  # fmt: skip


def _inventory_at(site: Site, environ: Mapping[str, str], here: Inventory) -> Inventory:
    """Devices that ranks may use at the site's target: `here`, or those of its cluster."""
    if launcher_of(site.launch.target).is_here:
        return here
    from gangline.line.gangs.launchers import cluster_inventory  # plans for this machine need no launcher

    return cluster_inventory(site, environ)


def _with_shape(line: Line, seen: ModelInspection) -> ModelInspection:
    """The inspection with the model by the shape that the line gives, where no step of it could be traced."""
    model = line.plan.transformer
    if model is None or (seen.profile is not None and seen.profile.traces):
        return seen
    from gangline.planner.formula.inputs import formula_profile  # most lines have a task to trace

    return replace(seen, profile=formula_profile(model))


def make_choice(
    line: Line, site: Site, inventory: Inventory, seen: ModelInspection, history: MeasuredHistory, *, cache: Path,
    visible_devices: str | None, notify: Callable[[str], None], fabric: Fabric | None = None,
) -> BudgetedChoice:  # fmt: skip
    """Choose a plan and check the budget.

    Args:
        line: The line.
        site: Site of the run.
        inventory: Devices that ranks may use.
        seen: Inspection of this machine and of the model.
        history: Earlier runs of the line.
        cache: Folder of measured rates.
        visible_devices: CUDA_VISIBLE_DEVICES of this process.
        notify: Called with a sentence before work that takes seconds.
        fabric: That joins nodes; None: none is stated.

    Raises:
        ConfigError: Nothing fits, or the line wants devices that are missing.
    """
    worker = line_of_worker(line)
    known = device_rates(
        worker, site, inventory, seen.profile, cache=cache, visible_devices=visible_devices, notify=notify
    )
    trusted = calibrated_site(worker, site, inventory, history.runs, known.rates)

    def ask(line: Line, inventory: Inventory) -> PlanRequest:
        return PlanRequest.about(line, trusted, inventory, seen.profile, history.runs, rates=known.rates, fabric=fabric)

    def choose(inventory: Inventory) -> PlanChoice:
        return choose_plan(worker, trusted, inventory, seen.profile, history.runs, rates=known.rates, fabric=fabric)

    kinds = choose_kinds(worker, inventory, choose=choose, ask=ask)
    choice = choice_of_run(kinds.choice, line)
    several = sum(candidate.verdict not in ("no_fit", "unsupported") for candidate in choice.candidates) > 1
    budget = check_budget(
        line.plan,
        site.limits,
        choice.forecast,
        band=trusted.plan.band,
        nearest=choice.name if several else "",
        seeds=line.evaluate.seeds,
    )
    problems = tuple(each for each in (known.problem, history.problem) if each)
    return BudgetedChoice(choice=choice, budget=budget, site=trusted, inventory=kinds.inventory, problems=problems)
