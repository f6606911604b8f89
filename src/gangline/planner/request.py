"""PlanRequest: one line on one device pool; caches settings, fits and forecasts of layouts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from gangline.planner.contest import TimeBounds
from gangline.planner.cost.memory import host_bytes, rank_parts
from gangline.planner.forecast import equal_runs, forecast_of, formula_of
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.pipeline import live_micro_batches, schedule_of
from gangline.planner.pool import micro_batches, ranks_per_node
from gangline.planner.problem import PlanProblem
from gangline.planner.settings import OFFLOAD_EFFORT, Fit, FittedSetting, Setting, StepLoad, effort, memories
from gangline.spec.config.line import Line
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Memory
from gangline.units import format_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest(PlanProblem):
    """A problem with what was computed of its layouts: how each is run, what it needs and takes."""

    _settings: dict[Layout, FittedSetting] = field(default_factory=dict, init=False, compare=False)
    _formulas: dict[tuple[Layout, Setting, float | None], Forecast] = field(
        default_factory=dict, init=False, compare=False
    )

    def setting(self, layout: Layout) -> FittedSetting:
        """The cheapest way to run `layout` that a rank holds, with the largest passes, unless by forecast another one
        is faster; else the nearest miss, which leaves shards where they are if the line does.

        Raises:
            ConfigError: The line's own micro-batch does not divide a rank's share.
        """
        if layout not in self._settings:
            self._settings[layout] = self._cheapest_setting(layout)
        return self._settings[layout]

    def _cheapest_setting(self, layout: Layout) -> FittedSetting:
        misses = []
        for size, memory in self._open_ways(layout):
            setting = FittedSetting(micro_batch=size, memory=memory, fit=self.fit_of(layout, size, memory))
            if setting.fit.holds:
                return self._faster_setting(layout, setting)
            misses.append(setting)
        return min(misses, key=lambda setting: (setting.effort // OFFLOAD_EFFORT, setting.fit.ratio or 0))

    def _open_ways(self, layout: Layout) -> Iterator[tuple[int, Memory]]:
        """All that the line leaves open, the least effort first, each with the largest passes first."""
        sizes = micro_batches(self.line, layout.mesh)
        for memory in memories(self.line, layout, self.pool.device, self.profile):
            yield from ((size, memory) for size in sizes)

    def _faster_setting(self, layout: Layout, first: FittedSetting) -> FittedSetting:
        """`first`, or the fastest of what is clearly faster: large passes that compute something again may gather less
        often."""
        time_bounds = self._time_bounds(layout, first)
        if first.effort >= OFFLOAD_EFFORT or time_bounds is None:
            return first
        found = {(first.micro_batch, first.memory.gradient_sync): (time_bounds, first)}
        for size, memory in self._open_ways(layout):
            way = size, memory.gradient_sync
            if way in found or effort(memory) >= OFFLOAD_EFFORT:
                continue
            setting = FittedSetting(micro_batch=size, memory=memory, fit=self.fit_of(layout, size, memory))
            if setting.fit.holds:
                found[way] = self._time_bounds(layout, setting) or time_bounds, setting
        faster = [each for each in found.values() if each[0].is_clearly_below(time_bounds, self.band)]
        return min(faster, key=lambda each: each[0].most, default=(time_bounds, first))[1]

    def fit(self, layout: Layout) -> Fit:
        """Need and room of a rank, as `setting` runs it."""
        return self.setting(layout).fit

    def fit_of(self, layout: Layout, micro_batch: int, memory: Memory) -> Fit:
        """Need of a rank that runs `layout` so, and what it may hold; of offloaded shards also that of its server."""
        mesh, pool = layout.mesh, self.pool
        local = ranks_per_node(pool, mesh.world_size)
        usable = pool.usable_bytes(local)
        if self.profile is None:
            return Fit(None, usable)
        load = StepLoad(
            micro_batch=micro_batch, precision=self.precision, memory=memory,
            micro_batches=-(-self.line.train.global_batch // (mesh.data_parallel * micro_batch)),
            live=live_micro_batches(self.line, mesh, micro_batch, self.profile),
            moment_bytes=self.optimizer.moment_bytes,
        )  # fmt: skip
        on_host = host_bytes(self.profile, layout, load)
        room = pool.usable_host_bytes(local)
        if room is not None and on_host > room:
            return Fit(on_host, room, f"shards on the host {format_bytes(on_host)}")
        return rank_parts(self.profile, layout, load).fit(usable)

    def seconds(self, layout: Layout) -> float | None:
        """Median step of runs of this layout on equal devices, however they were run; None: there are none."""
        equal = [run.step_seconds for run in equal_runs(self, layout)]
        return median(equal) if equal else None

    def forecast(self, layout: Layout) -> Forecast:
        """Forecast of `layout` as `setting` runs it."""
        setting = self.setting(layout)
        return forecast_of(self, layout, self._options(layout, setting), setting.fit)

    def formula(self, layout: Layout) -> Forecast:
        """Forecast of `layout` as `setting` runs it, whatever equal runs took."""
        return self._formula(layout, self._options(layout, self.setting(layout)))

    def time_bounds(self, layout: Layout) -> TimeBounds | None:
        """Seconds of a step by forecast; None: there is none."""
        return self._time_bounds(layout, self.setting(layout))

    def _time_bounds(self, layout: Layout, setting: FittedSetting) -> TimeBounds | None:
        options = self._options(layout, setting)
        most = self._formula(layout, options).step_seconds
        least = None if most is None else self._formula(layout, options, overlap=1.0).step_seconds
        return None if most is None or least is None else TimeBounds(most, least)

    def _formula(self, layout: Layout, options: Setting, *, overlap: float | None = None) -> Forecast:
        """Computed once; `overlap` as of `formula_of`."""
        key = layout, options, overlap
        if key not in self._formulas:
            self._formulas[key] = formula_of(self, layout, options, overlap=overlap)
        return self._formulas[key]

    def _options(self, layout: Layout, setting: FittedSetting) -> Setting:
        return Setting(
            micro_batch=setting.micro_batch, precision=self.precision, memory=setting.memory,
            schedule=schedule_of(self.line, layout.mesh, setting.micro_batch, self.profile),
        )  # fmt: skip


Ask = Callable[[Line, Inventory], PlanRequest]
"""The question of a line about some devices."""
