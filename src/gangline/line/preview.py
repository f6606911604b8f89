"""What a run would do: the plan of a line at the site's target, with nothing recorded and nothing started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.line import places
from gangline.line.base import look_back
from gangline.line.build import code_layer, environment
from gangline.line.inventory import Model, look
from gangline.line.launchers import inventory_at
from gangline.line.question import Question, ask
from gangline.line.runs import open_site_store
from gangline.line.stages.plan import measured
from gangline.planner.budget import check as check_budget
from gangline.planner.choose import Choice, choose
from gangline.spec.inventory import Inventory
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Gate
from gangline.spec.site import Site


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    question: Question
    run: str
    """Id that the first attempt has, or would have."""
    choice: Choice
    inventory: Inventory
    profile: ModelProfile | None
    budget: Gate


def preview(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    commit: str | None = None,
    overrides: Sequence[str] = (),
    strategy: str | None = None,
) -> Preview:
    """The plan that `run_line` would make of the same arguments.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: A line that does not hold, a task that cannot be built, or nothing fits.
    """
    question = ask(repo, commit=commit, overrides=overrides, strategy=strategy)
    repository, line = question.repository, question.line
    run = question.run_id(1)
    layer = code_layer.pack(repository, question.tree, line.project)
    store = open_site_store(repository.root, site, environ)
    past = look_back(store, repository, project=line.project.name, commit=question.commit, run=run)
    seen = look(
        Model(line=line, code=layer.data, environment=environment.of_this_interpreter()),
        home=places.home(repository.root),
    )
    inventory = inventory_at(site, environ, seen.inventory)
    choice = choose(line, site, inventory, seen.profile, measured(past.donors))
    budget = check_budget(line.plan, site.limits, choice.forecast, band=site.plan.band)
    return Preview(question=question, run=run, choice=choice, inventory=inventory, profile=seen.profile, budget=budget)
