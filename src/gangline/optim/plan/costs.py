"""What an update of one matrix costs: floating-point operations, state, and seconds on one device. Pure."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Protocol

from gangline.errors import ConfigError
from gangline.spec.config.matrix_options import MuonKernel
from gangline.units import Flops, Seconds

Shape = tuple[int, int]
StateShapes = Mapping[str, tuple[Shape, str, Literal["sharded", "owner"]]]
"""Name of each state tensor to its shape, its dtype and where it is: as the parameter, or at the owner alone."""

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
_STEP: tuple[Shape, str, Literal["owner"]] = ((1, 1), "float32", "owner")
"""Steps that a matrix has had: fewer than those of the optimizer where a gradient was missing."""


class RuleSpec(Protocol):
    """What a plan knows of an update rule; a subclass has `name`, `step_cost` and `state` at least."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the rule and its kernel, as the measured table has it."""
        ...

    @property
    def dtype(self) -> str:
        """Type of the products that cost most, as the measured table has it."""
        return "float32"

    @property
    def refresh_every(self) -> int:
        """Steps between two refreshes of roots or bases; 1: there are none."""
        return 1

    @property
    def is_shareable(self) -> bool:
        """Can a team of ranks compute one update?"""
        return False

    @abstractmethod
    def step_cost(self, shape: Shape) -> Flops:
        """Cost of every step, without refreshes."""
        ...

    def refresh_cost(self, shape: Shape) -> Flops:  # noqa: ARG002  most rules have none
        """Cost of one refresh."""
        return Flops(0)

    @abstractmethod
    def state(self, shape: Shape) -> StateShapes:
        """Tensors that it keeps for a matrix."""
        ...


def cost(rule: RuleSpec, shape: Shape, batch: int = 1) -> Flops:
    """Cost of a mean step of `batch` matrices: refreshes spread over the steps between them."""
    step, refresh, every = rule.step_cost(shape).value, rule.refresh_cost(shape).value, rule.refresh_every
    return Flops(batch * (step + refresh / every if refresh else step))


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonSpec(RuleSpec):
    """Muon with Newton-Schulz iterations."""

    kernel: MuonKernel = "standard"
    """`symmetric`: products of a matrix with its transpose compute one triangle (SYRK); `gram`: iterates on the Gram
    matrix with one restart, all products symmetric, 5 steps whatever `steps` says."""
    steps: int = 5
    dtype: str = "bfloat16"

    @property
    def name(self) -> str:
        return f"muon/{self.kernel}" + (f"/{self.steps} steps" if self.steps != 5 else "")

    @property
    def is_shareable(self) -> bool:
        return True

    def step_cost(self, shape: Shape) -> Flops:
        m, n = sorted(shape)
        if self.kernel == "gram":
            return Flops(6 * m * m * n + 20 * m**3)
        if self.kernel == "symmetric":
            return Flops(self.steps * (3 * m * m * n + m**3))
        return Flops(self.steps * (4 * m * m * n + 2 * m**3))

    def state(self, shape: Shape) -> StateShapes:
        return {"momentum": (shape, "float32", "sharded")}


@dataclass(frozen=True, kw_only=True, slots=True)
class ShampooSpec(RuleSpec):
    """Shampoo: an average of gradients, two factors and their inverse roots, of both sides."""

    refresh_every: int = 10

    @property
    def name(self) -> str:
        return "shampoo"

    def step_cost(self, shape: Shape) -> Flops:
        m, n = shape
        return Flops(4 * m * m * n + 4 * m * n * n)

    def refresh_cost(self, shape: Shape) -> Flops:
        return Flops(25 * (shape[0] ** 3 + shape[1] ** 3))

    def state(self, shape: Shape) -> StateShapes:
        sides: StateShapes = {
            f"{part}_{side}": ((length, length), "float32", "owner")
            for side, length in zip(("left", "right"), shape, strict=True)
            for part in ("factor", "root")
        }
        return {"step": _STEP, "exp_avg": (shape, "float32", "owner"), **sides}


@dataclass(frozen=True, kw_only=True, slots=True)
class SoapSpec(RuleSpec):
    """SOAP: Adam in the eigenbasis of Shampoo's factors; a side above `largest_side` keeps no basis."""

    refresh_every: int = 10
    largest_side: int = 10_000

    @property
    def name(self) -> str:
        return "soap" if self.largest_side == 10_000 else f"soap/{self.largest_side}"

    def step_cost(self, shape: Shape) -> Flops:
        return Flops(sum(6 * side * side * other for side, other in self._kept(shape)))

    def refresh_cost(self, shape: Shape) -> Flops:
        return Flops(sum(4.7 * side**3 + 4 * side * side * other for side, other in self._kept(shape)))

    def state(self, shape: Shape) -> StateShapes:
        moments: StateShapes = dict.fromkeys(("exp_avg", "exp_avg_sq"), (shape, "float32", "owner"))
        squares: StateShapes = {
            f"{part}_{name}": ((side, side), "float32", "owner")
            for name, side in zip(("left", "right"), shape, strict=True)
            if side <= self.largest_side
            for part in ("factor", "basis")
        }
        return {"step": _STEP, **moments, **squares}

    def _kept(self, shape: Shape) -> tuple[Shape, ...]:
        """Each side that has a basis, with the other one."""
        both = (shape, (shape[1], shape[0]))
        return tuple((side, other) for side, other in both if side <= self.largest_side)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCost:
    """Seconds of one batch of updates on a device."""

    rule: str
    """`RuleSpec.name`."""
    shape: Shape
    """Shape as the kernel sees it: rows are the smaller side."""
    batch: int = 1
    dtype: str
    """`RuleSpec.dtype`."""
    seconds: float
    """Duration of a step without refresh."""
    refresh_seconds: float = 0.0
    """Time that a refresh of roots or bases adds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCurve:
    """Seconds of updates on one device: measured where `table` has the shape, else peak rate with a knee.

    The defaults are assumptions, not measurements. Where a table has some shapes of a rule, the curve of the others is
    scaled by what the table has against it, in the median: measured and assumed seconds can be compared then.
    """

    peak_flops_per_second: float = 600e12
    knee: float = 700.0
    """Smaller side at which a product runs at half the peak."""
    launch_seconds: float = 120e-6
    """Launch time of all kernels of one matrix or batch."""
    table: tuple[MeasuredCost, ...] = field(default=())
    source: str = ""
    """Origin of the table, for people: device and version of torch."""

    def __post_init__(self) -> None:
        if self.peak_flops_per_second <= 0 or self.knee < 0 or self.launch_seconds < 0:
            raise ConfigError(f"a device has a positive peak and no negative time, found {self}")

    def seconds(self, rule: RuleSpec, shape: Shape, batch: int = 1) -> Seconds:
        """Duration of a mean step of `batch` matrices of one shape, launched together or in parts of measured size."""
        if row := self.measured(rule, shape, batch):
            return Seconds((row.seconds + row.refresh_seconds / rule.refresh_every) * batch / row.batch)
        return Seconds(self._modelled(rule, shape, batch) * self._scale(rule))

    def refresh_seconds(self, rule: RuleSpec, shape: Shape) -> Seconds:
        """Duration of one refresh of the roots or the basis of one matrix, beyond a step without."""
        if row := self.measured(rule, shape):
            return Seconds(row.refresh_seconds)
        return Seconds(self.compute_seconds(rule.refresh_cost(shape), min(shape)).value * self._scale(rule))

    def measured(self, rule: RuleSpec, shape: Shape, batch: int = 1) -> MeasuredCost | None:
        """Row of the table, of the largest batch up to this one; None: it has none."""
        kind = (rule.name, rule.dtype, (min(shape), max(shape)))
        rows = [row for row in self.table if (row.rule, row.dtype, row.shape) == kind and row.batch <= batch]
        return max(rows, key=lambda row: row.batch, default=None)

    def compute_seconds(self, flops: Flops, side: int) -> Seconds:
        """Computing time of products whose smaller side is `side`, without launch."""
        return Seconds(flops.value * (1 + (self.knee / side) ** 2) / self.peak_flops_per_second)

    def _modelled(self, rule: RuleSpec, shape: Shape, batch: int) -> float:
        return self.compute_seconds(cost(rule, shape, batch), min(shape)).value + self.launch_seconds

    def _scale(self, rule: RuleSpec) -> float:
        """Measured over modelled seconds of the rows of this rule; 1 without any."""
        ratios = [
            (row.seconds + row.refresh_seconds / rule.refresh_every) / self._modelled(rule, row.shape, row.batch)
            for row in self.table
            if (row.rule, row.dtype) == (rule.name, rule.dtype)
        ]
        return median(ratios) if ratios else 1.0


CPU = DeviceCurve(peak_flops_per_second=30e9, knee=0.0, launch_seconds=50e-6)
"""Rates of one core; an assumption, too. Small matrices cost what they compute there, not what they launch."""
