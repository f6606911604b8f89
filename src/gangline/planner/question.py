"""One line on one pool: what every judgement of a shape reads, and what is known about a shape."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gangline.planner.candidates import Shape
from gangline.planner.forecast import Evidence, How, forecast_of, measured_seconds
from gangline.planner.memory import Fit, Load, host_bytes, rank_parts
from gangline.planner.memory_options import OFFLOADED, Setting, memories
from gangline.planner.micro_batch import micro_batches
from gangline.planner.pipeline import live_micro_batches, schedule_of
from gangline.planner.pool import Pool, choose_precision, open_pool
from gangline.planner.world import ranks_per_node
from gangline.spec.codec import digest
from gangline.spec.inventory import Inventory
from gangline.spec.line import Line
from gangline.spec.plan import Forecast, Memory, Precision
from gangline.spec.profile import Measured, ModelProfile
from gangline.spec.rates import Rates
from gangline.spec.site import Site
from gangline.units import format_bytes

CPU_BAND = 0.30
"""Step times on shared cores repeat within this: a plan does not change for less."""


@dataclass(frozen=True, slots=True)
class Question:
    """What the planner is asked."""

    line: Line
    pool: Pool
    precision: Precision
    profile: ModelProfile | None
    history: Sequence[Measured]
    band: float
    """Share within which two step times cannot be told apart."""
    evidence: Evidence
    """What forecasts are made of."""
    _settings: dict[Shape, Setting] = field(default_factory=dict, compare=False)

    @staticmethod
    def about(
        line: Line,
        site: Site,
        inventory: Inventory,
        profile: ModelProfile | None,
        history: Sequence[Measured],
        *,
        rates: Rates | None = None,
    ) -> "Question":
        """The question with what applies to it: the pool, the precision, measurements of the same model."""
        pool, model = open_pool(site, inventory), digest(line.model)
        alike = [each for each in history if each.model in ("", model)]
        band = max(site.plan.band, CPU_BAND) if pool.device == "cpu" else site.plan.band
        evidence = Evidence(line=line, pool=pool, profile=profile, history=alike, rates=rates, trust=site.plan)
        return Question(line, pool, choose_precision(line, inventory), profile, alike, band, evidence)

    def setting(self, shape: Shape) -> Setting:
        """The cheapest way to run `shape` that a rank holds, with the largest passes; else the nearest miss, which
        leaves shards where they are if the line does.

        Raises:
            ConfigError: The line's own micro-batch does not divide a rank's share.
        """
        if shape not in self._settings:
            self._settings[shape] = self._find(shape)
        return self._settings[shape]

    def _find(self, shape: Shape) -> Setting:
        sizes = micro_batches(self.line, shape.mesh)
        misses = []
        for memory in memories(self.line, shape, self.pool.device, self.profile):
            for size in sizes:
                found = Setting(micro_batch=size, memory=memory, fit=self.weigh(shape, size, memory))
                if found.fit.holds:
                    return found
                misses.append(found)
        least = min(miss.effort // OFFLOADED for miss in misses)
        return min((each for each in misses if each.effort // OFFLOADED == least), key=lambda each: each.fit.ratio or 0)

    def fit(self, shape: Shape) -> Fit:
        """As `setting` runs it."""
        return self.setting(shape).fit

    def weigh(self, shape: Shape, micro_batch: int, memory: Memory) -> Fit:
        """Need of a rank that runs `shape` so, beside what it may hold; of offloaded shards also that of its server."""
        mesh, pool = shape.mesh, self.pool
        local = ranks_per_node(pool, mesh.world_size)
        usable = pool.usable_bytes(local)
        if self.profile is None:
            return Fit(None, usable)
        load = Load(
            micro_batch=micro_batch,
            micro_batches=-(-self.line.train.global_batch // (mesh.data_parallel * micro_batch)),
            live=live_micro_batches(self.line, mesh, micro_batch, self.profile),
            checkpointing=memory.activation_checkpointing,
            loss_chunks=memory.loss_chunks,
            precision=self.precision,
            offload=memory.offload,
        )
        on_host = host_bytes(self.profile, shape, memory.offload)
        if pool.host_memory_bytes is not None and on_host > pool.host_memory_bytes / local:
            return Fit(on_host, pool.host_memory_bytes / local, "on the host")
        parts = rank_parts(self.profile, shape, load)
        cause = max(parts.by_cause.items(), key=lambda each: each[1])
        return Fit(parts.total, usable, f"{cause[0]} {format_bytes(cause[1])}")

    def seconds(self, shape: Shape) -> float | None:
        """Measured seconds of a step."""
        return measured_seconds(self.history, shape, self.pool, self.precision, self.line.train.global_batch)[0]

    def forecast(self, shape: Shape, micro_batch: int | None = None) -> Forecast:
        """Of `shape` as `setting` runs it, or in passes of so many samples."""
        setting = self.setting(shape)
        size = micro_batch or setting.micro_batch
        how = How(
            micro_batch=size,
            precision=self.precision,
            schedule=schedule_of(self.line, shape.mesh, size, self.profile),
            checkpointing=setting.memory.activation_checkpointing,
        )
        return forecast_of(self.evidence, shape, how, self.weigh(shape, size, setting.memory).need_bytes)
