"""A search before it starts: what the line asks, what it is compared with, what it may cost. Nothing is trained.

Equal requests have one id: the second call finds the first one's search, here or elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gangline.errors import ConfigError, GateError
from gangline.git.repository import Repository
from gangline.line.record.runs import list_runs
from gangline.line.request.project_claim import require_claimable
from gangline.line.request.run_request import CLEAN_TREE, RunRequest, resolve_request
from gangline.line.request.targets import with_target
from gangline.line.run.driver import RunWorkspace
from gangline.line.stages.preview import Preview, preview
from gangline.metrics.record_values import dearest_price
from gangline.search import budget
from gangline.search.population import round_ends
from gangline.search.searches import LOSS, read_request, search_id, search_prefix, values_of
from gangline.search.space import require_space
from gangline.search.study import require_packages
from gangline.spec.config.line import Line
from gangline.spec.config.problems import ConfigProblem, FileError
from gangline.spec.config.site import Site
from gangline.spec.measurements import Better
from gangline.spec.record import Record
from gangline.spec.run_flags import reported_no_steps
from gangline.spec.search import MOST_TRIALS, SearchLimits, SearchRequest
from gangline.units import now

LAST_RUNG = 1.5
"""A rung that leaves less than this factor to the end saves too little to be one."""
_AUTO_RUNGS = 27
_NO_SPACE = '[search.space] of line.toml: "optimizer.elementwise.lr" = { low = 1e-4, high = 1e-1, log = true } is one'


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchAsk:
    """A search as asked on the command line."""

    commit: str | None = None
    overrides: Sequence[str] = ()
    trials: int | None = None
    budget_hours: float | None = None
    target: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedSearch:
    """A search that may start."""

    request: SearchRequest
    limits: SearchLimits
    forecast: budget.SearchForecast
    base_values: tuple[float, ...] = ()
    is_new: bool = True


def prepare(workspace: RunWorkspace, asked: SearchAsk, *, notify: Callable[[str], None]) -> PreparedSearch:
    """The search of a commit, new or begun before.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: The line has no search, or one that cannot be done; the tree is dirty.
        GateError: The budget is below one trial.
    """
    commit = _clean_commit(workspace, asked)
    base_request = resolve_request(workspace.repo, commit=commit, overrides=asked.overrides, strategy=None)
    require_claimable(workspace.store, base_request, site=workspace.site, environ=workspace.environ)
    line = base_request.line
    if not line.search.space:
        raise ConfigError(f"wanted keys to search, found none; {_NO_SPACE}")
    require_packages(line.search.sampler)
    notify("reading the line with the bounds of each key")
    require_space(base_request.repository, commit, line.search.space, also=asked.overrides)
    base = _base(workspace, base_request)
    notify("planning one trial")
    seen = preview(
        workspace.repo, site=with_target(workspace.site, asked.target), environ=workspace.environ, commit=commit,
        overrides=asked.overrides, notify=notify,
    )  # fmt: skip
    request = _request(base_request, base, seen, asked, workspace.site)
    is_new = workspace.store.put_if_absent(_key(request, "search"), request.to_json()) is not None
    if not is_new:
        request = read_request(workspace.store, request.project, request.id)
    limits = _limits(line, asked, workspace.site, seen, request)
    forecast = budget.forecast(request, limits, trial_hours=_trial_hours(base, seen, request))
    _require_budget(limits, forecast, request)
    workspace.store.put(_key(request, "limits"), limits.to_json())
    values = values_of(base, request.metrics) if base is not None else None
    return PreparedSearch(request=request, limits=limits, forecast=forecast, base_values=values or (), is_new=is_new)


def _key(request: SearchRequest, name: Literal["search", "limits"]) -> str:
    return f"{search_prefix(request.project, request.id)}/{name}.json"


def _clean_commit(workspace: RunWorkspace, asked: SearchAsk) -> str:
    """The commit that every trial trains; changes on disk belong to none."""
    repository = Repository.at(workspace.repo)
    if asked.commit is None and repository.dirty_tree() is not None:
        raise ConfigError(
            f"wanted a commit, whose trials can be repeated, found changes in the tree; {CLEAN_TREE}, or name one:"
            " gangline search --commit HEAD"
        )
    return repository.commit(asked.commit or "HEAD")


def _base(workspace: RunWorkspace, request: RunRequest) -> Record | None:
    """The newest run of the commit as it is that has ended with numbers."""
    ids = {request.run_id(attempt) for attempt in range(1, 10)}
    records = list_runs(workspace.store, project=request.line.project.name, commit=request.commit)
    ended = [record for record in records if record.run.id in ids and record.run.verdict in ("passed", "refused")]
    return max(ended, key=lambda record: record.run.attempt, default=None)


def _request(
    base_request: RunRequest, base: Record | None, seen: Preview, asked: SearchAsk, site: Site
) -> SearchRequest:
    line, table = base_request.line, base_request.line.search
    metrics = _metrics(line)
    better = _better(line, metrics, base)
    if base is not None and values_of(base, metrics) is None:
        has = ", ".join(sorted({*base.metrics, LOSS}))
        raise _problem("search.metric", f"a metric of {base.run.id}", ", ".join(metrics), f"it has {has}")
    rungs = _rungs(line, len(metrics), trials=asked.trials or line.search.trials)
    is_population = line.search.pruner == "population"
    if is_population and line.project.task is None:
        works = 'a program opens its files itself; pruner = "halving", or "none", works'
        raise _problem("search.pruner", "a project.task, whose checkpoints members take over", "population", works)
    if rungs and not is_population and base is not None and reported_no_steps(base):
        works = 'pruner = "none", or report steps: session.step(loss=...)'
        raise _problem("search.pruner", "none for a program that reports no steps", table.pruner, works)
    is_measured = metrics[0] == LOSS or is_population or line.evaluate.every_steps is not None
    sampler = "nsga2" if len(metrics) > 1 and table.sampler == "tpe" else table.sampler
    fields = {
        "overrides": tuple(asked.overrides), "space": table.space, "metrics": metrics, "better": better,
        "measured_by": metrics[0] if is_measured else LOSS, "sampler": sampler, "pruner": table.pruner,
        "population": table.population, "seed": table.seed, "steps": line.train.steps, "rungs": rungs,
        "reduction": table.reduction,
    }  # fmt: skip
    project, commit = line.project.name, base_request.commit
    return SearchRequest(
        id=search_id(project, commit, fields, base_request.run_id(1)), project=project, commit=commit,
        branch=base_request.branch, subject=base_request.subject, base=base.run.id if base else None,
        resource="gpu" if seen.choice.device == "cuda" else "cpu", currency=site.money.currency, created=now(),
        **fields,  # type: ignore[arg-type]  # names and types are those above
    )  # fmt: skip


def _metrics(line: Line) -> tuple[str, ...]:
    """What is searched: as the table says, else the metric of the first quality gate."""
    asked = line.search.metric
    if asked is not None:
        return (asked,) if isinstance(asked, str) else asked
    if not line.gate.quality:
        works = 'metric = "loss" is in every line whose program reports steps'
        raise _problem("search.metric", "a metric, as there is no quality gate", "none", works)
    return (line.gate.quality[0].metric,)


def _better(line: Line, metrics: tuple[str, ...], base: Record | None) -> tuple[Better, ...]:
    """Direction of each metric: as the table says, else its gate, else the record of the base; lower for losses."""
    asked = line.search.better
    stated: dict[str, Better] = {gate.metric: gate.better for gate in line.gate.quality}
    if asked is not None:
        directions: tuple[Better, ...] = (asked,) if isinstance(asked, str) else asked
        for metric, better in zip(metrics, directions, strict=True):
            if stated.get(metric, better) != better:
                wanted = f"{stated[metric]} for {metric}, as its quality gate says"
                raise _problem("search.better", wanted, better, "leave search.better out")
        return directions
    recorded = {name: each.better for name, each in base.metrics.items()} if base is not None else {}
    found = [stated.get(each) or recorded.get(each) or ("lower" if "loss" in each else None) for each in metrics]
    if unknown := [name for name, better in zip(metrics, found, strict=True) if better is None]:
        works = 'better = "higher" in [search], or a quality gate'
        raise _problem("search.better", f"the better direction of {', '.join(unknown)}", "none", works)
    return tuple(each for each in found if each is not None)


def _rungs(line: Line, num_metrics: int, *, trials: int) -> tuple[int, ...]:
    """Steps at which trials are judged, or at which the rounds of a population end."""
    table, steps = line.search, line.train.steps
    if table.pruner == "population":
        least = None if table.min_steps == "auto" else table.min_steps
        return round_ends(steps=steps, trials=trials, size=table.population, min_steps=least)[:-1]
    if table.pruner == "none" or num_metrics > 1:
        return ()
    rung = max(1, round(steps / _AUTO_RUNGS)) if table.min_steps == "auto" else table.min_steps
    rungs = []
    while rung * LAST_RUNG <= steps:
        rungs.append(rung)
        rung *= table.reduction
    return tuple(rungs)


def _limits(line: Line, asked: SearchAsk, site: Site, seen: Preview, request: SearchRequest) -> SearchLimits:
    table, most = line.search, site.limits.gpu_hours_per_run if request.resource == "gpu" else None
    if asked.trials is not None and not 1 <= asked.trials <= MOST_TRIALS:
        raise _problem("search.trials", f"1 to {MOST_TRIALS}", str(asked.trials), "40 is the default")
    hours = [
        each for each in (asked.budget_hours or table.budget_gpu_hours, _hours_for(table.budget_money, site))
        if each is not None
    ]  # fmt: skip
    if most is not None and hours and min(hours) > most:
        raise _problem("search.budget_gpu_hours", f"at most {most:g}, the site's limit", f"{min(hours):g}", "lower it")
    inventory, ranks = seen.inventory, seen.choice.mesh.world_size
    devices = inventory.gpus.count if request.resource == "gpu" and inventory.gpus else inventory.cores
    free = max(1, min(site.limits.active_runs, devices * inventory.num_nodes // max(1, ranks)))
    return SearchLimits(
        trials=asked.trials or table.trials, parallel=free if table.parallel == "auto" else table.parallel,
        budget_hours=min(hours, default=most), budget_money=table.budget_money, patience=table.patience,
        confirm_seeds=0 if len(request.metrics) > 1 else table.confirm_seeds,
    )  # fmt: skip


def _hours_for(money: float | None, site: Site) -> float | None:
    """Device-hours that the money buys of the dearest GPU."""
    if money is None:
        return None
    price = dearest_price(site)
    if price is None:
        works = "give budget_gpu_hours"
        raise _problem("search.budget_money", "a site with gpu.NAME.price_per_hour", "none", works)
    return money / price


def _trial_hours(base: Record | None, seen: Preview, request: SearchRequest) -> float | None:
    """Device-hours of one trial: as the base had them, else as its plan is forecast."""
    if base is not None and base.ledger is not None and base.ledger.allocated_seconds:
        return base.ledger.allocated_seconds / 3600 / max(1, len(base.inputs.seeds))
    forecast = seen.choice.forecast
    if request.resource == "gpu":
        return forecast.gpu_hours
    ranks = seen.choice.mesh.world_size
    return None if forecast.wall_seconds is None else forecast.wall_seconds * ranks / 3600


def _require_budget(limits: SearchLimits, forecast: budget.SearchForecast, request: SearchRequest) -> None:
    if limits.budget_hours is None or forecast.trial_hours is None or forecast.confirm_hours is None:
        return
    least = forecast.trial_hours + forecast.confirm_hours
    if least > limits.budget_hours:
        unit = request.resource.upper()
        with_seeds = f" and its confirmation on {limits.confirm_seeds} seeds" if limits.confirm_seeds else ""
        raise GateError(
            f"wanted a budget for one trial{with_seeds}, {least:.3g} {unit}-h, found {limits.budget_hours:.3g};"
            " nothing was started. Raise it, or search.confirm_seeds = 0"
        )


def _problem(key: str, wanted: str, found: str, works: str) -> FileError:
    return FileError("line.toml", [ConfigProblem(key, wanted, found, works)])
