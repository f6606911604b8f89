"""What an update of one matrix costs: floating-point operations, state, and seconds on one device. Pure."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gangline.errors import ConfigError
from gangline.units import Elements, Flops, Seconds

Shape = tuple[int, int]
MuonKernel = Literal["standard", "symmetric", "gram"]
StateShapes = Mapping[str, tuple[Shape, str, Literal["sharded", "owner"]]]
"""Name of each state tensor to its shape, its dtype and where it is: as the parameter, or at the owner alone."""

_STEP: tuple[Shape, str, Literal["owner"]] = ((1, 1), "float32", "owner")
"""Steps that a matrix has had: fewer than those of the optimizer where a gradient was missing."""


class RuleSpec(Protocol):
    """What a plan knows of an update rule; a subclass has `name`, `step_cost` and `state` at least."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the rule and its kernel, as the measured table has it."""
        ...

    @property
    def refresh_every(self) -> int:
        """Steps between two refreshes of roots or bases; 1: there are none."""
        return 1

    @property
    def is_bitwise_batchable(self) -> bool:
        """Does a batch give the bits of its matrices one by one?"""
        return False

    @property
    def is_shareable(self) -> bool:
        """Can a team of ranks compute one update?"""
        return False

    @abstractmethod
    def step_cost(self, shape: Shape) -> Flops:
        """Of every step, without refreshes."""
        ...

    def refresh_cost(self, shape: Shape) -> Flops:  # noqa: ARG002  most rules have none
        """Of one refresh."""
        return Flops(0)

    @abstractmethod
    def state(self, shape: Shape) -> StateShapes:
        """Tensors that it keeps for a matrix."""
        ...


def cost(rule: RuleSpec, shape: Shape, batch: int = 1) -> Flops:
    """Of a mean step of `batch` matrices: refreshes spread over the steps between them."""
    step, refresh, every = rule.step_cost(shape).value, rule.refresh_cost(shape).value, rule.refresh_every
    return Flops(batch * (step + refresh / every if refresh else step))


def state_elements(rule: RuleSpec, shape: Shape, *, at: Literal["sharded", "owner"]) -> Elements:
    """Of the state of one matrix that is kept `at` that place."""
    return Elements(sum(rows * columns for (rows, columns), _, where in rule.state(shape).values() if where == at))


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonSpec(RuleSpec):
    """Muon with Newton-Schulz iterations."""

    kernel: MuonKernel = "standard"
    """`symmetric`: products of a matrix with its transpose compute one triangle (SYRK); `gram`: iterates on the Gram
    matrix with one restart, all products symmetric, 5 steps whatever `steps` says."""
    steps: int = 5

    @property
    def name(self) -> str:
        return f"muon/{self.kernel}"

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
    is_bitwise_batchable: bool = True

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
    is_bitwise_batchable: bool = True

    @property
    def name(self) -> str:
        return "soap"

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
    """As the kernel sees it: rows are the smaller side."""
    batch: int = 1
    dtype: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCurve:
    """Seconds of updates on one device: measured where `table` has the shape, else peak rate with a knee.

    The defaults are assumptions, not measurements.
    """

    peak_flops_per_second: float = 600e12
    knee: float = 700.0
    """Smaller side at which a product runs at half the peak."""
    launch_seconds: float = 120e-6
    """Of all kernels of one matrix or batch."""
    table: tuple[MeasuredCost, ...] = field(default=())
    dtype: str = "bfloat16"
    """Of the products, as `table` has it."""

    def __post_init__(self) -> None:
        if self.peak_flops_per_second <= 0 or self.knee < 0 or self.launch_seconds < 0:
            raise ConfigError(f"a device has a positive peak and no negative time, found {self}")

    def seconds(self, rule: RuleSpec, shape: Shape, batch: int = 1) -> Seconds:
        """Of a mean step of `batch` matrices of one shape, launched together."""
        m, n = sorted(shape)
        for row in self.table:
            if (row.rule, row.shape, row.batch, row.dtype) == (rule.name, (m, n), batch, self.dtype):
                return Seconds(row.seconds)
        return Seconds(self.compute_seconds(cost(rule, shape, batch), m).value + self.launch_seconds)

    def compute_seconds(self, flops: Flops, side: int) -> Seconds:
        """Of products whose smaller side is `side`, without launch."""
        return Seconds(flops.value * (1 + (self.knee / side) ** 2) / self.peak_flops_per_second)


CPU = DeviceCurve(peak_flops_per_second=30e9, knee=0.0, launch_seconds=50e-6, dtype="float32")
"""Of one core; an assumption, too. Small matrices cost what they compute there, not what they launch."""
