"""One line on one pool: what every judgement of a shape reads, and what is known about a shape."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.planner.candidates import Shape
from gangline.planner.forecast import forecast_of, measured_seconds
from gangline.planner.memory import Fit, rank_bytes
from gangline.planner.pool import Pool, choose_precision, open_pool
from gangline.planner.world import ranks_per_node
from gangline.spec.codec import digest
from gangline.spec.inventory import Inventory
from gangline.spec.line import Line
from gangline.spec.plan import Forecast, Precision
from gangline.spec.profile import Measured, ModelProfile
from gangline.spec.site import Site

CPU_BAND = 0.30
"""Step times on shared cores repeat within this: a plan does not change for less."""


@dataclass(frozen=True, slots=True)
class Question:
    line: Line
    pool: Pool
    precision: Precision
    profile: ModelProfile | None
    history: Sequence[Measured]
    band: float
    """Share within which two step times cannot be told apart."""

    @staticmethod
    def about(
        line: Line,
        site: Site,
        inventory: Inventory,
        profile: ModelProfile | None,
        history: Sequence[Measured],
    ) -> "Question":
        """The question with what applies to it: the pool, the precision, measurements of the same model."""
        pool, model = open_pool(site, inventory), digest(line.model)
        alike = [each for each in history if each.model in ("", model)]
        band = max(site.plan.band, CPU_BAND) if pool.device == "cpu" else site.plan.band
        return Question(line, pool, choose_precision(line, inventory), profile, alike, band)

    def fit(self, shape: Shape, micro_batch: int = 1) -> Fit:
        usable = self.pool.usable_bytes(ranks_per_node(self.pool, shape.mesh.world_size))
        return Fit(rank_bytes(self.profile, shape, micro_batch), usable)

    def seconds(self, shape: Shape) -> float | None:
        """Measured seconds of a step."""
        return measured_seconds(self.history, shape, self.pool, self.precision, self.line.train.global_batch)[0]

    def forecast(self, shape: Shape, micro_batch: int = 1) -> Forecast:
        return forecast_of(
            self.line,
            self.pool,
            shape,
            self.precision,
            self.fit(shape, micro_batch).need_bytes,
            profile=self.profile,
            history=self.history,
        )
