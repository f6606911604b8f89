"""PlanProblem: one line on devices of one kind, with what is known of its model, of the devices and of earlier runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from gangline.fabric.topology.inventory import Fabric
from gangline.planner.budget import PlanReason, excess
from gangline.planner.cost.calibration import Calibration, calibrate
from gangline.planner.cost.interruptions import restart_time, with_interruptions
from gangline.planner.cost.optimizer import OptimizerModel, optimizer_model
from gangline.planner.pool import Pool, choose_precision, num_nodes, open_pool
from gangline.spec.codec import digest
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory, Rates
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Precision
from gangline.spec.profile import MeasuredRun, ModelProfile
from gangline.spec.transformer import Transformer

CPU_BAND = 0.30
"""Step times on shared cores repeat within this: a plan does not change for less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanProblem:
    """What the planner is asked, for both models of a plan."""

    line: Line
    pool: Pool
    profile: ModelProfile | None
    """None: the size of the model is not known."""
    precision: Precision = "fp32"
    site: Site = Site()
    """Site with the band and the margin that earlier runs taught."""
    history: Sequence[MeasuredRun] = ()
    """Earlier runs of this model, newest first."""
    rates: Rates | None = None
    """Measured on the pool's devices."""
    _calibration: list[Calibration] = field(default_factory=list, compare=False)
    _optimizer: list[OptimizerModel] = field(default_factory=list, init=False, compare=False)

    @classmethod
    def about(
        cls, line: Line, site: Site, inventory: Inventory, profile: ModelProfile | None, history: Sequence[MeasuredRun],
        *, rates: Rates | None = None, fabric: Fabric | None = None,
    ) -> Self:  # fmt: skip
        """The question with what applies to it: the pool, joined by `fabric`, the precision, measurements of the same
        model."""
        model = digest(line.model)
        return cls(
            line=line, pool=open_pool(site, inventory, fabric=fabric), profile=profile, site=site, rates=rates,
            precision=choose_precision(line, inventory),
            history=[run for run in history if run.model in ("", model)],
        )  # fmt: skip

    @property
    def is_by_formula(self) -> bool:
        """The model is known by its shape alone."""
        return self.profile is not None and self.profile.transformer is not None and not self.profile.traces

    @property
    def transformer(self) -> Transformer:
        """Shape of the model of a plan by formula."""
        model = self.profile.transformer if self.profile else None
        assert model is not None, "only models that are known by their shape"
        return model

    @property
    def band(self) -> float:
        """Share within which two step times count as equal."""
        band = self.site.plan.band
        return max(band, CPU_BAND) if self.pool.device == "cpu" else band

    @property
    def counts_money(self) -> bool:
        """The cheapest plan is wanted, not the fastest; cores cost nothing."""
        return self.line.plan.objective == "money" and self.pool.device != "cpu"

    @property
    def device_name(self) -> str:
        """The name by which records of this pool's devices are found."""
        return self.rates.device_name if self.rates else self.pool.name

    @property
    def optimizer(self) -> OptimizerModel:
        """Optimizer of the line, over this model."""
        if not self._optimizer:
            self._optimizer.append(optimizer_model(self.line.optimizer, self.profile))
        return self._optimizer[0]

    @property
    def calibration(self) -> Calibration:
        """What earlier runs teach; nothing without them."""
        if not self._calibration:
            plan, key = self.site.plan, (self.device_name, self.precision)
            self._calibration.append(calibrate(self.history, key, band=plan.band, memory_margin=plan.memory_margin))
        return self._calibration[0]

    def interrupted(self, forecast: Forecast, gpus: int) -> Forecast:
        """Forecast with what saves and failures of so many GPUs cost; failures of cores are not known: as it is."""
        if self.pool.device != "cuda" or not forecast.parameters:
            return forecast
        parameters, alike = forecast.parameters, (run for run in self.history if run.device == self.pool.device)
        return with_interruptions(
            forecast, self.site.plan, restart=restart_time(self.site.plan, alike), gpus=gpus,
            servers=num_nodes(self.pool, gpus), parameters=parameters,
            moment_bytes=self.optimizer.saved_bytes(parameters) / parameters,
        )  # fmt: skip

    def excess(self, forecast: Forecast) -> PlanReason | None:
        """The bound of line or site that `forecast` is furthest beyond; None: it is beyond none."""
        site, seeds = self.site, self.line.evaluate.seeds
        return excess(self.line.plan, site.limits, forecast, band=site.plan.band, seeds=seeds)
