"""Preview of a run: the plan of a line at the site's target, or on the servers that are free this minute.

Nothing is recorded or started.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.build import code_layer, own_environment
from gangline.errors import CapacityError, ConfigError
from gangline.fabric.topology.inventory import Fabric
from gangline.line.gangs.gang_secrets import refused_references
from gangline.line.gangs.launchers import open_cluster
from gangline.line.gangs.runners import CodeIsolation, CodeOwner, code_isolation, open_runner
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.request.project_claim import require_claimable
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.request.targets import launcher_of
from gangline.line.request.trust import data_access_of
from gangline.line.stages.model_inspection import VISIBLE_DEVICES, ModelSource, columns_of
from gangline.line.stages.planning import RunPlanRequest, plan_run
from gangline.line.stages.tracked_files import CommitPointers, find_pointers
from gangline.planner.choice import PlanChoice
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.spec.data_source import DatasetUse
from gangline.spec.devices import FreeServers, Inventory
from gangline.spec.plan import Candidate
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Gate
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.site_paths import open_site_store

if TYPE_CHECKING:
    from gangline.build.virtualenv import VirtualEnvironment


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """A plan that was not recorded, and what it was made from."""

    request: RunRequest
    run: str
    """Id of the first attempt, whether it exists or not."""
    choice: PlanChoice
    inventory: Inventory
    profile: ModelProfile | None
    budget: Gate
    site: Site
    """The site with margins learned from earlier runs."""
    sandbox: CodeIsolation
    """Isolation of its model code."""
    problems: tuple[str, ...]
    """What the forecast did not have, and findings of the memory run."""
    environment: str
    """Environment of ranks on this machine."""
    data: str = ""
    """Versions of data sets with their sizes, and files that DVC or Git LFS track; empty: there are none."""


def _ignore(_: str) -> None:
    """The default of `notify`."""


def preview(
    repo: Path, *, site: Site, environ: Mapping[str, str], commit: str | None = None, overrides: Sequence[str] = (),
    strategy: str | None = None, memory_run: bool = False, notify: Callable[[str], None] = _ignore,
    devices: Inventory | None = None, fabric: Fabric | None = None,
) -> Preview:  # fmt: skip
    """The plan that `run_line` would make for the same arguments; `notify` is called before work that takes seconds.

    With `devices` it is made for those, with `fabric` for nodes that it joins. With `memory_run` the memory check runs
    even if the formula leaves much room.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: The line is invalid, its project is another repository's, what it starts from does not fit, the
            task cannot be built, or nothing fits.
        RefusedCheckpoint: What the line starts from is damaged, or the project did not sign it.
    """
    with ThreadPoolExecutor(1) as beside:  # a trial of the sandbox starts a process and waits for it
        beside.submit(sandbox_of, repo.resolve(), "own", site=site, environ=environ)
        request = resolve_request(repo, commit=commit, overrides=overrides, strategy=strategy)
    repository, run = request.repository, request.run_id(1)
    pointers = find_pointers(repository, request.tree, request.line, commit=request.commit)
    project = request.line.project
    layer = code_layer.pack(repository, request.tree, project, commit=request.commit, placed=pointers.lfs_paths)
    store = open_site_store(repository.root, site, environ)
    require_claimable(store, request, site=site, environ=environ)
    sets = _datasets(request, store, site=site, environ=environ)
    start = None
    if request.line.train.start.checkpoint is not None:
        from gangline.line.stages.start_checkpoint import open_start  # most lines begin with step 0

        start = open_start(request.line, request.trust, store=store, site=site, environ=environ)
    own = _environment(request, site, environ=environ, with_s3=store.url.startswith("s3:"), notify=notify)
    model = ModelSource(
        line=request.line, code=layer.data, environment=own.digest if own else own_environment.interpreter_digest(),
        trust=request.trust, python=own.python if own else None, folder=layer.folder, home=request.kept_home,
        visible_devices=environ.get(VISIBLE_DEVICES), data=columns_of(store, sets), lacks=pointers.paths,
    )  # fmt: skip
    plan_request = RunPlanRequest(
        model=model, repository=repository, store=store, commit=request.commit, run=run, run_prefix=f"runs/{run}",
        runner=open_runner(_code_owner(request, run, site), repository.root, site=site, environ=environ, store=store),
    )  # fmt: skip
    notify("comparing plans")
    planned_run = plan_run(
        plan_request, site, environ=environ, home=site_paths.home(repository.root), notify=notify,
        memory_run=memory_run, devices=devices, fabric=fabric,
    )  # fmt: skip
    if start is not None:
        start.require_shapes(planned_run.profile)
    sandbox = code_isolation(repository.root, request.trust, site=site, environ=environ)
    secret = refused_references(request.line.train.env, site, environ) if request.trust == "own" else ""
    return Preview(
        request=request, run=run, choice=planned_run.choice, inventory=planned_run.inventory,
        profile=planned_run.profile, budget=planned_run.budget, site=planned_run.site, sandbox=sandbox,
        data=_data_text(sets, pointers),
        environment=own.source if own else request.line.env.lock or own_environment.NOT_LOCKED,
        problems=(
            *([start.text] if start else ()),
            *filter(None, [request.dirty_note, secret, sandbox.warning]), *planned_run.problems, *planned_run.notes,
        ),
    )  # fmt: skip


def _datasets(
    request: RunRequest, store: ObjectStore, *, site: Site, environ: Mapping[str, str]
) -> tuple[DatasetUse, ...]:
    """Versions that the line's data sets have now."""
    if not (request.line.data.mix or request.line.data.shards):
        return ()
    from gangline.line.stages.data_files import DatasetAccess, dataset_source, names_datasets

    access = data_access_of(request.trust, request.line.project.name, site)
    allowed = DatasetAccess(access=access, site=site, trusted=lambda: Sealer.of(site, environ).trusted)
    table = request.line.data
    return dataset_source(table, store=store, allowed=allowed).sets if names_datasets(table) else ()


def _data_text(sets: tuple[DatasetUse, ...], pointers: CommitPointers) -> str:
    """Versions of data sets, and files that DVC or Git LFS track; empty: there are none."""
    if not sets:
        return str(pointers)
    from gangline.line.stages.data_files import versions_text  # most lines name no data set

    return " · ".join(filter(None, [versions_text(sets), str(pointers)]))


def _environment(
    request: RunRequest, site: Site, *, environ: Mapping[str, str], with_s3: bool, notify: Callable[[str], None]
) -> "VirtualEnvironment | None":
    """Environment of ranks without an image; None: they have one, or the line names no lock."""
    if request.line.env.lock is None or launcher_of(site.launch.target).has_pods:
        return None
    from gangline.build.virtualenv import LockedCommit, find_or_make_environment  # parsers of versions and markers

    commit = LockedCommit(
        repository=request.repository, tree=request.tree, line=request.line, trust=request.trust
    )  # fmt: skip
    home = site_paths.home(request.repository.root)
    return find_or_make_environment(commit, site=site, environ=environ, home=home, with_s3=with_s3, notify=notify)


def _code_owner(request: RunRequest, run: str, site: Site) -> CodeOwner:
    """Owner of the model code, with the base image that pods have; a fork cannot choose it."""
    own = request.line.env.base if request.trust == "own" else None
    return CodeOwner(
        run=run, project=request.line.project.name, commit=request.commit, trust=request.trust,
        image=own or site.registry.base, home=request.kept_home,
    )  # fmt: skip


def free_servers(site: Site, environ: Mapping[str, str], inventory: Inventory) -> FreeServers:
    """Free servers of the site's target; those that are in no cluster count as free."""
    if not launcher_of(site.launch.target).has_pods:
        return FreeServers(free=inventory.num_nodes, holders=())
    from gangline.launch.kubernetes.placement.inventory import read_free_servers

    return read_free_servers(open_cluster(site, environ), site.pod, inventory, pool=site.launch.pool)


def choice_now(first: Preview, free: FreeServers, plan_for: Callable[[Inventory], Preview]) -> PlanChoice:
    """The choice among plans that start on `free` servers; those that need more come after it, as `no_servers`.

    Args:
        first: As planned for all servers.
        free: Now.
        plan_for: Plans once more, for other devices.

    Raises:
        CapacityError: No server is free, or no plan fits on those that are.
    """
    if first.choice.num_nodes <= free.free:
        return first.choice
    if not free.free:
        raise CapacityError(
            f"plan --now: wanted {first.choice.num_nodes} servers for {first.choice.name}, found none free; "
            f"{_held(free)}; without --now the plan waits for them"
        )
    try:
        choice = plan_for(replace(first.inventory, num_nodes=free.free)).choice
    except ConfigError as error:
        raise CapacityError(
            f"plan --now: wanted a plan for the {free.free} servers that are free, found none: {error}; {_held(free)}"
        ) from error
    waiting = tuple(
        _waits(candidate, free) for candidate in first.choice.candidates if candidate.verdict in ("chosen", "runner_up")
    )
    return replace(choice, candidates=(choice.candidates[0], *waiting, *choice.candidates[1:]))


def _waits(candidate: Candidate, free: FreeServers) -> Candidate:
    reason = f"{candidate.mesh.world_size} ranks: {free.free} servers are free now; {_held(free)}"
    return replace(candidate, verdict="no_servers", reason=reason)


def _held(free: FreeServers) -> str:
    return f"{', '.join(free.holders)} hold others" if free.holders else "no run that this user may see holds them"
