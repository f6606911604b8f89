"""Preview of a run: the plan of a line at the site's target, with nothing recorded and nothing started."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.build import code_layer, environment
from gangline.build.virtualenv import LockedCommit, find_or_make_environment
from gangline.line.gangs.runners import CodeIsolation, CodeOwner, code_isolation, open_runner
from gangline.line.gangs.train_secrets import refused_references
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.request.targets import parse_target
from gangline.line.stages.model_inspection import ModelSource
from gangline.line.stages.planning import RunPlanRequest, plan_run
from gangline.line.stages.run_environment import NOT_LOCKED
from gangline.planner.selection.choice import PlanChoice
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Gate
from gangline.storage import site_paths
from gangline.storage.site_paths import open_site_store


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    question: RunRequest
    run: str
    """Id that the first attempt has, or would have."""
    choice: PlanChoice
    inventory: Inventory
    profile: ModelProfile | None
    budget: Gate
    band: float
    """Share by which 9 of 10 forecasts are off at most."""
    sandbox: CodeIsolation
    """Of its model code."""
    troubles: tuple[str, ...]
    """What the forecast had to do without, and what the memory run said."""
    environment: str
    """What ranks on this machine would run in."""


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
    question = resolve_request(repo, commit=commit, overrides=overrides, strategy=strategy)
    repository, run = question.repository, question.run_id(1)
    layer = code_layer.pack(repository, question.tree, question.line.project, commit=question.commit)
    store = open_site_store(repository.root, site, environ)
    own = None
    if parse_target(site.launch.target)[0] == "local":
        own = find_or_make_environment(
            LockedCommit(repository=repository, tree=question.tree, line=question.line, trust=question.trust),
            site=site, environ=environ, home=site_paths.home(repository.root),
            with_s3=store.url.startswith("s3:"), notify=say,
        )  # fmt: skip
    model = ModelSource(
        line=question.line, code=layer.data, environment=own.digest if own else environment.interpreter_digest(),
        trust=question.trust, python=own.python if own else None, folder=layer.folder,
    )  # fmt: skip
    wanted = RunPlanRequest(
        model=model, repository=repository, store=store, commit=question.commit, run=run, run_prefix=f"runs/{run}",
        runner=open_runner(_subject(question, run, site), repository.root, site=site, environ=environ, store=store),
    )  # fmt: skip
    say("weighing plans")
    found = plan_run(
        wanted, site, environ=environ, home=site_paths.home(repository.root), say=say, memory_run=memory_run
    )  # fmt: skip
    sandbox = code_isolation(repository.root, question.trust, site=site, environ=environ)
    secret = refused_references(question.line.train.env, site, environ) if question.trust == "own" else ""
    return Preview(
        question=question, run=run, choice=found.choice, inventory=found.inventory, profile=found.profile,
        budget=found.budget, band=found.band, sandbox=sandbox,
        environment=own.source if own else NOT_LOCKED if question.line.env.lock is None else question.line.env.lock,
        troubles=(*filter(None, [question.dirty_note, secret, sandbox.warning]), *found.troubles, *found.notes),
    )  # fmt: skip


def _subject(question: RunRequest, run: str, site: Site) -> CodeOwner:
    """With the image that pods have where none is built for the commit; a fork does not choose it."""
    own = question.line.env.base if question.trust == "own" else None
    return CodeOwner(
        run=run, project=question.line.project.name, commit=question.commit, trust=question.trust,
        image=own or site.registry.base,
    )  # fmt: skip
