"""Plans of gangs: turns a choice into the plan of the train gang, and that into those of all others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from gangline.errors import ConfigError
from gangline.planner.choice import PlanChoice
from gangline.planner.cost.interruptions import save_every
from gangline.planner.proof import make_proof_plan
from gangline.planner.settings import bucket_bytes
from gangline.spec.compression import Compression
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.data_source import DataSource
from gangline.spec.devices import Inventory
from gangline.spec.mesh import Mesh
from gangline.spec.parameter_server import ParameterPlan
from gangline.spec.plan import CheckpointPolicy, Device, Job, Plan, ProgramSpec, SaveCosts, StartCheckpoint
from gangline.spec.profile import ModelProfile
from gangline.units import counted, format_bytes, format_seconds


def line_of_worker(line: Line) -> Line:
    """The line that one worker of a parameter server is planned by; without one `line` itself."""
    table = line.train.parameter_server
    if table is None:
        return line
    train = replace(
        line.train, strategy="auto", global_batch=line.train.global_batch // table.workers,
        compression=Compression(), parameter_server=None,
    )  # fmt: skip
    return replace(line, train=train)


def choice_of_run(choice: PlanChoice, line: Line) -> PlanChoice:
    """The choice for one worker with what all workers of `line` take."""
    table = line.train.parameter_server
    return choice if table is None else replace(choice, forecast=choice.forecast.paid(table.workers))


def make_plan(line: Line, choice: PlanChoice, *, run: str, run_prefix: str, data: DataSource, folder: str = "") -> Plan:
    """What the train gang obeys: equal questions give equal bytes. `folder`: of the line in the code layer."""
    train, table = line.train, line.train.parameter_server
    return Plan(
        run=run,
        project=line.project.name,
        name=choice.name if table is None else f"{table.workers} x {choice.name}",
        run_prefix=run_prefix,
        program=ProgramSpec(
            task=line.project.task,
            command=line.project.command or (),
            distributed=line.project.distributed,
            path=line.project.path,
            folder=folder,
        ),
        strategy=choice.strategy,
        mesh=choice.mesh,
        device=choice.device,
        precision=choice.precision,
        deterministic=choice.device == "cpu" if train.deterministic == "auto" else train.deterministic,
        model=line.model,
        optimizer=line.optimizer,
        data=data,
        steps=train.steps,
        stop_at=train.stop_at,
        global_batch=train.global_batch,
        micro_batch=choice.micro_batch,
        shares=choice.shares,
        seed=train.seed,
        schedule=train.schedule,
        clip_norm=train.clip_norm,
        bucket_bytes=bucket_bytes(line),
        collectives=train.mesh.collectives,
        pp_schedule=choice.pp_schedule,
        context=train.mesh.context,
        compile=train.compile,
        memory=choice.memory,
        compression=train.compression if table is None else Compression(),
        parameters=None if table is None else ParameterPlan(table=table, compression=train.compression),
        checkpoint=checkpoint_policy(line, choice.save_costs),
        start=train.start,
        recovery=train.recovery,
        federation=choice.federation,
        evaluate_every=line.evaluate.every_steps,
        evaluate_metrics=line.evaluate.metrics,
        sizes=choice.sizes,
        reason=choice.reason,
        candidates=choice.candidates,
        forecast=choice.forecast,
    )


MOST_READERS = 4


def reader_processes(line: Line, device: Device, inventory: Inventory) -> int:
    """Processes of a rank that read samples, as `data.workers` says; auto: cores that a GPU has to itself, less one."""
    if line.data.workers != "auto":
        return line.data.workers
    if device == "cpu":
        return 0
    ranks = inventory.gpus.count if inventory.gpus else 1
    return max(min(inventory.cores // ranks - 1, MOST_READERS), 0)


def checkpoint_policy(line: Line, costs: SaveCosts | None = None) -> CheckpointPolicy:
    """How often and how many; ranks of a live gang outlive its generations and could not agree on another interval."""
    table, rounds = line.train.checkpoint, line.federated
    changes = table.every == "auto" and line.train.recovery.mode != "live" and rounds is None
    return CheckpointPolicy(
        every=save_every(line, costs) if rounds is None else rounds.local_steps,
        keep=table.keep,
        peer_copies=table.peer_copies,
        max_unsaved_seconds=table.max_unsaved_seconds,
        costs=costs if changes else None,
    )


def evaluate_plan(plan: Plan, seeds: Sequence[int], checkpoint: str) -> Plan:
    """The gang that measures `checkpoint` and trains a run for every other seed: the band comes from these.

    Args:
        plan: Of the train gang.
        seeds: All seeds of the band; the plan's own is measured on its checkpoint and always first.
        checkpoint: Store prefix of the run's last checkpoint.
    """
    own = Job(seed=plan.seed, train=False, checkpoint=checkpoint)
    others = (Job(seed=seed) for seed in sorted(set(seeds) - {plan.seed}))
    return replace(plan, role="evaluate", jobs=(own, *others), sizes=())


def server_plan(plan: Plan) -> Plan:
    """The gang that merges what the workers of `plan` push."""
    assert plan.parameters is not None, plan.run
    servers = plan.parameters.table.servers
    return replace(
        plan, strategy="none" if servers == 1 else "ddp", mesh=Mesh(dp_replicate=servers), device="cpu", sizes=(),
        parameters=replace(plan.parameters, part="servers"), start=StartCheckpoint(),
    )  # fmt: skip


def worker_plans(plan: Plan) -> list[Plan]:
    """The gangs that train, from worker 1 on."""
    return [worker_plan(plan, number) for number in range(1, plan.num_workers + 1)] if plan.parameters else []


def worker_plan(plan: Plan, worker: int) -> Plan:
    """The gang of one worker, or of one that joins: it has the steps of all workers in batches of its own size."""
    assert plan.parameters is not None, plan.run
    workers = plan.num_workers
    return replace(
        plan,
        steps=plan.steps * workers,
        stop_at=None if plan.stop_at is None else plan.stop_at * workers,
        global_batch=plan.global_batch // workers,
        schedule=replace(plan.schedule, warmup_steps=plan.schedule.warmup_steps * workers),
        evaluate_every=None,
        parameters=replace(plan.parameters, part="worker", worker=worker),
    )


def seed_plan(plan: Plan, seed: int) -> Plan:
    """The gang that trains a program once more, with another seed; only the program evaluates it."""
    return replace(plan, role="evaluate", seed=seed, sizes=())


def prove_plan(
    plan: Plan,
    strategy: str,
    checkpoint: str,
    replay_steps: int,
    *,
    inventory: Inventory | None = None,
    site: Site | None = None,
    profile: ModelProfile | None = None,
) -> Plan:
    """The gang that opens `checkpoint` under another plan and, with `replay_steps`, trains the first steps again."""
    second = make_proof_plan(plan, strategy, inventory=inventory, site=site, profile=profile)
    opened = Job(seed=plan.seed, train=False, checkpoint=checkpoint)
    replayed = (Job(seed=plan.seed, steps=replay_steps),) if replay_steps else ()
    return replace(second, role="prove", jobs=(opened, *replayed), sizes=())


_VALUE_BYTES = {"bf16": 2.0, "int8": 1.0 + 4.0 / 256}
"""Bytes of a number on the way up; int8 has a scale for each 256."""

_ENTRY_BYTES = 8.0
"""Bytes of an entry that topk sends: a value and its place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerExchange:
    """What one worker sends and takes for a block; one pull is enough, and it pulls more where its line allows."""

    servers: int
    shards: int
    """Shards of the parameters; buffers have further ones."""
    merge_size: int
    """Pushes that a merge waits for."""
    push_bytes: float
    pull_bytes: float
    """Bytes of one version of all shards."""
    num_pulls: float
    """Versions that are merged while a worker trains a block, if all workers are as fast; those that come together are
    one pull."""
    block_seconds: float | None
    """Time of a block of steps; None: that of a step is not known."""

    @property
    def text(self) -> str:
        """Sentence for the plan."""
        dealt = f"{counted(self.servers, 'server')}, {counted(self.shards, 'shard')}"
        pulls = "1 pull" if self.num_pulls == 1 else f"{self.num_pulls:.2g} pulls"
        both = f"a push of {format_bytes(self.push_bytes)} and up to {pulls} of {format_bytes(self.pull_bytes)}"
        if not self.block_seconds:
            often = "for each block of a worker"
        else:
            rate = (self.push_bytes + self.num_pulls * self.pull_bytes) / self.block_seconds
            often = f"every {format_seconds(self.block_seconds)} a worker, at most {format_bytes(rate)}/s"
        return f"{dealt} \u00b7 {both} {often} \u00b7 merges of {self.merge_size}"


def worker_exchange(plan: Plan) -> WorkerExchange | None:
    """The exchange of the workers of `plan`; None: it has none, or the size of the model is not known."""
    numbers = plan.forecast.parameters
    if plan.parameters is None or numbers is None:
        return None
    table, compression, step = plan.parameters.table, plan.parameters.compression, plan.forecast.step_seconds
    each = _ENTRY_BYTES * compression.ratio if compression.kind == "topk" else _VALUE_BYTES.get(compression.kind, 4.0)
    return WorkerExchange(
        servers=table.servers, shards=ceil(4 * numbers / table.shard_bytes), merge_size=table.merge_size,
        push_bytes=numbers * each, pull_bytes=numbers * (2.0 if table.pull == "bf16" else 4.0),
        num_pulls=table.workers / table.merge_size,
        block_seconds=None if step is None else step * plan.outer_interval,
    )  # fmt: skip


def require_exchange(plan: Plan, site: Site) -> None:
    """Require a shard for each server, and blocks that are no shorter than their exchange at the rate of the site.

    Raises:
        ConfigError: A server would have nothing to merge, or pushes would pile up at the workers.
    """
    exchange = worker_exchange(plan)
    if exchange is None:
        return
    if exchange.servers > exchange.shards:
        raise ConfigError(
            f"train.parameter_server.servers: wanted at most one for each of {counted(exchange.shards, 'shard')} of the"
            f" parameters, found {exchange.servers}; servers = {exchange.shards} works, or a smaller shard_bytes"
        )
    bytes_per_second = site.plan.storage.get("object store" if site.store.url.startswith("s3:") else "file system")
    if not bytes_per_second or not exchange.block_seconds:
        return
    seconds = (exchange.push_bytes + exchange.pull_bytes) / bytes_per_second
    if seconds > exchange.block_seconds:
        raise ConfigError(
            "train.compression.outer_steps: wanted blocks that last as long as their exchange with the store, found"
            f" blocks of {format_seconds(exchange.block_seconds)} and an exchange of {format_seconds(seconds)} at"
            f" {format_bytes(bytes_per_second)}/s (plan.storage of the site);"
            f" {ceil(seconds / exchange.block_seconds)} times the steps work, or fewer bytes: kind, pull"
        )
