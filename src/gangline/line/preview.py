"""What a run would do: the plan of a line at the site's target, with nothing recorded and nothing started."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.line import places
from gangline.line.build import code_layer, environment
from gangline.line.history import read_history
from gangline.line.inventory import Model, look
from gangline.line.launchers import inventory_at
from gangline.line.memory_run import weigh
from gangline.line.planning import make_choice
from gangline.line.question import Question, ask
from gangline.line.rates import cache_folder
from gangline.line.runs import open_site_store
from gangline.planner.assemble import make_plan
from gangline.planner.choose import Choice
from gangline.spec.inventory import Inventory
from gangline.spec.plan import DataSource
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
    band: float
    """Share by which 9 of 10 forecasts are off at most."""
    troubles: tuple[str, ...]
    """What the forecast had to do without, and what the memory run said."""


def _silent(_: str) -> None:
    """Nobody listens."""


def preview(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    commit: str | None = None,
    overrides: Sequence[str] = (),
    strategy: str | None = None,
    memory_run: bool = False,
    say: Callable[[str], None] = _silent,
) -> Preview:
    """The plan that `run_line` would make of the same arguments; `say` is told what takes a while.

    With `memory_run` its finalists are followed, however much room the formula leaves them.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: A line that does not hold, a task that cannot be built, or nothing fits.
    """
    question = ask(repo, commit=commit, overrides=overrides, strategy=strategy)
    repository, line = question.repository, question.line
    run = question.run_id(1)
    layer = code_layer.pack(repository, question.tree, line.project)
    store = open_site_store(repository.root, site, environ)
    say("reading what earlier runs measured")
    history = read_history(store, repository, project=line.project.name, commit=question.commit, run=run)
    home = places.home(repository.root)
    model = Model(line=line, code=layer.data, environment=environment.of_this_interpreter())
    say("following one step of the model, and looking at what there is to train on")
    seen = look(model, home=home)
    inventory = inventory_at(site, environ, seen.inventory)
    say("weighing plans")
    planned = make_choice(line, site, inventory, seen, history, cache=cache_folder(environ, home), say=say)
    made = make_plan(line, planned.choice, run=run, run_prefix=f"runs/{run}", data=DataSource())
    weighed = weigh(model, planned.choice, made, site=planned.site, inventory=inventory, always=memory_run, say=say)
    return Preview(
        question=question, run=run, choice=weighed.choice, inventory=inventory, profile=seen.profile,
        budget=planned.budget, band=planned.site.plan.band, troubles=(*planned.troubles, *weighed.notes),
    )  # fmt: skip
