"""Plan of a model known by its shape, on devices that are not here: nothing is packed, traced, measured or recorded."""

from dataclasses import dataclass, replace

from gangline.errors import ConfigError
from gangline.fabric.placement.certificate import Certificate
from gangline.line.gangs.stated_network import PlannedNetwork
from gangline.line.request.run_request import RunRequest
from gangline.planner.budget import check as check_budget
from gangline.planner.budget import excess
from gangline.planner.certificate import plan_certificate
from gangline.planner.choice import PlanChoice, choose_by_formula
from gangline.planner.cost.interruptions import StorageCost, storage_costs
from gangline.planner.cost.optimizer import optimizer_model
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.gpu_kinds import choose_kinds
from gangline.planner.plans import choice_of_run, line_of_worker
from gangline.planner.pool import gpu_table
from gangline.planner.request import PlanRequest
from gangline.planner.settings import WEIGHT_BYTES
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Gate


@dataclass(frozen=True, kw_only=True, slots=True)
class HypotheticalPlan:
    """A choice, and what it was made for."""

    request: RunRequest
    choice: PlanChoice
    site: Site
    inventory: Inventory
    budget: Gate
    profile: ModelProfile
    """The model by its shape, with the work of the line's matrix rule."""
    links: str = ""
    """How speeds between servers are known; empty: no fabric is stated."""
    certificate: Certificate | None = None
    """Certificate of its order on the fabric; None: no fabric with so many servers is stated."""


def plan_hypothetically(
    request: RunRequest, *, site: Site, inventory: Inventory, network: PlannedNetwork | None = None
) -> HypotheticalPlan:
    """What the line would get on `inventory`, by formulas alone.

    Raises:
        ConfigError: The line does not give the shape of its model, or nothing fits.
    """
    line = line_of_worker(request.line)
    model = line.plan.transformer
    if model is None:
        raise ConfigError("plan.transformer: wanted the shape of the model, found none")

    profile = formula_profile(model)
    if read_matrix_rule(line.optimizer) is not None:
        from gangline.line.stages.optimizer_plan import with_matrix_work  # most lines have no matrix rule

        profile = with_matrix_work(line, profile) or profile

    def ask(line: Line, inventory: Inventory) -> PlanRequest:
        return PlanRequest.about(line, site, inventory, profile, (), fabric=network.fabric if network else None)

    def choose(inventory: Inventory) -> PlanChoice:
        return choose_by_formula(ask(line, inventory), ask=ask, inventory=inventory)

    kinds = choose_kinds(line, inventory, choose=choose, ask=ask)
    choice = choice_of_run(kinds.choice, request.line)
    certificate = None
    if network is not None:
        certificate = certificate_of(network, choice, profile, site=site, line=line)
    return HypotheticalPlan(
        request=request, choice=choice, site=site, inventory=kinds.inventory, budget=_budget(line, site, choice),
        profile=profile, certificate=certificate, links=network.links if network else "",
    )  # fmt: skip


def _budget(line: Line, site: Site, choice: PlanChoice) -> Gate:
    """Budget gate of any run, but what is only asked about is refused by a first forecast, too."""
    gate = check_budget(
        line.plan, site.limits, choice.forecast, band=site.plan.band, nearest=choice.name, seeds=line.evaluate.seeds
    )
    over = excess(line.plan, site.limits, choice.forecast, band=site.plan.band, seeds=line.evaluate.seeds)
    if gate.verdict != "unknown" or over is None:
        return gate
    reason = f"no plan is within the bounds, {choice.name} comes nearest: {over.words}; no run has corrected this yet"
    return replace(gate, verdict="no", reason=reason)


def saves_of(site: Site, choice: PlanChoice, line: Line, profile: ModelProfile) -> list[StorageCost]:
    """What saves of the chosen plan cost, by class of storage."""
    kept = optimizer_model(line.optimizer, profile).saved_bytes(profile.parameters) / profile.parameters
    return storage_costs(
        site.plan, gpus=choice.mesh.world_size, servers=choice.num_nodes, parameters=profile.parameters,
        bytes_per_parameter=WEIGHT_BYTES + kept,
    )  # fmt: skip


def certificate_of(
    network: PlannedNetwork, choice: PlanChoice, profile: ModelProfile, *, site: Site, line: Line
) -> Certificate | None:
    """Certificate of the order of servers that a plan would get on `network`; None where `plan_certificate` has
    none."""
    saves = saves_of(site, choice, line, profile)
    write_seconds = next((cost.write_seconds for cost in saves if cost.storage == site.plan.saves_to), None)
    return plan_certificate(
        network.fabric, choice, profile, line=line, write_seconds=write_seconds,
        overlap=site.plan.overlap, links=network.links, gpu=gpu_table(site, choice.forecast.device_name),
    )  # fmt: skip
