"""Plan of a model known by its shape, on devices that are not here: nothing is packed, traced, measured or recorded."""

from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.line.request.run_request import RunRequest
from gangline.planner.selection.budget import check as check_budget
from gangline.planner.selection.choice import PlanChoice, choose_by_formula
from gangline.planner.selection.formula_question import formula_profile
from gangline.planner.selection.request import PlanRequest
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.record import Gate


@dataclass(frozen=True, kw_only=True, slots=True)
class HypotheticalPlan:
    """A choice, and what it was made for."""

    request: RunRequest
    choice: PlanChoice
    site: Site
    inventory: Inventory
    budget: Gate


def plan_hypothetically(request: RunRequest, *, site: Site, inventory: Inventory) -> HypotheticalPlan:
    """What the line would get on `inventory`, by formulas alone.

    Raises:
        ConfigError: The line does not give the shape of its model, or nothing fits.
    """
    line = request.line
    model = line.plan.transformer
    if model is None:
        raise ConfigError("plan.transformer: wanted the shape of the model, found none")

    def ask(line: Line, inventory: Inventory) -> PlanRequest:
        return PlanRequest.about(line, site, inventory, formula_profile(model), ())

    choice = choose_by_formula(ask(line, inventory), model, ask=ask, inventory=inventory)
    budget = check_budget(
        line.plan, site.limits, choice.forecast, band=site.plan.band, nearest=choice.name, seeds=line.evaluate.seeds
    )
    return HypotheticalPlan(request=request, choice=choice, site=site, inventory=inventory, budget=budget)
