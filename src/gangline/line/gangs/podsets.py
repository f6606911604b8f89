"""PodSet of a plan: equal for every driver of the run, so that a second driver adopts the existing gang."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from gangline.errors import ConfigError, TrainingError
from gangline.line.gangs import launchers
from gangline.line.gangs.federation import coordinator_variables
from gangline.line.gangs.gang_secrets import secret_names, shard_access, shard_variables, source_secrets
from gangline.line.record.context import RunContext
from gangline.line.request.trust import require_approval
from gangline.spec import identity
from gangline.spec.config.line import Line
from gangline.spec.config.secrets import plain_of
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.gang.podset import (
    DEADLINE_KEY,
    SITE_DEADLINE,
    PipelineTraffic,
    Placement,
    PodSet,
    Resources,
    ServerKind,
)
from gangline.spec.plan import Plan
from gangline.spec.program_files import OUTPUTS_VARIABLE, OutputsRequest
from gangline.spec.python_environment import require_manifest
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import get_blob, put_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.trackers.programs import joined_trackers, program_secrets, program_variables


def commits_python(record: Record) -> str | None:
    """Python of the environment that the run's build stage made on this machine; None if it made none.

    Raises:
        ConfigError: The environment was deleted, for instance by a sweep, or was made on another machine.
    """
    python = stage(record, "build").outputs.get("python")
    if python is None:
        return None
    require_manifest(Path(python).parent.parent, run=record.run.id)
    return str(python)


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
POD_COMMAND = ("python", "-m", "gangline.keeper.pod")
"""Command of a pod, where the keeper fetches plan and code itself; on this machine the launcher provides them as
files."""


def podset_for(ctx: RunContext, plan: Plan, attempt: int = 1, *, chain: int = 0, spent_seconds: float = 0.0) -> PodSet:
    """The gang of an attempt at `plan`, as the run's driver submits it.

    Args:
        ctx: Of the run.
        plan: Of the attempt.
        attempt: From 1.
        chain: As in `run_gang`.
        spent_seconds: Time that earlier attempts took, which the deadline of the plan includes.

    Raises:
        CapacityError: The run is a fork's, and was not approved.
        TrainingError: Earlier attempts took all the time that the plan has.
    """
    require_approval(ctx.read_current(), "its gang")
    number = identity.gang_number(chain, attempt)
    return make_podset(
        plan, record=ctx.record, line=ctx.line, site=ctx.site, store=ctx.store, attempt=number,
        spent_seconds=spent_seconds,
    )  # fmt: skip


def make_podset(
    plan: Plan, *, record: Record, line: Line, site: Site, store: ObjectStore, attempt: int = 1,
    spent_seconds: float = 0.0,
) -> PodSet:  # fmt: skip
    """The gang of `plan` at the target of the run, whose build and plan stages are done.

    Raises:
        ConfigError: The target is a cluster, but there is no image for its pods, or no store that pods can reach.
        TrainingError: As `podset_for`.
    """
    deadline_seconds, deadline_key = _deadline(plan, line, site, spent_seconds)
    shape = gang_shape(plan, record)
    procs, placement = shape.procs_per_node, shape.placement
    trackers, shards = joined_trackers(record, site), shard_access(plan, record, site)
    secrets = (launchers.CHECKPOINT_KEY, *((launchers.STORE_CREDENTIALS,) if site.store.credentials else ()))
    podset = PodSet(
        name=identity.gang_name(plan.run, plan.role, attempt),
        run=plan.run,
        project=plan.project,
        commit=record.commit.sha,
        role=plan.role,
        num_nodes=shape.num_nodes,
        procs_per_node=procs,
        image=record.inputs.image,
        code=str(stage(record, "build").outputs["code"]),
        plan=put_blob(store, plan.to_json()),
        store=store.url,
        env=commit_variables(record)
        | threads_of(record, line, site, store)
        | program_variables(record, trackers, plan.role)
        | plain_of(line.train.env)
        | shard_variables(shards)
        | coordinator_variables(plan, site, record.run.launcher)
        | ({} if deadline_key == SITE_DEADLINE else {DEADLINE_KEY: deadline_key})
        | _outputs_request(plan, record=record, line=line, site=site),
        resources=Resources(gpus=procs if plan.device == "cuda" else 0),
        queue=site.launch.queue,
        priority=site.launch.priority,
        pool=site.launch.pool,
        placement=placement if placement != Placement() else None,  # so that its digest does not change
        deadline_seconds=deadline_seconds,
        metrics_port_base=site.metrics.port_base,
        secrets=(
            *secrets,
            *secret_names(record, line.train.env),
            *program_secrets(trackers, plan.role),
            *source_secrets(shards),
        ),
    )
    if record.run.launcher.has_pods:
        return on_cluster(podset, site)
    return replace(podset, python=commits_python(record))


def _deadline(plan: Plan, line: Line, site: Site, spent_seconds: float) -> tuple[float, str]:
    """Time limit of a gang, and the key that sets it; the line's is for one training, and a gang may have several."""
    bound, limit = line.plan.deadline_seconds, site.limits.run_seconds
    if bound is None:
        return limit, SITE_DEADLINE
    left = bound * max(1, sum(job.train for job in plan.jobs)) - spent_seconds
    if left <= 0:
        raise TrainingError(
            f"plan.deadline_seconds: wanted at most {bound:g} s, earlier gangs took {spent_seconds:.1f} s; raise it, or"
            " train fewer steps"
        )
    return (left, "plan.deadline_seconds") if left < limit else (limit, SITE_DEADLINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedNodes:
    """Nodes of a gang, and what the plan wants of their servers."""

    num_nodes: int
    procs_per_node: int
    placement: Placement


def gang_shape(plan: Plan, record: Record) -> PlannedNodes:
    """Nodes of the gang of `plan`, by the plan stage of the run."""
    procs = int(stage(record, "plan").outputs.get("procs_per_node") or plan.world_size)
    nodes = max(1, plan.world_size // procs)
    procs = plan.world_size // nodes
    return PlannedNodes(num_nodes=nodes, procs_per_node=procs, placement=_placement(plan, procs, record))


def server_labels(inventory: Inventory) -> dict[str, Any]:
    """Outputs of the plan stage that `gang_shape` reads: labels of the kind of GPU that a plan is for, where there are
    several; of two kinds the servers of each."""
    if inventory.others:
        return {"kinds": [{"num_nodes": kind.num_nodes, "labels": kind.labels} for kind in inventory.kinds]}
    return {"labels": inventory.labels} if inventory.labels else {}


def _placement(plan: Plan, procs: int, record: Record) -> Placement:
    """The default where every pod may go anywhere in any order."""
    tile, outputs = plan.mesh.tile(procs), stage(record, "plan").outputs
    is_planned = record.plan is not None and record.plan.mesh == plan.mesh
    pipeline = PipelineTraffic(**outputs["pipeline"]) if outputs.get("pipeline") and is_planned else None
    kinds = _kinds(plan.world_size // procs, [ServerKind(**each) for each in outputs.get("kinds", ())])
    labels = kinds[0].labels if len(kinds) == 1 else outputs.get("labels", {})
    return Placement(
        tile=tile, pipeline=pipeline, labels=labels, kinds=kinds if len(kinds) > 1 else (),
        environment=outputs.get("environment", {}),
    )  # fmt: skip


def _kinds(nodes: int, planned: Sequence[ServerKind]) -> tuple[ServerKind, ...]:
    """The first `nodes` of the servers of each kind, in order."""
    kinds = []
    for kind in planned:
        kinds.append(replace(kind, num_nodes=min(kind.num_nodes, nodes)))
        nodes -= kinds[-1].num_nodes
    return tuple(server_kind for server_kind in kinds if server_kind.num_nodes)


def _outputs_request(plan: Plan, *, record: Record, line: Line, site: Site) -> dict[str, str]:
    """Variable that names the files for the keeper to collect after a training; of other seeds only the metrics file.

    Empty if there are none, so that the PodSet and its digest do not change.
    """
    project = line.project
    globs = project.outputs if plan.role == "train" else ()
    trains = plan.role == "train" or (plan.role == "evaluate" and plan.program.task is None)
    if not trains or not (globs or project.metrics):
        return {}
    request = OutputsRequest(
        globs=globs, metrics=project.metrics, code=str(stage(record, "build").outputs["code"]),
        most_files=site.limits.output_files, most_bytes=round(site.limits.output_bytes),
    )  # fmt: skip
    return {OUTPUTS_VARIABLE: request.to_json().decode()}


def commit_variables(record: Record) -> dict[str, str]:
    """Variables that name the commit to its ranks, whose folder is no git repository; launchers set GANGLINE_RUN."""
    commit = record.commit
    branch = {"GANGLINE_BRANCH": commit.branch} if commit.branch else {}
    return {"GANGLINE_COMMIT": commit.sha} | branch | ({"GANGLINE_DIRTY": "1"} if commit.patch else {})


def threads_of(record: Record, line: Line, site: Site, store: ObjectStore) -> dict[str, str]:
    """Threads of a program's ranks: their share of the cores. A task's rank has one, so that all plans agree."""
    inventory, world = stage(record, "plan").outputs.get("inventory"), record.plan.world_size if record.plan else 1
    if line.project.task is not None or not inventory:
        return {}
    cores = Inventory.from_json(get_blob(store, str(inventory))).cores
    ranks = world if record.run.launcher.is_here else int(stage(record, "plan").outputs.get("procs_per_node") or world)
    each = int(site.pod.cpus) if record.run.launcher.has_pods else cores // ranks
    return dict.fromkeys(THREADS, str(max(1, each)))


def on_cluster(podset: PodSet, site: Site) -> PodSet:
    """`podset` with what only pods need: image, command, resources, and the store's address for pods."""
    if podset.image is None:
        raise ConfigError(
            "site.toml: pods need an image: wanted registry.base (used as it is) or registry.builder with"
            ' registry.image, found neither; base = "registry.example/gangline/runtime@sha256:..." works'
        )
    pod, gpus = site.pod, podset.resources.gpus
    resources = Resources(
        cpus=pod.cpus * podset.procs_per_node,
        memory_bytes=round(pod.memory_bytes * podset.procs_per_node),
        gpus=gpus,
        rdma=gpus if pod.rdma else 0,
        shm_bytes=round(pod.shm_bytes),
    )
    return replace(podset, command=POD_COMMAND, store=pod_store_url(podset.store, site), resources=resources)


def pod_store_url(url: str, site: Site) -> str:
    """URL of the store for pods, with `store.cluster_endpoint` if that is set.

    Raises:
        ConfigError: The store is a folder of this machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3":
        raise ConfigError(
            f"store.url: wanted a store that pods can reach, s3://bucket/prefix, found {url}, a folder of this machine"
        )
    query = dict(parse_qsl(parts.query))
    query["endpoint"] = site.store.cluster_endpoint or query["endpoint"]
    return parts._replace(query=urlencode(query)).geturl()
