"""What a run would do: the plan of a line at the site's target, with nothing recorded and nothing started."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.line import places
from gangline.line.build import code_layer, environment
from gangline.line.inventory import Model
from gangline.line.planning import Wanted, plan_for
from gangline.line.question import Question, ask
from gangline.line.runners import Apart, Subject, kept_apart, runner_of
from gangline.line.runs import open_site_store
from gangline.planner.choose import Choice
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
    band: float
    """Share by which 9 of 10 forecasts are off at most."""
    sandbox: Apart
    """Of its model code."""
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
    repository, run = question.repository, question.run_id(1)
    layer = code_layer.pack(repository, question.tree, question.line.project)
    model = Model(
        line=question.line, code=layer.data, environment=environment.of_this_interpreter(), trust=question.trust
    )  # fmt: skip
    store = open_site_store(repository.root, site, environ)
    wanted = Wanted(
        model=model, repository=repository, store=store, commit=question.commit, run=run, run_prefix=f"runs/{run}",
        runner=runner_of(_subject(question, run, site), repository.root, site=site, environ=environ, store=store),
    )  # fmt: skip
    say("weighing plans")
    found = plan_for(
        wanted, site, environ=environ, home=places.home(repository.root), say=say, memory_run=memory_run
    )  # fmt: skip
    sandbox = kept_apart(repository.root, question.trust, site=site, environ=environ)
    return Preview(
        question=question, run=run, choice=found.choice, inventory=found.inventory, profile=found.profile,
        budget=found.budget, band=found.band, sandbox=sandbox,
        troubles=(*filter(None, [question.dirty_note, sandbox.warning]), *found.troubles, *found.notes),
    )  # fmt: skip


def _subject(question: Question, run: str, site: Site) -> Subject:
    """With the image that pods have where none is built for the commit; a fork does not choose it."""
    own = question.line.env.base if question.trust == "own" else None
    return Subject(
        run=run, project=question.line.project.name, commit=question.commit, trust=question.trust,
        image=own or site.registry.base,
    )  # fmt: skip
