"""Inputs of the search by formula: what a line asks about a transformer known by its shape, and the hardware. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import gcd, inf
from typing import Literal

from gangline.planner.cost.exchange import LinkRates, link_rates
from gangline.planner.cost.optimizer import ADAMW, OptimizerModel
from gangline.planner.cost.speeds import NO_MATRIX_RULE, HostRates, host_rates
from gangline.planner.layouts.enumerate import SearchSpace, Sync, unsupported_rule
from gangline.planner.layouts.layout import Layout, explicit_layout
from gangline.planner.layouts.schedules import SPLIT
from gangline.planner.pool import MOST_AUTO, check_world, divisors, most_ranks, ranks_per_node
from gangline.planner.problem import PlanProblem
from gangline.planner.settings import CHUNKS, PASS_BYTES, SHARES, Setting, StepLoad, bucket_bytes, line_memory
from gangline.spec.compression import Compression
from gangline.spec.config.line import Line
from gangline.spec.plan import SCHEDULE_NAMES, Memory, PipelineSchedule, Precision
from gangline.spec.profile import ModelProfile, ParameterShape
from gangline.spec.strategies import traits_of
from gangline.spec.transformer import Transformer


@lru_cache(maxsize=64)
def formula_profile(model: Transformer) -> ModelProfile:
    """What follows from the shape of a model that was not traced."""
    return ModelProfile(
        parameters=model.parameters,
        largest_block_parameters=model.block_parameters,
        blocks=model.layers,
        tensor_cuts=gcd(model.heads, model.asked_heads, model.feed_width, model.vocabulary),
        experts=model.experts if model.experts > 1 else None,
        sequence=model.sequence,
        transformer=model,
        shapes=_shapes(model),
        origin="formula",
    )


def _shapes(model: Transformer) -> tuple[ParameterShape, ...]:
    """Shapes of all parameters, each expert's on its own."""
    layers, width = model.layers, model.width
    router = [(model.experts, width, layers)] if model.experts > 1 else []
    found = [
        *((*matrix, layers) for matrix in model.attention_matrices.values()),
        *((*matrix, layers * model.experts) for matrix in model.feed_matrices.values()),
        *router,
        (model.vocabulary, width, 1 if model.tied else 2),
        (width, 1, 2 * layers + 1),
    ]
    return tuple(ParameterShape(rows=rows, columns=columns, count=count) for rows, columns, count in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """What one GPU and its links deliver."""

    flops_per_second: float
    memory_bytes_per_second: float
    links: LinkRates
    overlap: float = 0.0
    """Share of computing that hides the exchanges of data-parallel ranks."""
    host: HostRates = HostRates()


_REDUCED: Mapping[Sync, Memory] = {"each": Memory(gradient_sync="each"), "last": Memory(gradient_sync="last")}
"""What an exchange asks of the memory of a rank."""

Support = Callable[[Layout, Sync, int], str]
"""Why ranks cannot run a layout with a sync and pieces of loss; empty: they can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What candidates are evaluated for."""

    model: Transformer
    space: SearchSpace
    hardware: Hardware
    missing: str = ""
    """Rates that are not known, so that only the work of `hardware` counts; empty: all are."""
    usable_bytes: float
    """What the peak of one rank may be by formula."""
    precision: Precision = "bf16"
    optimizer: OptimizerModel = ADAMW
    compression: Compression = Compression()
    bucket_bytes: int | None = None
    """Size of DDP's buckets; None: torch's own."""
    memory: Memory = Memory()
    """What the line asks for; what it leaves open is searched."""
    usable_host_bytes: float = inf
    """Room of one rank, for shards that wait there."""
    support: Support = lambda *_: ""

    @property
    def width_bytes(self) -> int:
        """Bytes of a number in the passes: 2, or 4 where they run in float32 and nothing is cast."""
        return PASS_BYTES[self.precision]

    def setting(
        self, micro_batch: int, recompute: str, loss_chunks: int, sync: Sync, schedule: PipelineSchedule
    ) -> Setting:
        """One way to run a layout of the search space."""
        offload: Literal["cpu", "none"] = "cpu" if self.space.on_host else "none"
        memory = replace(
            self.memory, activation_checkpointing=recompute, loss_chunks=loss_chunks, offload=offload,
            gradient_sync=sync,
        )  # fmt: skip
        return Setting(micro_batch=micro_batch, precision=self.precision, memory=memory, schedule=schedule)

    def load(self, micro_batch: int, micro_batches: int, sync: Sync) -> StepLoad:
        """What data-parallel ranks exchange in a step of so many micro-batches."""
        return StepLoad(
            micro_batch=micro_batch, precision=self.precision, memory=_REDUCED[sync], micro_batches=micro_batches,
            compression=self.compression, bucket_bytes=self.bucket_bytes,
        )  # fmt: skip


def world_of(problem: PlanProblem) -> int:
    """Ranks of the candidates: what the line says, else all devices: peers of one model see the same samples.

    Raises:
        ConfigError: The line asks for ranks that are not there.
    """
    line, pool = problem.line, problem.pool
    ranks = line.train.ranks if line.project.distributed else 1
    if line.train.strategy == "explicit":
        return explicit_layout(line).mesh.world_size
    if isinstance(ranks, int):
        check_world(line, pool, ranks, shares=1)
        return ranks
    return most_ranks(line, pool)


def formula_question(problem: PlanProblem, world: int, *, on_host: bool = False) -> Question:
    """Candidates on `world` ranks; `on_host`: shards wait there."""
    hardware, missing = _hardware(problem, world)
    optimizer = problem.optimizer
    if on_host and optimizer.matrix_work is not None:
        missing = missing or NO_MATRIX_RULE
    local = ranks_per_node(problem.pool, world)
    usable, room = problem.pool.usable_bytes(local), problem.pool.usable_host_bytes(local)
    return Question(
        model=problem.transformer,
        space=_search_space(problem, world, on_host=on_host),
        hardware=hardware,
        missing=missing,
        usable_bytes=inf if usable is None else usable,
        usable_host_bytes=inf if room is None else room,
        precision=problem.precision,
        memory=line_memory(problem.line),
        optimizer=optimizer,
        compression=problem.line.train.compression,
        bucket_bytes=bucket_bytes(problem.line),
        support=partial(_unsupported, problem.line),
    )


def may_offload(problem: PlanProblem) -> bool:
    """The line leaves it open whether shards wait on the host, and what that takes is known."""
    is_open = problem.line.train.memory.offload == "auto" and problem.pool.device == "cuda"
    return is_open and problem.optimizer.matrix_work is None


def _search_space(problem: PlanProblem, world: int, *, on_host: bool) -> SearchSpace:
    """What the line leaves open, every value of it."""
    model, line, train = problem.transformer, problem.line, problem.line.train
    node = ranks_per_node(problem.pool, world)
    inside = divisors(node)
    micro_batch, memory = train.mesh.micro_batch, train.memory
    requested = train.mesh.pp_schedule
    schedules = [each for each in SCHEDULE_NAMES if not (train.compile and each in SPLIT)]  # compiled ones stay whole
    return SearchSpace(
        world_size=world,
        ranks_per_node=node,
        global_batch=train.global_batch,
        tp=inside,
        pp=[divisor for divisor in divisors(world) if divisor <= model.layers],
        cp=inside,
        ep=[divisor for divisor in divisors(model.experts) if world % divisor == 0],
        syncs=("last", "each") if memory.gradient_sync == "auto" else (memory.gradient_sync,),
        micro_batches=[divisor for divisor in divisors(train.global_batch) if divisor <= MOST_AUTO]
        if micro_batch == "auto"
        else (micro_batch,),
        recompute=tuple(SHARES) if memory.activation_checkpointing == "auto" else (memory.activation_checkpointing,),
        loss_chunks=(1, CHUNKS) if memory.loss_chunks == "auto" else (memory.loss_chunks,),
        schedules=schedules if requested == "auto" else (requested,),
        on_host=on_host,
        admits=partial(_asked, line),
    )


def _asked(line: Line, layout: Layout) -> bool:
    """The line leaves its strategy open, or names this one."""
    requested = line.train.strategy
    if requested == "auto":
        return True
    if requested == "explicit":
        return explicit_layout(line).mesh == layout.mesh
    traits = traits_of(requested)
    return traits is not None and layout.strategy == traits.name


def _unsupported(line: Line, layout: Layout, sync: Sync, loss_chunks: int) -> str:
    """Reason by a rule of the ranks, or one of the line's options."""
    if rule := unsupported_rule(layout, sync=sync, loss_chunks=loss_chunks):
        return rule
    kind, mesh = line.train.compression.kind, layout.mesh
    if line.project.command is not None and (mesh.pp > 1 or mesh.ep > 1 or loss_chunks > 1):
        return "a program's own loop has neither stages, experts of other ranks nor a loss in pieces"
    if kind not in ("none", "bf16") and (mesh.dp_replicate == 1 or layout.num_axes > 1 or sync == "each"):
        return f"train.compression.kind = {kind} is for whole gradients of replicas"
    return ""


def _hardware(problem: PlanProblem, world: int) -> tuple[Hardware, str]:
    """Rates of the pool; where one is missing, rates at which only the work counts, and what is missing."""
    pool = problem.pool
    flops, memory = pool.gpu.flops_per_second.get(problem.precision), pool.gpu.memory_bytes_per_second
    node = ranks_per_node(pool, world)
    lacks = {
        f"flops_per_second.{problem.precision}": flops,
        "memory_bytes_per_second": memory,
        "link_bytes_per_second": pool.gpu.link_bytes_per_second if min(node, world) > 1 else 1.0,
        "network_bytes_per_second": pool.gpu.network_bytes_per_second if world > node else 1.0,
    }
    missing = [name for name, rate in lacks.items() if not rate]
    if not flops or not memory or missing:
        free = LinkRates(node=node, inside=inf, across=inf)
        words = f"[gpu.NAME] of site.toml has no {' and no '.join(missing)} of {pool.name or 'these devices'}"
        return Hardware(flops_per_second=1.0, memory_bytes_per_second=inf, links=free), words
    return Hardware(
        flops_per_second=flops,
        memory_bytes_per_second=memory,
        links=link_rates(pool, world),
        overlap=problem.site.plan.overlap,
        host=host_rates(pool, node),
    ), ""
